package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// mostAnchors bounds the bundle, so that many rotations in a short time do not make it grow without end.
const mostAnchors = 16

// Lifetimes are how long certificates live.
type Lifetimes struct {
	// CA is how long a CA lives; it is rotated at two thirds of that. Default: a year.
	CA time.Duration
	// Leaf is how long a serving certificate lives; it is renewed at two thirds of that. Default: a week.
	Leaf time.Duration
	// Overlap is how long a new CA must have been in every caBundle before it signs: the time in which every
	// API server and every replica must have seen a change. Default: ten minutes.
	Overlap time.Duration
}

// state is what the Secret holds.
type state struct {
	// signer signs; next will once every client has had the time to learn of it. Nil where there is none that
	// can be used. A signer that is not among the anchors does not count: clients were not told to trust it.
	signer, next *authority
	// anchors are the certificates that clients must trust.
	anchors []anchor
	// published is since when all caBundles hold next; zero while they do not.
	published time.Time
	// requested is the last request to rotate the CA, acted the last that a rotation has begun for.
	requested, acted string
	// problems are what cannot be read, as whole sentences.
	problems []string
}

// anchor is a certificate that clients must trust.
type anchor struct {
	cert *x509.Certificate
	// retire is when nothing that it signed is served any more; zero for a CA that signs or is going to.
	retire time.Time
}

// input is what a decision is made from.
type input struct {
	now       time.Time
	lifetimes Lifetimes
	// stored is what the Secret holds, nil without a Secret.
	stored *state
	// remembered is the last that this replica could sign with, nil if there was none since it started.
	remembered *state
	// registered are the certificates in each caBundle that there is.
	registered [][]*x509.Certificate
	// fresh makes a new CA.
	fresh func() (*authority, error)
}

// decision is the state in the making.
type decision struct {
	*input
	state
	err error
}

// rotation is what happens to a CA, in the order in which it is looked at. Each step says what it did, if it did
// something.
var rotation = []func(*decision) string{
	restore,   // a Secret that was deleted or damaged gets back what this replica remembers
	drop,      // what cannot sign is not kept for signing
	adopt,     // after damage, clients go on trusting what they trust
	begin,     // a rotation begins
	publish,   // the time runs while all caBundles hold the new CA
	promote,   // the new CA signs
	settle,    // everything that signs is an anchor, everything else has a time to retire
	retire,    // anchors go
	acquiesce, // a request that was taken back may be made again
}

// decide gives the state that the Secret should hold now, and what was done to get there.
func decide(in *input) (state, []string, error) {
	d := &decision{input: in}
	if in.stored != nil {
		d.state = in.stored.clone()
	}
	var done []string
	for _, step := range rotation {
		if what := step(d); what != "" {
			done = append(done, what)
		}
		if d.err != nil {
			return state{}, nil, d.err
		}
	}
	d.problems = nil
	return d.state, done, nil
}

func (s *state) clone() state {
	c := *s
	c.anchors = slices.Clone(s.anchors)
	return c
}

// signs tells whether serving certificates can be signed with a state.
func (s *state) signs(now time.Time) bool {
	return s != nil && s.signer.valid(now) && s.trusts(s.signer.cert)
}

// trusts tells whether a certificate is an anchor.
func (s *state) trusts(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.anchors, func(a anchor) bool { return a.cert.Equal(cert) })
}

// add makes a certificate an anchor unless it is one.
func (s *state) add(a anchor) {
	if !s.trusts(a.cert) {
		s.anchors = append(s.anchors, a)
	}
}

// lastServed is when the last certificate is gone that was signed before now. A replica learns of a new signer
// within the overlap.
func (d *decision) lastServed() time.Time { return d.now.Add(d.lifetimes.Leaf + d.lifetimes.Overlap) }

func restore(d *decision) string {
	if d.stored.signs(d.now) || !d.remembered.signs(d.now) {
		return ""
	}
	if d.stored != nil && d.signer.same(d.remembered.signer) {
		d.add(anchor{cert: d.signer.cert})
		return "put the CA back into the bundle that it was missing from"
	}
	lost := d.remembered.clone()
	if d.stored != nil && d.next.valid(d.now) { // the rotation goes on
		lost.next, lost.published, lost.requested, lost.acted = d.next, d.published, d.requested, d.acted
	} else {
		// Whoever takes the CA away means to be rid of it. As a request this outlives the leader.
		lost.requested = "restored at " + d.now.UTC().Format(time.RFC3339Nano)
	}
	for _, a := range d.anchors {
		lost.add(a)
	}
	d.state = lost
	return "wrote the CA in use back into the Secret"
}

func drop(d *decision) string {
	var done string
	switch {
	case d.signer == nil:
	case !d.signer.valid(d.now):
		done = fmt.Sprintf("gave up a CA that was valid from %s to %s", d.signer.cert.NotBefore.Format(time.RFC3339), d.signer.cert.NotAfter.Format(time.RFC3339))
		d.signer = nil
	case !d.trusts(d.signer.cert):
		done = "a CA that is not in the bundle signs when clients have been told to trust it"
		d.signer, d.next, d.published = nil, d.signer, time.Time{}
	}
	if d.next != nil && (!d.next.valid(d.now) || d.next.same(d.signer)) {
		d.next, d.published = nil, time.Time{}
	}
	return done
}

