package constraint

import (
	"context"
	"sync/atomic"
	"time"
)

// Budget bounds the total cost of the rules of one request, and lets the caller interrupt them. It is safe for
// concurrent use. With a nil Budget each call has a budget of its own.
type Budget struct {
	spent     atomic.Uint64
	interrupt interruption
}

// NewBudget returns the budget of one request. Closing interrupt stops evaluation soon after; nil never interrupts.
func NewBudget(interrupt <-chan struct{}) *Budget {
	return &Budget{interrupt: interruption{done: interrupt}}
}

// take charges a cost and reports whether it was within the limit.
func (b *Budget) take(cost uint64) bool {
	if b.spent.Load()+cost > RequestCostLimit {
		return false
	}
	b.spent.Add(cost)
	return true
}

func (b *Budget) interrupted() bool { return b.interrupt.done != nil && b.interrupt.Err() != nil }

// interruption is the context that cel-go requires; it has only a Done channel, since judging has no context.
type interruption struct{ done <-chan struct{} }

var _ context.Context = interruption{}

// Deadline reports that there is none.
func (interruption) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done returns the channel.
func (i interruption) Done() <-chan struct{} { return i.done }

// Err returns an error once the channel is closed.
func (i interruption) Err() error {
	select {
	case <-i.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc keeps package context from starting a goroutine per evaluation to wait for the channel: cel-go derives a
// context from this one, but polls the channel itself.
func (interruption) AfterFunc(func()) (stop func() bool) { return stopped }

func stopped() bool { return true }

// Value returns nil.
func (interruption) Value(any) any { return nil }
