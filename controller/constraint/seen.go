package constraint

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// seenTimeout bounds the wait for a watch to show what was just written. It takes milliseconds.
	seenTimeout  = 10 * time.Second
	seenInterval = 2 * time.Millisecond
)

// seen waits for a condition that watches will soon make true.
func seen(ctx context.Context, condition func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, seenInterval, seenTimeout, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		return fmt.Errorf("wait for the watches to show a write: %w", err)
	}
	return nil
}

// older tells whether a resourceVersion is from before another.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
