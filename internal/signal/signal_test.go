package signal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestSignal: a condition that becomes true is noticed, however often it was not before.
func TestSignal(t *testing.T) {
	var s Signal
	var n atomic.Int64
	evaluated := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- s.Wait(t.Context(), func() bool {
			evaluated <- struct{}{}
			return n.Load() == 3
		})
	}()
	for range 3 {
		<-evaluated
		n.Add(1)
		s.Notify()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.Notify() // nothing waits
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Until(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
