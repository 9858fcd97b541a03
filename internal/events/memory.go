package events

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// forgetAfter is how long a reason must not have been given to count as a new one. API servers keep events for an
	// hour.
	forgetAfter = time.Hour
	// maxRemembered bounds each generation of remembered events, and the objects that are counted.
	maxRemembered = 10_000
	// maxPerObject bounds the events on one object for one reason within forgetAfter: who writes an object decides on
	// what a refusal quotes, and so could make each refusal differ.
	maxPerObject = 20
)

// memory remembers which events were recorded, in two generations: when the younger one is full it replaces the older
// one. The zero value is ready for use; it is safe for concurrent use.
type memory struct {
	mu             sync.Mutex
	younger, older map[digest]time.Time // when the reason was last given
	// counted are the events of each object since an instant.
	counted map[object]int
	since   time.Time
}

// object is what events are counted of.
type object struct {
	uid    types.UID
	reason string
}

// novelty is whether an event was recorded before.
type novelty int

const (
	// fresh events are sent, repeated ones were recorded before, excess ones are too many of one object.
	fresh novelty = iota
	repeated
	excess
)

// add remembers an event.
func (m *memory) add(id digest, about object, now time.Time) novelty {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.younger[id]
	if !known {
		last, known = m.older[id]
	}
	known = known && now.Sub(last) < forgetAfter
	if !known && m.count(about, now) > maxPerObject {
		return excess
	}
	if m.younger == nil || len(m.younger) >= maxRemembered {
		m.younger, m.older = map[digest]time.Time{}, m.younger
	}
	m.younger[id] = now
	if known {
		return repeated
	}
	return fresh
}

// count returns the events of an object, with this one.
func (m *memory) count(about object, now time.Time) int {
	if m.counted == nil || now.Sub(m.since) >= forgetAfter || len(m.counted) >= maxRemembered {
		m.counted, m.since = map[object]int{}, now
	}
	m.counted[about]++
	return m.counted[about]
}

// forget makes an event count as one that was never recorded.
func (m *memory) forget(id digest, about object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.younger, id)
	delete(m.older, id)
	if m.counted[about] > 0 {
		m.counted[about]--
	}
}
