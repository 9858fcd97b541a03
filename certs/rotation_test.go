package certs

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"crypto/x509"
)

var (
	start  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	usual  = Lifetimes{CA: 365 * 24 * time.Hour, Leaf: 7 * 24 * time.Hour, Overlap: 10 * time.Minute}
	served = usual.Leaf + usual.Overlap // how long an earlier certificate may be served
)

func newCA(t testing.TB, made time.Time, life time.Duration) *authority {
	t.Helper()
	a, err := newAuthority(made, life)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// anchored returns a state in which the CAs that sign or will sign are anchors.
func anchored(s state) *state {
	for _, a := range []*authority{s.signer, s.next} {
		if a != nil {
			s.add(anchor{cert: a.cert})
		}
	}
	return &s
}

// TestDecide has one decision for each event.
func TestDecide(t *testing.T) {
	a, b, c, fresh := newCA(t, start.Add(-time.Hour), usual.CA), newCA(t, start.Add(-time.Minute), usual.CA),
		newCA(t, start.Add(-time.Minute), usual.CA), newCA(t, start, usual.CA)
	aging := newCA(t, start.Add(-usual.CA*2/3), usual.CA)
	expired := newCA(t, start.Add(-usual.CA), usual.CA)
	future := newCA(t, start.Add(2*time.Hour), usual.CA)
	holding := func(as ...*authority) []*x509.Certificate {
		var certs []*x509.Certificate
		for _, a := range as {
			certs = append(certs, a.cert)
		}
		return certs
	}
	everywhere := func(as ...*authority) [][]*x509.Certificate {
		return [][]*x509.Certificate{holding(as...), holding(as...), holding(as...)}
	}
	retiring := func(s *state, ca *authority, at time.Time) *state {
		s.anchors = append(s.anchors, anchor{cert: ca.cert, retire: at})
		return s
	}
	for name, test := range map[string]struct {
		stored, remembered *state
		registered         [][]*x509.Certificate
		want               *state
		done               string // part of the descriptions
	}{
		"nothing happened": {
			stored: anchored(state{signer: a}), registered: everywhere(a), want: anchored(state{signer: a}),
		},
		"first start": {
			registered: everywhere(), want: anchored(state{next: fresh}), done: "there is none that can sign",
		},
		"first start, caBundles of an earlier installation": {
			registered: everywhere(b), want: retiring(anchored(state{next: fresh}), b, start.Add(served)),
			done: "kept 1 certificates",
		},
		"first start, clients told": {
			stored: anchored(state{next: a}), registered: everywhere(a), want: anchored(state{signer: a}),
			done: "the new CA signs",
		},
		"first start, one client not told": {
			stored: anchored(state{next: b}), registered: [][]*x509.Certificate{holding(b), holding()},
			want: anchored(state{next: b}),
		},
		"first start, one client cannot be told for the time of an overlap": {
			stored: anchored(state{next: a}), registered: [][]*x509.Certificate{holding(a), holding()},
			want: anchored(state{signer: a}), done: "the new CA signs",
		},
		"first start, no webhook configuration yet": {
			stored: anchored(state{next: b}), want: anchored(state{signer: b}), done: "the new CA signs",
		},
		"two thirds of its life are over": {
			stored: anchored(state{signer: aging}), registered: everywhere(aging),
			want: anchored(state{signer: aging, next: fresh}), done: "two thirds",
		},
		"asked for": {
			stored: anchored(state{signer: a, requested: "now"}), registered: everywhere(a),
			want: anchored(state{signer: a, next: fresh, requested: "now", acted: "now"}), done: "asked for",
		},
		"asked for and done": {
			stored: anchored(state{signer: a, requested: "now", acted: "now"}), registered: everywhere(a),
			want: anchored(state{signer: a, requested: "now", acted: "now"}),
		},
		"the request was taken back": {
			stored: anchored(state{signer: a, acted: "now"}), registered: everywhere(a),
			want: anchored(state{signer: a}),
		},
		"asked for again during a rotation": {
			stored: anchored(state{signer: a, next: b, published: start.Add(-time.Minute), requested: "again",
				acted: "now"}), registered: everywhere(a, b),
			want: anchored(state{signer: a, next: b, published: start.Add(-time.Minute), requested: "again",
				acted: "now"}),
		},
		"the last caBundle got the new CA": {
			stored: anchored(state{signer: a, next: b}), registered: everywhere(a, b),
			want: anchored(state{signer: a, next: b, published: start}), done: "all caBundles hold the new CA",
		},
		"the overlap is not over": {
			stored:     anchored(state{signer: a, next: b, published: start.Add(-usual.Overlap + 1)}),
			registered: everywhere(a, b),
			want:       anchored(state{signer: a, next: b, published: start.Add(-usual.Overlap + 1)}),
		},
		"the overlap is over": {
			stored:     anchored(state{signer: a, next: b, published: start.Add(-usual.Overlap)}),
			registered: everywhere(a, b),
			want:       retiring(anchored(state{signer: b}), a, start.Add(served)), done: "the new CA signs",
		},
		"the overlap is over and a caBundle was overwritten": {
			stored:     anchored(state{signer: a, next: b, published: start.Add(-usual.Overlap)}),
			registered: [][]*x509.Certificate{holding(a, b), holding(a)},
			want:       anchored(state{signer: a, next: b}), done: "starts again",
		},
		"the last leader's clock was ahead": {
			stored:     anchored(state{signer: a, next: b, published: start.Add(time.Minute)}),
			registered: everywhere(a, b),
			want:       anchored(state{signer: a, next: b, published: start}), done: "all caBundles hold the new CA",
		},
		"an old CA retires": {
			stored: retiring(anchored(state{signer: a}), b, start), registered: everywhere(a, b),
			want: anchored(state{signer: a}), done: "removed 1",
		},
		"an old CA ends": {
			stored: retiring(anchored(state{signer: a}), expired, start.Add(time.Hour)), registered: everywhere(a),
			want: anchored(state{signer: a}), done: "removed 1",
		},
		"another client added a CA to the bundle": {
			stored: retiring(anchored(state{signer: a}), b, time.Time{}), registered: everywhere(a),
			want: retiring(anchored(state{signer: a}), b, start.Add(served)),
		},
		"the Secret was deleted": {
			remembered: anchored(state{signer: a}), registered: everywhere(a),
			want: anchored(state{signer: a, next: fresh, requested: "restored", acted: "restored"}),
			done: "back into the Secret",
		},
		"the Secret was deleted during a rotation": {
			remembered: anchored(state{signer: a, next: b, published: start.Add(-time.Minute), acted: "now",
				requested: "now"}), registered: everywhere(a, b),
			want: anchored(state{signer: a, next: b, requested: "restored", acted: "now"}),
			done: "back into the Secret",
		},
		"the Secret was deleted and this replica missed the last rotation": {
			remembered: anchored(state{signer: a}), registered: everywhere(a, b),
			want: retiring(anchored(state{signer: a, next: fresh, requested: "restored", acted: "restored"}), b,
				start.Add(served)), done: "kept 1",
		},
		"the Secret was deleted and no replica remembers": {
			registered: everywhere(a), want: retiring(anchored(state{next: fresh}), a, start.Add(served)),
			done: "none that can sign",
		},
		"the Secret was deleted and what is remembered has expired": {
			remembered: anchored(state{signer: expired}), registered: everywhere(expired),
			want: anchored(state{next: fresh}), done: "none that can sign",
		},
		"the CA was damaged": {
			stored:     &state{anchors: anchored(state{signer: a}).anchors, problems: []string{"tls.key"}},
			remembered: anchored(state{signer: a}), registered: everywhere(a),
			want: anchored(state{signer: a, next: fresh, requested: "restored", acted: "restored"}),
			done: "back into the Secret",
		},
		"the CA was damaged during a rotation": {
			stored: &state{next: b, anchors: anchored(state{signer: a, next: b}).anchors,
				published: start.Add(-time.Minute), problems: []string{"tls.key"}},
			remembered: anchored(state{signer: a, next: b}), registered: everywhere(a, b),
			want: anchored(state{signer: a, next: b, published: start, requested: "restored"}),
			done: "back into the Secret",
		},
		"the CA was damaged and no replica remembers": {
			stored:     &state{anchors: anchored(state{signer: a}).anchors, problems: []string{"tls.key"}},
			registered: everywhere(a),
			want:       retiring(anchored(state{next: fresh}), a, start.Add(served)), done: "none that can sign",
		},
		"the next CA was damaged": {
			stored: &state{signer: a, anchors: anchored(state{signer: a, next: b}).anchors, published: start,
				requested: "now", problems: []string{"next.key"}},
			registered: everywhere(a, b),
			want: retiring(anchored(state{signer: a, next: fresh, requested: "now", acted: "now"}), b,
				start.Add(served)), done: "asked for",
		},
		"the bundle lost the CA": {
			stored: &state{signer: a}, remembered: anchored(state{signer: a}), registered: everywhere(a),
			want: anchored(state{signer: a, next: fresh, requested: "restored", acted: "restored"}),
			done: "back into the Secret",
		},
		"the bundle lost the CA and no replica remembers": {
			stored: &state{signer: a}, registered: everywhere(a), want: anchored(state{next: a}),
			done: "once clients trust it",
		},
		"another client put another CA into the Secret and not into the bundle": {
			stored:     retiring(&state{signer: c, anchors: anchored(state{signer: a}).anchors}, b, start.Add(time.Hour)),
			remembered: anchored(state{signer: a}),
			registered: everywhere(a, b),
			want: retiring(anchored(state{signer: a, next: fresh, requested: "restored", acted: "restored"}), b,
				start.Add(time.Hour)),
			done: "back into the Secret",
		},
		"the CA has expired": {
			stored: anchored(state{signer: expired}), registered: everywhere(expired),
			want: anchored(state{next: fresh}), done: "removed a CA",
		},
		"the CA has expired during a rotation": {
			stored:     anchored(state{signer: expired, next: a, published: start.Add(-time.Minute)}),
			registered: everywhere(expired, a),
			want:       anchored(state{signer: a}), done: "the new CA signs",
		},
		"the next CA has expired": {
			stored: anchored(state{signer: a, next: expired}), registered: everywhere(a, expired),
			want: anchored(state{signer: a}),
		},
		"the CA is from the future": {
			stored: anchored(state{signer: future}), registered: everywhere(future),
			want: retiring(anchored(state{next: fresh}), future, start.Add(served)), done: "removed a CA",
		},
		"next and signer are the same": {
			stored: anchored(state{signer: a, next: a}), registered: everywhere(a), want: anchored(state{signer: a}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := &input{now: start, lifetimes: usual, stored: test.stored, remembered: test.remembered,
				registered: test.registered,
				fresh:      func() (*authority, error) { return fresh, nil }}
			got, done, err := decide(in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, &got, test.want)
			if said := strings.Join(done, "; "); !strings.Contains(said, test.done) || test.done == "" && said != "" &&
				!strings.Contains(name, "expired") {
				t.Errorf("it says %q, want %q", said, test.done)
			}
			again, more, err := decide(&input{now: start, lifetimes: usual, stored: roundTrip(t, &got),
				remembered: test.remembered, registered: test.registered, fresh: in.fresh})
			if err != nil {
				t.Fatal(err)
			}
			if promoted := again.signer != nil && again.signer.same(got.next); !promoted && len(more) > 0 &&
				more[0] != "all caBundles hold the new CA" {
				t.Errorf("a second look, with nothing new, does %q", more)
			}
		})
	}
}

func compare(t *testing.T, got, want *state) {
	t.Helper()
	if !got.signer.same(want.signer) || !got.next.same(want.next) {
		t.Errorf("signer %s, next %s; want %s, %s", describe(got.signer), describe(got.next), describe(want.signer),
			describe(want.next))
	}
	for _, a := range want.anchors {
		if i := slices.IndexFunc(got.anchors, func(b anchor) bool { return b.cert.Equal(a.cert) }); i < 0 ||
			!got.anchors[i].retire.Equal(a.retire) {
			t.Errorf("anchor %s, to retire at %s, is not among %v", fingerprint(a.cert), a.retire, got.anchors)
		}
	}
	if len(got.anchors) != len(want.anchors) {
		t.Errorf("%d anchors, want %d", len(got.anchors), len(want.anchors))
	}
	request := func(s string) string { return strings.Split(s, " ")[0] }
	if !got.published.Equal(want.published) || request(got.requested) != want.requested ||
		request(got.acted) != want.acted {
		t.Errorf("published %s, requested %q, acted on %q; want %s, %q, %q", got.published, got.requested, got.acted,
			want.published, want.requested, want.acted)
	}
}

func describe(a *authority) string {
	if a == nil {
		return "none"
	}
	return fingerprint(a.cert)
}

// roundTrip writes a state to a Secret and reads it.
func roundTrip(t *testing.T, s *state) *state {
	t.Helper()
	secret, _, err := encode(s, "opgate-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	return decode(secret)
}

// TestBundleIsBounded keeps those that sign, and of the others those that retire last.
func TestBundleIsBounded(t *testing.T) {
	s := anchored(state{signer: newCA(t, start, usual.CA)})
	for i := range 2 * maxAnchors {
		s.add(anchor{cert: newCA(t, start, usual.CA).cert, retire: start.Add(time.Duration(i+1) * time.Hour)})
	}
	got, _, err := decide(&input{now: start, lifetimes: usual, stored: s})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.anchors) != maxAnchors || !got.signs(start) {
		t.Fatalf("%d anchors, signs: %t", len(got.anchors), got.signs(start))
	}
	if first := got.anchors[maxAnchors-1].retire; first.Before(start.Add((maxAnchors + 2) * time.Hour)) {
		t.Errorf("the first to retire does so at %s", first)
	}
}

// TestNoNewCA changes nothing when no CA can be created.
func TestNoNewCA(t *testing.T) {
	broken := errors.New("no randomness")
	_, _, err := decide(&input{now: start, lifetimes: usual, fresh: func() (*authority, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
}
