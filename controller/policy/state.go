package policy

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

const (
	// firstRetry and lastRetry bound the backoff of refused writes: what refuses them cannot be watched.
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
	// gracePeriod is how long a write may fail before it is reported: short failures of the API server are expected.
	gracePeriod = 5 * time.Second
	// freeCorrections is how many times an object is corrected without delay, correctionPeriod the time until one more
	// is.
	freeCorrections  = 5
	correctionPeriod = time.Minute
)

// state is the state of Policies between two reconciliations. It may be lost: without it each template is written once
// more, which changes nothing. The zero value is ready for use.
type state struct{ sync.Map }

// policyState is the state of one Policy. Only one worker at a time reconciles a Policy.
type policyState struct {
	uid       types.UID
	templates map[dependency.Ref]*templateState
	// cycle is the one that the Policy was found to be part of.
	cycle []dependency.Ref
	// digest is that of the spec in generation digested; zero for none.
	digest   dependency.Digest
	digested int64
	// unread is the time since which a pending read has not completed.
	unread time.Time
}

// keep drops the state of all objects that neither have a template nor exist.
func (p *policyState) keep(templates map[dependency.Ref]bool, live map[dependency.Ref]*unstructured.Unstructured) {
	for ref := range p.templates {
		if !templates[ref] && live[ref] == nil {
			delete(p.templates, ref)
		}
	}
}

// template returns the state of the object of a template.
func (p *policyState) template(ref dependency.Ref) *templateState {
	m := p.templates[ref]
	if m == nil {
		m = newTemplateState()
		p.templates[ref] = m
	}
	return m
}

// templateState is the state of one template.
type templateState struct {
	written written
	// contested is set if an object exists that could not be created: it is watched, to determine its owner.
	contested  bool
	writeError *writeError
	// corrections limits how often an object that another client keeps changing is corrected.
	corrections *rate.Limiter
}

func newTemplateState() *templateState {
	return &templateState{corrections: rate.NewLimiter(rate.Every(correctionPeriod), freeCorrections)}
}

// written is the state of an object after it was written, and what it was written from.
type written struct {
	uid        types.UID
	generation int64
	metadata   hash
	desired    hash
}

// edited reports whether the desired object differs from the one written last; false if that is not known.
func (m *templateState) edited(want *desired) bool {
	return m.written.uid != "" && m.written.desired != want.hash
}

// attempt is a write with what it is made of: the same attempt has the same result until something else changes.
type attempt struct {
	verb    string
	desired hash
	pending string
	// uid and generation are those of the live object.
	uid        types.UID
	generation int64
}

// writeError is why a write failed, and when to retry it.
type writeError struct {
	attempt attempt
	// text is empty while it is not reported.
	text  string
	since time.Time
	again time.Time
	pause time.Duration
}

// wait returns how long a write is not repeated, since it failed.
func (t *writeError) wait(a attempt, now time.Time) time.Duration {
	if t == nil || t.attempt != a {
		return 0
	}
	return max(0, t.again.Sub(now))
}

// next returns the record after a write has failed, perhaps repeatedly. One that was refused is repeated with backoff, any
// other as errors are.
func (t *writeError) next(a attempt, isRefused bool, text string, now time.Time) *writeError {
	next := &writeError{attempt: a, since: now, pause: firstRetry}
	if t != nil && t.attempt == a {
		next.since, next.pause = t.since, min(2*t.pause, lastRetry)
	}
	if isRefused {
		next.again = now.Add(next.pause)
	}
	if isRefused || now.Sub(next.since) >= gracePeriod {
		next.text = text
	}
	return next
}

// policy returns the state of a Policy; empty if the UID differs.
func (m *state) policy(key types.NamespacedName, uid types.UID) *policyState {
	if known, ok := m.Load(key); ok && known.(*policyState).uid == uid {
		return known.(*policyState)
	}
	p := &policyState{uid: uid, templates: map[dependency.Ref]*templateState{}}
	m.Store(key, p)
	return p
}
