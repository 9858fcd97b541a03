// Package slots limits how many tests with a cluster run at once over all test processes of a user: go test runs
// packages at the same time. A slot is a lock on a file, which the kernel releases when its holder ends, however it
// ends.
package slots

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryInterval is how often Acquire tries to lock a slot; flock(2) takes no context.
const retryInterval = 200 * time.Millisecond

// Dir returns the directory that all test processes of this user share.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the slots for clusters: %w", err)
	}
	return filepath.Join(cache, "opgate", "slots"), nil
}

// Acquire takes one of n slots in dir, and waits until one is free or ctx ends. The caller must call release.
func Acquire(ctx context.Context, dir string, n int) (release func() error, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("wait for a slot: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(context.Context) (bool, error) {
		for i := range n {
			slot := flock.New(filepath.Join(dir, strconv.Itoa(i)))
			locked, err := slot.TryLock()
			if locked {
				release = slot.Unlock
			}
			if locked || err != nil {
				return locked, err
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for one of %d slots in %s: %w", n, dir, err)
	}
	return release, nil
}
