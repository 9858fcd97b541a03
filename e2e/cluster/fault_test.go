package cluster

import (
	"context"
	"errors"
	"testing"
)

// TestFail: a command that would run forever ends with the error, and later ones do not start.
func TestFail(t *testing.T) {
	c := &Cluster{dir: t.TempDir()}
	c.failed, c.fail = context.WithCancelCause(t.Context())
	reason := errors.New("127.0.0.1:1: address already in use")
	go func() {
		c.Fail(reason)
		c.Fail(errors.New("a later error"))
	}()
	for range 2 {
		if _, err := c.execute(t.Context(), "tail", Command{Args: []string{"-f", "/dev/null"}}); !errors.Is(err,
			reason) {
			t.Errorf("it ends with %v, want %v", err, reason)
		}
	}
}
