package constraint

import (
	"context"
	"sync/atomic"
	"time"
)

// Budget bounds what the rules of one request may cost together, and lets them be interrupted. It may be shared by
// concurrent calls. A nil Budget is one of its own for each call.
type Budget struct {
	spent     atomic.Uint64
	interrupt interruption
}

// NewBudget makes the budget of one request. When interrupt is closed, evaluation stops soon after; nil means never.
func NewBudget(interrupt <-chan struct{}) *Budget {
	return &Budget{interrupt: interruption{done: interrupt}}
}

// take charges a cost, unless that would exceed the limit.
func (b *Budget) take(cost uint64) bool {
	if b.spent.Load()+cost > RequestCostLimit {
		return false
	}
	b.spent.Add(cost)
	return true
}

func (b *Budget) interrupted() bool { return b.interrupt.done != nil && b.interrupt.Err() != nil }

// interruption is the context that cel-go wants: a channel and nothing else. Judging has no context of its own.
type interruption struct{ done <-chan struct{} }

var _ context.Context = interruption{}

// Deadline is none.
func (interruption) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done is the channel.
func (i interruption) Done() <-chan struct{} { return i.done }

// Err reports whether the channel is closed.
func (i interruption) Err() error {
	select {
	case <-i.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc tells package context that it need not start a goroutine for each evaluation to wait for the channel: cel-go
// derives a context from this one, but looks at the channel itself.
func (interruption) AfterFunc(func()) (stop func() bool) { return stopped }

func stopped() bool { return true }

// Value is none.
func (interruption) Value(any) any { return nil }
