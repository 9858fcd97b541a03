package constraint

import (
	"context"
	"sync/atomic"
	"time"
)

// Budget counts what rules cost, and lets the caller interrupt them. It is safe for concurrent use. That of a request
// limits nothing by itself: Judge and Own limit what is spent on each bundle.
type Budget struct {
	spent     atomic.Uint64
	interrupt interruption
}

// NewBudget returns an unused Budget. Closing interrupt stops evaluation soon after; nil never interrupts.
func NewBudget(interrupt <-chan struct{}) *Budget {
	return &Budget{interrupt: interruption{done: interrupt}}
}

// Spent returns what rules have cost.
func (b *Budget) Spent() uint64 { return b.spent.Load() }

// ofBundle returns the budget of one bundle, and what adds it to b.
func (b *Budget) ofBundle() (own *Budget, end func()) {
	if b == nil {
		b = NewBudget(nil)
	}
	own = NewBudget(b.interrupt.done)
	return own, func() { b.spent.Add(own.spent.Load()) }
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
