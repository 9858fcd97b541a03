//go:build unix

// Package filelock lets processes exclude each other with a file. The kernel drops a lock when its holder ends, however
// it ends, so that a lock is never stale.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("lock is held by another process")

// retryInterval is how often Acquire looks whether the holder has let go; flock(2) cannot be waited for with a context.
const retryInterval = 200 * time.Millisecond

// Lock is an exclusive lock on a file, held until Release or the end of the process.
type Lock struct {
	file *os.File
}

// TryAcquire takes the lock on path, which is created with its directory if need be, or returns ErrHeld.
func TryAcquire(path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		lock, err := tryOnce(path)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The holder may have removed the file between our open and our lock. A lock on a file without a name excludes
		// nobody, so take the one that has the name now.
		if lock.names(path) {
			return lock, nil
		}
		lock.Release()
	}
}

// Acquire is TryAcquire, but waits for the holder until ctx ends.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	var lock *Lock
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(context.Context) (bool, error) {
		var err error
		lock, err = TryAcquire(path)
		if errors.Is(err, ErrHeld) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for lock %s: %w", path, err)
	}
	return lock, nil
}

func tryOnce(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{file: file}, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrHeld
	}
	return nil, err
}

func (l *Lock) names(path string) bool {
	locked, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(locked, named)
}

// Note replaces what the file says, for those who find the lock held.
func (l *Lock) Note(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	if _, err := l.file.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	return nil
}

// Release gives the lock up. The file stays.
func (l *Lock) Release() {
	// Closing drops the lock; there is nothing a caller could do about a failure.
	_ = l.file.Close()
}
