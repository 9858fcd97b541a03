package policy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

const (
	// firstRetry and lastRetry bound how long a write that was denied is left alone: nothing tells when a role changes.
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
	// patience is how long a write may fail before that is reported: a blip of the API server is nobody's fault.
	patience = 5 * time.Second
)

// memory is what is remembered of Policies from one look to the next. None of it is needed: without it each template is
// written once more, which changes nothing. The zero value is ready for use.
type memory struct {
	mu sync.Mutex
	of map[types.NamespacedName]*policyMemory
}

// policyMemory is what is remembered of one Policy. Only one worker at a time looks at a Policy.
type policyMemory struct {
	uid       types.UID
	templates map[dependency.Ref]*templateMemory
	// cycle tells that the Policy was found to wait for itself.
	cycle bool
	// digest is that of the spec in generation digested; zero for none.
	digest   dependency.Digest
	digested int64
	// unread is since when something has not been read yet that is on its way.
	unread time.Time
}

// keep forgets all objects but those that there are templates of, and those that are there.
func (p *policyMemory) keep(templates map[dependency.Ref]bool, live map[dependency.Ref]*unstructured.Unstructured) {
	for ref := range p.templates {
		if !templates[ref] && live[ref] == nil {
			delete(p.templates, ref)
		}
	}
}

// template gives what is remembered of the object of a template.
func (p *policyMemory) template(ref dependency.Ref) *templateMemory {
	m := p.templates[ref]
	if m == nil {
		m = &templateMemory{}
		p.templates[ref] = m
	}
	return m
}

// templateMemory is what is remembered of one template.
type templateMemory struct {
	written written
	damping dependency.Damping
	// contested is set where there was an object that could not be made: it is watched, to find out whose it is.
	contested bool
	trouble   *trouble
	drift     drift
}

// written is what an object was after it was written, and of what.
type written struct {
	uid        types.UID
	generation int64
	head       hash
	desired    hash
}

// edited tells whether something else is wanted than what was written last. Where that is not remembered nobody knows.
func (m *templateMemory) edited(want *desired) bool {
	return m.written.uid != "" && m.written.desired != want.hash
}

// attempt is a write by all that it was made from: the same one has the same result, until something else changes.
type attempt struct {
	verb       string
	object     hash
	uid        types.UID
	generation int64
}

// trouble is why a write failed, and when it is tried again.
type trouble struct {
	attempt attempt
	text    string
	since   time.Time
	// again is zero for never.
	again time.Time
	pause time.Duration
}

// blocks tells whether a write is the one that failed, and not worth trying again yet, and how long that is so; zero for
// ever.
func (t *trouble) blocks(a attempt, now time.Time) (blocked bool, wait time.Duration) {
	if t == nil || t.attempt != a || t.text == "" {
		return false, 0
	}
	if t.again.IsZero() {
		return true, 0
	}
	return now.Before(t.again), t.again.Sub(now)
}

// next is the trouble after a write has failed, perhaps not for the first time.
func (t *trouble) next(a attempt, means outcome, text string, now time.Time) *trouble {
	next := &trouble{attempt: a, since: now, pause: firstRetry}
	if t != nil && t.attempt == a {
		next.since, next.pause = t.since, min(2*t.pause, lastRetry)
	}
	switch means {
	case refused:
		next.text = text
	case denied:
		next.text, next.again = text, now.Add(next.pause)
	case failed:
		if now.Sub(next.since) >= patience {
			next.text, next.again = text, now // reported, and tried again as errors are
		}
	case retried, contested: // no trouble
	}
	return next
}

// policy gives what is remembered of a Policy; nothing, if it is another one of the same name.
func (m *memory) policy(key types.NamespacedName, uid types.UID) *policyMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.of[key]
	if p == nil || p.uid != uid {
		p = &policyMemory{uid: uid, templates: map[dependency.Ref]*templateMemory{}}
		if m.of == nil {
			m.of = map[types.NamespacedName]*policyMemory{}
		}
		m.of[key] = p
	}
	return p
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
