package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/reaper"
	"github.com/opgate/opgate/e2e/internal/slots"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// waitTimeout bounds every wait. It takes seconds at most.
const waitTimeout = speed.Wait

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(webhookVariable); ok {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if code, ok := reaper.Main(context.Background()); ok {
		os.Exit(code)
	}
	if err := speed.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// env is a cluster with a node and nothing else.
type env struct {
	*cluster.Cluster
	*Node
	log *lines
}

func start(t *testing.T) *env {
	t.Helper()
	slots.Take(t)
	dir, err := os.MkdirTemp("", "opgate-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	dismiss, err := reaper.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	t.Cleanup(func() {
		if err := dismiss(); err != nil {
			t.Error(err)
		}
	})
	server, err := testServer()
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, Bare: true, Node: true, WithoutOLM: true,
		Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the node says:\n%s", log)
		}
	})
	n, err := Start(t.Context(), c, Options{Images: map[string]Program{"registry.example:5000/server": server},
		Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return &env{c, n, log}
}

// kubectl runs kubectl as the admin and expects it to succeed. It returns the output, warnings included.
func (e *env) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	result, err := e.Kubectl(t.Context(), cluster.Admin, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), result.ExitCode, result.Stderr)
	}
	return result.Stdout + result.Stderr
}

// eventually waits until check succeeds.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := speed.Poll(t.Context(), pollInterval, waitTimeout,
		func(ctx context.Context) (bool, error) {
			last = check(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// shows waits until kubectl prints a text.
func (e *env) shows(t *testing.T, want string, args ...string) {
	t.Helper()
	eventually(t, strings.Join(args, " "), func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", args...)
		if got := result.Stdout + result.Stderr; err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("want %q, got %q", want, got)
		}
		return err
	})
}

// lines is the log of a node.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
