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
	// firstRetry and lastRetry bound the backoff of denied writes: RBAC changes cannot be watched.
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
	// cycle reports that the Policy was found to depend on itself.
	cycle bool
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

// attempt is a write with all its inputs: the same attempt has the same result until something else changes.
type attempt struct {
	verb       string
	object     hash
	uid        types.UID
	generation int64
}

// writeError is why a write failed, and when to retry it.
type writeError struct {
	attempt attempt
	text    string
	since   time.Time
	// again is zero for never.
	again time.Time
	pause time.Duration
}

// blocks reports whether a write is the one that failed and its backoff has not expired, and the remaining time; zero
// means no retry.
func (t *writeError) blocks(a attempt, now time.Time) (blocked bool, wait time.Duration) {
	if t == nil || t.attempt != a || t.text == "" {
		return false, 0
	}
	if t.again.IsZero() {
		return true, 0
	}
	return now.Before(t.again), t.again.Sub(now)
}

// next returns the record after a write has failed, perhaps repeatedly.
func (t *writeError) next(a attempt, means outcome, text string, now time.Time) *writeError {
	next := &writeError{attempt: a, since: now, pause: firstRetry}
	if t != nil && t.attempt == a {
		next.since, next.pause = t.since, min(2*t.pause, lastRetry)
	}
	switch means {
	case refused:
		next.text = text
	case denied:
		next.text, next.again = text, now.Add(next.pause)
	case failed:
		if now.Sub(next.since) >= gracePeriod {
			next.text, next.again = text, now // reported, and retried as errors are
		}
	case retried, contested: // nothing to record
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
