//go:build unix

package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/internal/filelock"
)

func TestLockExcludesUntilReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	first, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.TryAcquire(path); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("second TryAcquire: got error %v, want ErrHeld", err)
	}
	first.Release()
	second, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatalf("after Release: %v", err)
	}
	second.Release()
}

func TestAcquireWaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, first.Release)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	second, err := filelock.Acquire(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := filelock.Acquire(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got error %v, want the context's", err)
	}
}

func TestLockOnARemovedFileExcludesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	old, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Release()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	current, err := filelock.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer current.Release()
	if _, err := filelock.TryAcquire(path); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("got error %v, want ErrHeld", err)
	}
}
