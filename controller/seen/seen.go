// Package seen waits for watches to show what was written, so that nobody who builds on them does it twice.
package seen

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// timeout bounds the wait for a watch to show what was just written. It takes milliseconds.
	timeout  = 10 * time.Second
	interval = 2 * time.Millisecond
)

// Wait waits for a condition that watches will soon make true.
func Wait(ctx context.Context, condition func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		return fmt.Errorf("wait for the watches to show a write: %w", err)
	}
	return nil
}

// Older tells whether a resourceVersion is from before another.
func Older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
