// Package signal lets goroutines wait, without polling, for a condition that others make true.
package signal

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Timeout bounds Wait: what a watch has to show was just written, which takes milliseconds.
const Timeout = 10 * time.Second

// Signal wakes those who wait for a condition. The zero value is ready for use; it is safe for concurrent use.
type Signal struct {
	mu sync.Mutex
	// next is closed by the next Notify; nil where nothing waits.
	next chan struct{}
}

// Notify has conditions evaluated again.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// Until waits for a condition until the context ends. It is evaluated at once, and after each Notify.
func (s *Signal) Until(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		if s.next == nil {
			s.next = make(chan struct{})
		}
		notified := s.next // before the condition, so that none is missed
		s.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-notified:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Wait is Until for a watch that shows what was just written, so that nothing is decided, and done, a second time.
func (s *Signal) Wait(ctx context.Context, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := s.Until(ctx, condition); err != nil {
		return fmt.Errorf("wait for the watches to show a write: %w", err)
	}
	return nil
}

// Put puts a token into a channel of capacity 1, which holds it until it is received; a second one is dropped.
func Put(token chan<- struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// Sleep waits for a duration. It returns an error if the context ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
