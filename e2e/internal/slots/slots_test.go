package slots_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opgate/opgate/e2e/internal/slots"
)

func TestAcquireLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, err := slots.Acquire(t.Context(), dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		second, err := slots.Acquire(t.Context(), dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := slots.Acquire(ctx, dir, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a third of two slots: got error %v, want the context's", err)
		}
		time.AfterFunc(time.Hour, func() {
			if err := first(); err != nil {
				t.Error(err)
			}
		})
		third, err := slots.Acquire(t.Context(), dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, release := range []func() error{second, third} {
			if err := release(); err != nil {
				t.Error(err)
			}
		}
	})
}
