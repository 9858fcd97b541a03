package constraint

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what is read. They bound memory and the time to admit a Constraint.
const (
	// maxConstraintBytes bounds one element of spec.constraints, as written.
	maxConstraintBytes = 64 << 10
	// maxObjectBytes bounds the texts and values of a spec together.
	maxObjectBytes = 1 << 20
	// maxConstraints bounds the elements of spec.constraints and spec.rules together, maxProperties those of
	// spec.properties and spec.offers; maxConstraints also the constraints of one bundle.
	maxConstraints = 256
	maxProperties  = 1024
	// maxDepth bounds the nesting of JSON, also that of a bundle's own constraint.
	maxDepth = 100
)

// Limits of CEL, in cel-go's units of cost; docs/decisions/2026-11-21-constraints.md has what they take.
const (
	// maxRuleBytes bounds one expression, and maxRuleNodes its tree after macro expansion.
	maxRuleBytes = 10_000
	// maxRulesBytes bounds all expressions of one object: the compiler takes up to 3 milliseconds for a kilobyte.
	maxRulesBytes = 100_000
	maxRuleNodes  = 2_000
	// maxRuleDepth bounds nesting: cel-go's parser takes time quadratic in it.
	maxRuleDepth = 50
	// RuleCostLimit bounds the estimate of a rule, and what one evaluation of it costs. It is that of Kubernetes
	// (k8s.io/apiserver/pkg/apis/cel, PerCallLimit), of which most rules take 0.1 s, and the slowest known ones 0.7 s.
	RuleCostLimit = 1_000_000
	// BundleCostLimit bounds what all rules on one bundle cost: a costly bundle is held, and those beside it are
	// judged. It is that of Kubernetes for a request.
	BundleCostLimit = 10 * RuleCostLimit
	// maxRegexInstructions bounds a regular expression's compiled program: "(a{1000}){10}" is short to write.
	maxRegexInstructions = 500
	// maxRange bounds lists.range.
	maxRange = 10_000
	// interruptEvery is the number of loop iterations between checks for the interruption.
	interruptEvery = 100
)

// Limits of what CEL reads of a bundle. A value beyond them is an error only in rules that read it: single calls (a
// regular expression on a text) cannot be interrupted.
const (
	maxSeenText     = 16 << 10 // characters
	maxSeenElements = 4096     // of one list or map, rules of RBAC and of webhooks among them
	maxSeenDepth    = 32
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

// boundedMap caches results. Reads take no lock. It is cleared when it is full: results can be recomputed, and an LRU
// order would cost every reader a write. The zero value is ready to use.
type boundedMap[K comparable, V any] struct {
	entries atomic.Pointer[sync.Map]
	weight  atomic.Int64
}

// get returns the value of a key.
func (m *boundedMap[K, V]) get(key K) (V, bool) {
	if entries := m.entries.Load(); entries != nil {
		if v, ok := entries.Load(key); ok {
			return v.(V), true //nolint:forcetypeassert // only put stores
		}
	}
	var none V
	return none, false
}

// put adds an entry of a given weight; if the total would exceed the limit, it first removes all other entries. One
// that exceeds the limit alone is not stored.
func (m *boundedMap[K, V]) put(key K, value V, weight, limit int64) {
	if weight > limit {
		return
	}
	entries := m.entries.Load()
	if entries == nil || m.weight.Load()+weight > limit {
		fresh := new(sync.Map)
		if m.entries.CompareAndSwap(entries, fresh) {
			m.weight.Store(0)
		}
		entries = m.entries.Load()
	}
	if _, there := entries.LoadOrStore(key, value); !there {
		m.weight.Add(weight)
	}
}
