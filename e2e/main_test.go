package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/reaper"
	"github.com/opgate/opgate/e2e/internal/speed"
)

func TestMain(m *testing.M) {
	if code, ok := reaper.Main(context.Background()); ok {
		os.Exit(code)
	}
	if err := speed.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		// The reaper sees the end of this process and cleans up.
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(1)
	})
	code := m.Run()
	_ = cancel // the end of the process ends it
	for _, stop := range []func() error{sharedEnv.stop, opgate.remove} {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""; all && code == 0 {
		// Only all tests together make Opgate do all that it may do.
		if unused, err := exercised.unused(); err != nil || len(unused) > 0 {
			fmt.Fprintf(os.Stderr, "no test made opgate use these rights that it is shipped with: %v (%v)\n", unused, err)
			code = 1
		}
	}
	os.Exit(code)
}

// env is a control plane with Opgate in front of it, and clients.
type env struct {
	*cluster.Cluster
	// gate is the process that answers at present.
	gate    *cluster.Gate
	clients map[cluster.User]*client
}

// sharedEnv is the one that most tests use, in turn.
var sharedEnv struct {
	env  *env
	stop func() error
	err  error
	once sync.Once
}

func init() { sharedEnv.stop = func() error { return nil } }

// opgate is the binary that all clusters run. Linking it takes seconds each time.
var opgate binary

type binary struct {
	path   string
	err    error
	once   sync.Once
	remove func() error
}

func init() { opgate.remove = func() error { return nil } }

// build builds it when it is first asked for.
func (b *binary) build(ctx context.Context) (string, error) {
	b.once.Do(func() {
		dir, err := os.MkdirTemp("", "opgate-e2e-")
		if err != nil {
			b.err = err
			return
		}
		dismiss, err := reaper.Start(ctx, dir)
		if err != nil {
			b.err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		b.remove = func() error { return errors.Join(os.RemoveAll(dir), dismiss()) }
		b.path, b.err = cluster.BuildOpgate(ctx, dir, os.Stderr)
	})
	return b.path, b.err
}

// shared gives the environment that tests share, with Opgate running. The first test that asks starts it. Tests that use it
// must not be parallel, and leave neither policies nor objects behind.
func shared(t *testing.T) *env {
	t.Helper()
	sharedEnv.once.Do(func() {
		sharedEnv.env, sharedEnv.stop, sharedEnv.err = start(t.Context())
	})
	if sharedEnv.err != nil {
		t.Fatal(sharedEnv.err)
	}
	e := sharedEnv.env
	select {
	case <-e.gate.Exited():
		e.restart(t, cluster.GateOptions{})
	default:
	}
	return e
}

// openShift is the version that the shared cluster says it is.
const openShift = "4.19.3"

// start starts an environment. The caller must call stop, whatever the error.
func start(ctx context.Context) (e *env, stop func() error, err error) {
	c, stopCluster, err := startCluster(ctx, cluster.Options{Audit: true, OpenShift: openShift, Log: os.Stderr})
	if err != nil {
		return nil, stopCluster, err
	}
	e = &env{Cluster: c, clients: map[cluster.User]*client{}}
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant, cluster.OLM} {
		if e.clients[user], err = newClient(c, user); err != nil {
			return nil, stopCluster, err
		}
	}
	e.gate, err = c.StartOpgate(ctx, cluster.GateOptions{})
	if err != nil {
		return nil, stopCluster, err
	}
	return e, func() error {
		return errors.Join(checkLeastPrivilege(c), stopCluster()) // before the log is removed
	}, nil
}

// restart stops Opgate if it runs, and starts another.
func (e *env) restart(t *testing.T, opts cluster.GateOptions) {
	t.Helper()
	if _, err := e.gate.Stop(); err != nil {
		t.Error(err)
	}
	if opts.Binary == "" {
		opts.Binary = e.Opgate() // built already
	}
	gate, err := e.StartOpgate(context.WithoutCancel(t.Context()), opts)
	if err != nil {
		t.Fatal(err)
	}
	e.gate = gate
}

// startCluster starts a control plane, and a reaper for the case that this process cannot stop it. The caller must call stop,
// whatever the error.
func startCluster(ctx context.Context, opts cluster.Options) (c *cluster.Cluster, stop func() error, err error) {
	stop = func() error { return nil }
	if opts.Opgate, err = opgate.build(context.WithoutCancel(ctx)); err != nil {
		return nil, stop, err
	}
	opts.Dir, err = os.MkdirTemp("", "opgate-e2e-")
	if err != nil {
		return nil, stop, err
	}
	dismiss, err := reaper.Start(ctx, opts.Dir)
	if err != nil {
		return nil, stop, errors.Join(err, os.RemoveAll(opts.Dir))
	}
	c, err = cluster.Start(ctx, opts)
	if err != nil {
		return nil, dismiss, err
	}
	return c, func() error { return errors.Join(c.Stop(), dismiss()) }, nil
}
