package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/orphans"
)

// reapVariable makes the test binary a reaper of the directory that it names.
const reapVariable = "OPGATE_E2E_REAP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(reapVariable); dir != "" {
		os.Exit(reap(dir))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		// The reaper sees the end of this process and cleans up.
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(1)
	})
	code := m.Run()
	_ = cancel // the end of the process ends it
	if err := sharedEnv.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
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

// start starts an environment. The caller must call stop, whatever the error.
func start(ctx context.Context) (e *env, stop func() error, err error) {
	c, stopCluster, err := startCluster(ctx, cluster.Options{Audit: true, Log: os.Stderr})
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
	opts.Dir, err = os.MkdirTemp("", "opgate-e2e-")
	if err != nil {
		return nil, stop, err
	}
	dismiss, err := startReaper(opts.Dir)
	if err != nil {
		return nil, stop, errors.Join(err, os.RemoveAll(opts.Dir))
	}
	c, err = cluster.Start(ctx, opts)
	if err != nil {
		return nil, dismiss, err
	}
	return c, func() error { return errors.Join(c.Stop(), dismiss()) }, nil
}

// startReaper starts a process that outlives this one, and then ends what this one leaves running with its data in dir. A
// panic, a test that takes too long, and SIGKILL all end a test binary without a chance to clean up.
func startReaper(dir string) (dismiss func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// It reads from this pipe, whose other end closes with this process.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), reapVariable+"="+dir)
	cmd.Stdin, cmd.Stderr = read, &out
	// A session of its own, so that what ends this process does not end it as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return func() error {
		if err := errors.Join(write.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("end the reaper: %w\n%s", err, out.String())
		}
		if out.Len() > 0 {
			return fmt.Errorf("the cluster left something behind: %s", out.String())
		}
		return nil
	}, nil
}

// reap waits for the end of the process that started this one.
func reap(dir string) (code int) {
	signal.Ignore(syscall.SIGPIPE)       // who would read what this one says may be gone
	_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
	err := errors.Join(orphans.End(context.Background(), os.Stderr, dir), os.RemoveAll(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