func adopt(d *decision) string {
	// A new CA with nothing before it was stored together with what was adopted then.
	lost := d.signer == nil && (d.next == nil || d.stored == nil || d.stored.signer != nil)
	if d.stored != nil && !lost && len(d.problems) == 0 {
		return ""
	}
	adopted := 0
	for _, bundle := range d.registered {
		for _, cert := range bundle {
			if d.now.Before(cert.NotAfter) && !d.trusts(cert) {
				d.add(anchor{cert: cert, retire: d.lastServed()})
				adopted++
			}
		}
	}
	if adopted == 0 {
		return ""
	}
	return fmt.Sprintf("kept %d certificates that the caBundles hold", adopted)
}

func begin(d *decision) string {
	var reason string
	switch {
	case d.next != nil:
		return ""
	case d.signer == nil:
		reason = "there is none that can sign"
	case !d.now.Before(d.signer.rotateAt()):
		reason = "it has lived two thirds of its life"
	case d.requested != "" && d.requested != d.acted:
		reason = "it was asked for"
	default:
		return ""
	}
	next, err := d.fresh()
	if err != nil {
		d.err = err
		return ""
	}
	d.next, d.published, d.acted = next, time.Time{}, d.requested
	return "made a new CA, since " + reason
}

// held tells whether each caBundle that there is holds the next CA.
func (d *decision) held() bool {
	for _, bundle := range d.registered {
		if !slices.ContainsFunc(bundle, d.next.cert.Equal) {
			return false
		}
	}
	return true
}

func publish(d *decision) string {
	switch {
	case d.next == nil, d.stored == nil || !d.stored.next.same(d.next): // it was made a moment ago
		d.published = time.Time{}
	case !d.held():
		lost := !d.published.IsZero()
		d.published = time.Time{}
		if lost {
			return "a caBundle has lost the new CA, the time of the overlap begins anew"
		}
	case d.published.IsZero(), d.published.After(d.now): // the latter by a leader whose clock is ahead
		d.published = d.now
		return "all caBundles hold the new CA"
	}
	return ""
}

func promote(d *decision) string {
	if d.next == nil || d.stored == nil || !d.stored.next.same(d.next) {
		return ""
	}
	if d.signer == nil {
		// Nothing to overlap with. It still helps that clients are told first: replicas go on with the
		// certificates that they have. But when they cannot be told, waiting does not help.
		if d.published.IsZero() && d.now.Before(d.next.made().Add(d.lifetimes.Overlap)) {
			return ""
		}
	} else {
		if d.published.IsZero() || d.now.Before(d.published.Add(d.lifetimes.Overlap)) {
			return ""
		}
		for i, a := range d.anchors {
			if a.cert.Equal(d.signer.cert) {
				d.anchors[i].retire = d.lastServed()
			}
		}
	}
	d.signer, d.next, d.published = d.next, nil, time.Time{}
	return "the new CA signs"
}

func settle(d *decision) string {
	for _, a := range []*authority{d.signer, d.next} {
		if a != nil {
			d.add(anchor{cert: a.cert})
		}
	}
	for i, a := range d.anchors {
		switch {
		case d.needs(a):
			d.anchors[i].retire = time.Time{}
		case a.retire.IsZero():
			d.anchors[i].retire = d.lastServed()
		}
	}
	return ""
}

// needs tells whether an anchor signs or is going to.
func (s *state) needs(a anchor) bool {
	return s.signer != nil && a.cert.Equal(s.signer.cert) || s.next != nil && a.cert.Equal(s.next.cert)
}

func retire(d *decision) string {
	before := len(d.anchors)
	d.anchors = slices.DeleteFunc(d.anchors, func(a anchor) bool {
		return !d.needs(a) && (!d.now.Before(a.retire) || !d.now.Before(a.cert.NotAfter))
	})
	// Those that sign come first, then those that stay longest.
	slices.SortStableFunc(d.anchors, func(a, b anchor) int {
		switch {
		case a.retire.IsZero() && b.retire.IsZero():
			return a.cert.NotAfter.Compare(b.cert.NotAfter)
		case a.retire.IsZero():
			return -1
		case b.retire.IsZero():
			return 1
		default:
			return b.retire.Compare(a.retire)
		}
	})
	d.anchors = d.anchors[:min(len(d.anchors), mostAnchors)]
	if gone := before - len(d.anchors); gone > 0 {
		return fmt.Sprintf("removed %d certificates from the bundle that nothing needs any more", gone)
	}
	return ""
}

func acquiesce(d *decision) string {
	if d.requested == "" {
		d.acted = ""
	}
	return ""
}

// wake gives the next instant at which time alone makes a difference; zero if there is none.
func (s *state) wake(now time.Time, l Lifetimes) time.Time {
	var first time.Time
	at := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if s.signer != nil {
		at(s.signer.rotateAt())
		at(s.signer.cert.NotAfter)
	}
	if s.next != nil {
		at(s.next.cert.NotAfter)
		if !s.published.IsZero() {
			at(s.published.Add(l.Overlap))
		} else if s.signer == nil {
			at(s.next.made().Add(l.Overlap))
		}
	}
	for _, a := range s.anchors {
		at(a.retire)
		if !s.needs(a) {
			at(a.cert.NotAfter)
		}
	}
	return first
}
