package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// stopTimeout bounds a graceful stop of the background process, which waits for each of its own to stop.
	stopTimeout = 10 * time.Minute
	// killTimeout bounds the time until a killed process is gone.
	killTimeout = 3 * time.Minute
	// holderTimeout bounds the moment until a process that has just taken the lock states who it is.
	holderTimeout = 3 * time.Minute

	pollInterval = 50 * time.Millisecond
)

// Down stops what Up started and removes what it left. It does no harm when nothing is up.
func Down(ctx context.Context, out io.Writer) error {
	l, err := findLayout()
	if err != nil {
		return err
	}
	if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(out, "nothing is up")
		return nil
	}

	lock, held, err := l.tryLock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if held {
		if err := l.stopHolder(ctx, out, lock); err != nil {
			return err
		}
		fmt.Fprintln(out, "stopped")
	} else {
		fmt.Fprintln(out, "nothing is up")
	}

	if err := l.clean(ctx, out); err != nil {
		return err
	}
	if err := os.Remove(l.lock()); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	// Files that are not ours may be there, and then the directory stays.
	if err := os.Remove(l.dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// stopHolder stops the background process, and takes the lock that it held.
func (l layout) stopHolder(ctx context.Context, out io.Writer, lock *flock.Flock) error {
	var pid int
	err := wait.PollUntilContextTimeout(ctx, pollInterval, holderTimeout, true, func(context.Context) (bool, error) {
		pid = l.holder()
		return pid != 0, nil
	})
	if err != nil {
		return fmt.Errorf("find out who holds %s: %w", l.lock(), err)
	}
	fmt.Fprintf(out, "stopping process %d\n", pid)
	err = signalHolder(ctx, lock, pid, syscall.SIGTERM, stopTimeout)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	fmt.Fprintf(out, "it did not stop within %s, killing it\n", stopTimeout)
	return signalHolder(ctx, lock, pid, syscall.SIGKILL, killTimeout)
}

// signalHolder signals the process that holds the lock, waits until it has ended and takes the lock. The lock is proof
// that the process is ours: it is held only while that process lives.
func signalHolder(ctx context.Context, lock *flock.Flock, pid int, sig syscall.Signal, timeout time.Duration) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", sig, pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, pollInterval); err != nil {
		return fmt.Errorf("wait for lock %s: %w", lock.Path(), err)
	}
	return nil
}
