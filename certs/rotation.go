package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// maxAnchors bounds the bundle, so that it does not grow without limit when rotations are frequent.
const maxAnchors = 16

// Lifetimes are the durations of certificates.
type Lifetimes struct {
	// CA is the lifetime of a CA; it is rotated at two thirds of that. Default: a year.
	CA time.Duration
	// Leaf is the lifetime of a serving certificate; it is renewed at two thirds of that. Default: a week.
	Leaf time.Duration
	// Overlap is how long a new CA must be in every caBundle before it signs: the time in which every API server and
	// every replica must have observed a change. Default: ten minutes.
	Overlap time.Duration
}

// state is the content of the Secret.
type state struct {
	// signer is the CA that signs, next the one that will sign once every client trusts it; nil where there is none
	// that is usable. A signer that is not among the anchors does not count: clients do not trust it.
	signer, next *authority
	// anchors are the certificates that clients must trust.
	anchors []anchor
	// published is since when all caBundles contain next; zero while they do not.
	published time.Time
	// requested is the last request to rotate the CA, acted the last one for which a rotation was started.
	requested, acted string
	// problems describe what cannot be read.
	problems []string
}

// anchor is a certificate that clients must trust.
type anchor struct {
	cert *x509.Certificate
	// retire is when nothing that it signed is served any more; zero for a CA that signs or will sign.
	retire time.Time
}

// input is everything that a decision depends on.
type input struct {
	now       time.Time
	lifetimes Lifetimes
	// stored is the content of the Secret, nil without a Secret.
	stored *state
	// remembered is the last state with which this replica could sign, nil if there was none since it started.
	remembered *state
	// registered are the certificates in each existing caBundle.
	registered [][]*x509.Certificate
	// fresh returns a new CA.
	fresh func() (*authority, error)
}

// decision is the desired state while it is computed.
type decision struct {
	*input
	state
	err error
}

// rotation are the steps of a decision, in order. Each returns a description of what it changed, "" for nothing.
var rotation = []func(*decision) string{
	restore,            // restores a Secret that was deleted or damaged from memory
	drop,               // removes CAs that cannot sign
	adopt,              // keeps what clients trust where the Secret has no CA, as after certificates of another source
	begin,              // starts a rotation
	publish,            // records since when all caBundles contain the new CA
	promote,            // makes the new CA sign
	scheduleRetirement, // adds what signs to the anchors and sets when the others retire
	retire,             // removes retired anchors
	clearRequest,       // lets a request that was withdrawn be made again
}

// decide returns the desired state of the Secret, and descriptions of what changed.
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

// signs reports whether serving certificates can be signed with a state.
func (s *state) signs(now time.Time) bool {
	return s != nil && s.signer.valid(now) && s.trusts(s.signer.cert)
}

// trusts reports whether a certificate is an anchor.
func (s *state) trusts(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.anchors, func(a anchor) bool { return a.cert.Equal(cert) })
}

// add adds an anchor unless its certificate is one already.
func (s *state) add(a anchor) {
	if !s.trusts(a.cert) {
		s.anchors = append(s.anchors, a)
	}
}

// lastServed returns when no certificate that was signed before now is served any more. A replica observes a new signer
// within the overlap.
func (d *decision) lastServed() time.Time { return d.now.Add(d.lifetimes.Leaf + d.lifetimes.Overlap) }

func restore(d *decision) string {
	if d.stored.signs(d.now) || !d.remembered.signs(d.now) {
		return ""
	}
	kept := d.anchors
	d.state = d.remembered.clone()
	for _, a := range kept {
		d.add(a)
	}
	// A user who deletes the CA wants another one. As a request this survives a change of the leader.
	d.requested = "restored at " + d.now.UTC().Format(time.RFC3339Nano)
	return "wrote the CA in use back into the Secret"
}

func drop(d *decision) string {
	var done string
	switch {
	case d.signer == nil:
	case !d.signer.valid(d.now):
		done = fmt.Sprintf("removed a CA that was valid from %s to %s",
			d.signer.cert.NotBefore.Format(time.RFC3339), d.signer.cert.NotAfter.Format(time.RFC3339))
		d.signer = nil
	case !d.trusts(d.signer.cert):
		done = "a CA that is not in the bundle signs once clients trust it"
		d.signer, d.next, d.published = nil, d.signer, time.Time{}
	}
	if d.next != nil && (!d.next.valid(d.now) || d.next.same(d.signer)) {
		d.next, d.published = nil, time.Time{}
	}
	return done
}

func adopt(d *decision) string {
	if d.stored != nil && d.signer != nil {
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

// inAllBundles reports whether every existing caBundle contains the next CA.
func (d *decision) inAllBundles() bool {
	return !slices.ContainsFunc(d.registered,
		func(bundle []*x509.Certificate) bool { return !slices.ContainsFunc(bundle, d.next.cert.Equal) })
}

func publish(d *decision) string {
	switch {
	case d.next == nil, d.stored == nil || !d.stored.next.same(d.next): // it is not stored yet
		d.published = time.Time{}
	case !d.inAllBundles():
		lost := !d.published.IsZero()
		d.published = time.Time{}
		if lost {
			return "a caBundle has lost the new CA, the overlap starts again"
		}
	case d.published.IsZero(), d.published.After(d.now): // the latter if a leader's clock was ahead
		d.published = d.now
		return "all caBundles hold the new CA"
	}
	return ""
}

func promote(d *decision) string {
	if d.next == nil || d.stored == nil || !d.stored.next.same(d.next) {
		return ""
	}
	switch {
	case d.signer != nil:
		if d.published.IsZero() || d.now.Before(d.published.Add(d.lifetimes.Overlap)) {
			return ""
		}
	// There is nothing to overlap with. Publishing first still helps, since replicas continue to serve the certificates
	// that they have. If it cannot be published within the overlap, waiting longer does not help.
	case d.published.IsZero() && d.now.Before(d.next.made().Add(d.lifetimes.Overlap)):
		return ""
	}
	d.signer, d.next, d.published = d.next, nil, time.Time{}
	return "the new CA signs"
}

func scheduleRetirement(d *decision) string {
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

// needs reports whether an anchor signs or will sign.
func (s *state) needs(a anchor) bool {
	return s.signer != nil && a.cert.Equal(s.signer.cert) || s.next != nil && a.cert.Equal(s.next.cert)
}

func retire(d *decision) string {
	before := len(d.anchors)
	d.anchors = slices.DeleteFunc(d.anchors, func(a anchor) bool {
		return !d.needs(a) && (!d.now.Before(a.retire) || !d.now.Before(a.cert.NotAfter))
	})
	slices.SortStableFunc(d.anchors, func(a, b anchor) int { // those that sign first, then those that retire last
		if a.retire.IsZero() || b.retire.IsZero() {
			return a.retire.Compare(b.retire)
		}
		return b.retire.Compare(a.retire)
	})
	d.anchors = d.anchors[:min(len(d.anchors), maxAnchors)]
	if gone := before - len(d.anchors); gone > 0 {
		return fmt.Sprintf("removed %d certificates from the bundle that nothing needs", gone)
	}
	return ""
}

func clearRequest(d *decision) string {
	if d.requested == "" {
		d.acted = ""
	}
	return ""
}
