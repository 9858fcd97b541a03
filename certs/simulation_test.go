package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/metakey"
)

// simulation is a cluster with a simulated clock. The Secret and the caBundles are those that the code writes; replicas
// and clients observe them later, within the overlap.
type simulation struct {
	t         testing.TB
	now       time.Time
	lifetimes Lifetimes
	schedule  func(n int) int // the next choice, 0 to n-1
	trace     []string

	secrets  []version // all that were stored, the current one last
	bundles  [3][]publication
	replicas [3]simulated
	leader   int
	key      *ecdsa.PrivateKey // of all leaves
	verified map[string]bool
}

// version is a Secret from an instant on; nil for none.
type version struct {
	at     time.Time
	secret *corev1.Secret
}

// publication is a caBundle from an instant on.
type publication struct {
	at     time.Time
	bundle []byte
	ours   bool
}

// simulated is a replica.
type simulated struct {
	seen   int // of secrets
	memory *state
	leaf   *x509.Certificate
}

func (w *simulation) stored() *corev1.Secret { return w.secrets[len(w.secrets)-1].secret }

func (w *simulation) logf(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("Jan 02 15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// see makes a replica observe one more version of the Secret.
func (w *simulation) see(i int) {
	r := &w.replicas[i]
	if r.seen == len(w.secrets)-1 {
		return
	}
	r.seen++
	if s := decode(w.secrets[r.seen].secret); s.signs(w.now) {
		rotated := r.memory == nil || !r.memory.signer.same(s.signer)
		if r.memory = s; rotated {
			w.sign(i)
		}
	}
}

// sign issues a new leaf for a replica, if its CA can sign.
func (w *simulation) sign(i int) {
	r := &w.replicas[i]
	if r.memory == nil {
		return
	}
	if leaf, err := r.memory.signer.sign(&x509.Certificate{PublicKey: w.key.Public(),
		DNSNames: dnsNames("opgate-system")}, w.now, w.lifetimes.Leaf); err == nil {
		r.leaf = leaf
	}
}

// step makes one write of the leader, as reconcile.go does, and reports whether there was one.
func (w *simulation) step() bool {
	for w.replicas[w.leader].seen < len(w.secrets)-1 {
		w.see(w.leader)
	}
	current := w.stored()
	in := &input{now: w.now, lifetimes: w.lifetimes, stored: decode(current), remembered: w.replicas[w.leader].memory,
		fresh: func() (*authority, error) { return newAuthority(w.now, w.lifetimes.CA) }}
	for _, published := range w.bundles {
		certs, _ := decodeBundle(published[len(published)-1].bundle)
		in.registered = append(in.registered, certs)
	}
	wanted, done, err := decide(in)
	if err != nil {
		w.t.Fatal(err)
	}
	secret, changed, err := encode(&wanted, "opgate-system", current)
	if err != nil {
		w.t.Fatal(err)
	}
	if changed {
		w.logf("replica %d: %q", w.leader, done)
		w.secrets = append(w.secrets, version{w.now, secret})
		return true
	}
	first := w.schedule(3)
	for i := range w.bundles {
		o := (first + i) % 3
		if last := w.bundles[o][len(w.bundles[o])-1]; !bytes.Equal(last.bundle, current.Data[keyBundle]) {
			w.logf("replica %d publishes to object %d", w.leader, o)
			w.bundles[o] = append(w.bundles[o], publication{w.now, current.Data[keyBundle], true})
			return true
		}
	}
	return false
}

// writeAll makes the writes of the leader until there is none.
func (w *simulation) writeAll() {
	for range 100 {
		if !w.step() {
			return
		}
	}
	w.fail("the leader does not stop writing")
}

// pass advances the clock. Replicas observe writes within the overlap, and certificates are renewed.
func (w *simulation) pass(d time.Duration, led bool) {
	for end := w.now.Add(d); w.now.Before(end); {
		next := end
		sooner := func(t time.Time) {
			if t.After(w.now) && t.Before(next) {
				next = t
			}
		}
		for i, r := range w.replicas {
			if r.seen < len(w.secrets)-1 {
				sooner(w.secrets[r.seen+1].at.Add(w.lifetimes.Overlap - time.Millisecond))
			}
			if r.leaf != nil {
				sooner(w.renewAt(i))
			}
		}
		if s := decode(w.stored()); s != nil && led {
			sooner(s.nextCheck(w.now, w.lifetimes))
		}
		w.now = next
		for i := range w.replicas {
			for r := &w.replicas[i]; r.seen < len(w.secrets)-1 &&
				!w.now.Before(w.secrets[r.seen+1].at.Add(w.lifetimes.Overlap-time.Millisecond)); {
				w.see(i)
			}
			if w.replicas[i].leaf != nil && !w.now.Before(w.renewAt(i)) {
				w.sign(i)
			}
		}
		if led {
			w.writeAll()
		}
		w.check()
	}
}

// renewAt returns when DynamicSource renews a leaf.
func (w *simulation) renewAt(i int) time.Time {
	leaf := w.replicas[i].leaf
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// check asserts the property: a client that trusts any of our caBundles that was in place within the overlap accepts
// the certificate of every replica, even with a clock that is wrong by five minutes.
func (w *simulation) check() {
	for _, published := range w.bundles {
		for o, p := range published {
			if until := w.now; p.ours && len(p.bundle) > 0 {
				if o+1 < len(published) {
					until = published[o+1].at
				}
				if w.now.Sub(until) >= w.lifetimes.Overlap {
					continue
				}
				for i, r := range w.replicas {
					if r.leaf != nil {
						w.accepts(i, p.bundle, r.leaf)
					}
				}
			}
		}
	}
}

const skew = 5 * time.Minute

func (w *simulation) accepts(replica int, bundle []byte, leaf *x509.Certificate) {
	if w.now.Add(-skew).Before(leaf.NotBefore) || w.now.Add(skew).After(leaf.NotAfter) {
		w.fail("replica %d serves a certificate that is valid from %s to %s", replica, leaf.NotBefore, leaf.NotAfter)
	}
	// other leaves of that CA differ in their validity only, which is checked above
	once := string(bundle) + string(leaf.AuthorityKeyId)
	if w.verified[once] {
		return
	}
	w.verified[once] = true
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, clock := range []time.Duration{-skew, skew} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serviceName + ".opgate-system.svc",
			CurrentTime: w.now.Add(clock)}); err != nil {
			w.fail("a client does not trust replica %d: %v", replica, err)
		}
	}
}

func (w *simulation) fail(format string, args ...any) {
	w.t.Helper()
	w.logf(format, args...)
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		w.t.Log(line)
	}
	w.t.FailNow()
}

// edit changes the stored Secret as a user would.
func (w *simulation) edit(what string, change func(*corev1.Secret)) {
	if w.stored() == nil {
		return
	}
	w.logf("user: %s", what)
	secret := w.stored().DeepCopy()
	change(secret)
	w.secrets = append(w.secrets, version{w.now, secret})
}

// happenings are what can happen, frequent ones more than once. All replicas never lose the CA at the same time: then
// nothing can overlap.
var happenings = []func(w *simulation){
	func(w *simulation) { w.step() }, func(w *simulation) { w.step() }, func(w *simulation) { w.step() },
	func(w *simulation) { w.see(w.schedule(3)) }, func(w *simulation) { w.see(w.schedule(3)) },
	func(w *simulation) { w.sign(w.schedule(3)) },
	func(w *simulation) { w.writeAll() },
	func(w *simulation) { // no replica leads for a while
		w.pass(w.lifetimes.Overlap*time.Duration(1+w.schedule(8))/4, false)
	},
	func(w *simulation) { w.pass(w.lifetimes.Overlap*time.Duration(1+w.schedule(8))/4, true) },
	func(w *simulation) { w.pass(w.lifetimes.Leaf*time.Duration(1+w.schedule(8))/8, true) },
	func(w *simulation) { w.pass(w.lifetimes.CA*time.Duration(1+w.schedule(3))/4, true) },
	func(w *simulation) {
		w.leader = w.schedule(3)
		w.logf("replica %d leads", w.leader)
	},
	func(w *simulation) {
		w.edit("asks for a rotation",
			func(s *corev1.Secret) { s.Annotations[metakey.RotateCA] = fmt.Sprint(len(w.secrets)) })
	},
	func(w *simulation) {
		w.logf("user: deletes the Secret")
		w.secrets = append(w.secrets, version{w.now, nil})
	},
	func(w *simulation) {
		key := []string{keySignerCert, keySignerKey, keyNextCert, keyNextKey, keyBundle}[w.schedule(5)]
		w.edit("garbage in "+key, func(s *corev1.Secret) { s.Data[key] = []byte("garbage") })
	},
	func(w *simulation) {
		key := []string{metakey.NextCAPublished, metakey.CARetire, metakey.RotatedCA}[w.schedule(3)]
		w.edit("garbage in "+key, func(s *corev1.Secret) { s.Annotations[key] = "garbage" })
	},
	func(w *simulation) {
		o := w.schedule(3)
		w.logf("user: empties caBundle of object %d", o)
		w.bundles[o] = append(w.bundles[o], publication{w.now, nil, false})
	},
	func(w *simulation) { // while it works, clients must have time to trust the next one
		o := w.schedule(3)
		bundle := w.bundles[o][w.schedule(len(w.bundles[o]))].bundle
		works := decode(w.stored()) != nil
		for i := range w.replicas {
			certs, _ := decodeBundle(bundle)
			works = works && slices.ContainsFunc(certs,
				func(c *x509.Certificate) bool { return w.replicas[i].leaf.CheckSignatureFrom(c) == nil }) &&
				slices.ContainsFunc(certs, decode(w.stored()).signerCert().Equal)
		}
		w.logf("user: puts an earlier caBundle into object %d, which works: %t", o, works)
		w.bundles[o] = append(w.bundles[o], publication{w.now, bundle, works})
	},
}

// signerCert returns the certificate that signs, an empty one for none.
func (s *state) signerCert() *x509.Certificate {
	if s == nil || s.signer == nil {
		return &x509.Certificate{}
	}
	return s.signer.cert
}

func simulate(t testing.TB, steps int, schedule func(n int) int) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &simulation{t: t, now: start, schedule: schedule, key: key, verified: map[string]bool{},
		secrets:   []version{{start, nil}},
		lifetimes: Lifetimes{CA: 12 * 24 * time.Hour, Leaf: 24 * time.Hour, Overlap: 10 * time.Minute}}
	for o := range w.bundles {
		w.bundles[o] = []publication{{at: start}}
	}
	w.writeAll()
	w.pass(w.lifetimes.Overlap, true) // all replicas have observed the first CA
	for range steps {
		happenings[schedule(len(happenings))](w)
		w.check()
	}
	// In the end nothing is written any more.
	w.pass(w.lifetimes.CA/2, true)
	w.pass(4*w.lifetimes.Overlap, true)
	s := decode(w.stored())
	if s == nil || !s.signs(w.now) || len(s.problems) > 0 || s.requested != "" && s.requested != s.acted {
		w.fail("the Secret still changes: %+v", s)
	}
	for i, r := range w.replicas {
		if !r.memory.signer.same(s.signer) || r.leaf.CheckSignatureFrom(s.signer.cert) != nil {
			w.fail("replica %d is left behind", i)
		}
	}
	for o := range w.bundles {
		if last := w.bundles[o][len(w.bundles[o])-1]; !bytes.Equal(last.bundle, w.stored().Data[keyBundle]) {
			w.fail("object %d is left behind", o)
		}
	}
}

// TestG21Rotations runs what can happen in many orders.
func TestG21Rotations(t *testing.T) {
	const steps = 60
	for seed := range uint64(cases.Of(40*steps) / steps) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := mathrand.New(mathrand.NewPCG(seed, 0))
			simulate(t, steps, random.IntN)
		})
	}
}

// FuzzG21Rotations looks for an order that breaks the property.
func FuzzG21Rotations(f *testing.F) {
	f.Add([]byte{12, 0, 13, 0, 0, 7, 3})
	f.Fuzz(func(t *testing.T, order []byte) {
		order = order[:min(len(order), 200)]
		steps := len(order)
		simulate(t, steps, func(n int) int {
			if len(order) == 0 {
				return 0
			}
			choice := order[0]
			order = order[1:]
			return int(choice) % n
		})
	})
}

// TestG21OneRotation follows one rotation step by step: when what is written, and who signs meanwhile.
func TestG21OneRotation(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &simulation{t: t, now: start, schedule: func(int) int { return 0 }, key: key, verified: map[string]bool{},
		secrets: []version{{start, nil}}, lifetimes: usual}
	for o := range w.bundles {
		w.bundles[o] = []publication{{at: start}}
	}
	w.writeAll()
	w.pass(usual.Overlap, true)
	first := decode(w.stored()).signer
	w.edit("asks for a rotation", func(s *corev1.Secret) { s.Annotations[metakey.RotateCA] = "now" })

	w.step()
	s := decode(w.stored())
	if s.next == nil || !s.signer.same(first) || len(s.anchors) != 2 {
		w.fail("after the first step: %+v", s)
	}
	second := s.next
	for o := range w.bundles {
		if !s.published.IsZero() {
			w.fail("%d of three caBundles are enough", o)
		}
		w.step()
		s = decode(w.stored())
	}
	w.step()
	if s = decode(w.stored()); !s.published.Equal(w.now) || !s.signer.same(first) {
		w.fail("when all caBundles hold it: %+v", s)
	}
	w.pass(usual.Overlap-time.Second, true)
	if s = decode(w.stored()); !s.signer.same(first) {
		w.fail("it signs before the overlap is over")
	}
	w.pass(time.Second, true)
	if s = decode(w.stored()); !s.signer.same(second) || s.next != nil || !s.trusts(first.cert) {
		w.fail("after the overlap: %+v", s)
	}
	w.pass(served-time.Second, true)
	if s = decode(w.stored()); !s.trusts(first.cert) {
		w.fail("the old CA leaves while something that it signed may be served")
	}
	w.pass(2*time.Second, true)
	if s = decode(w.stored()); s.trusts(first.cert) || len(s.anchors) != 1 {
		w.fail("the old CA stays: %+v", s)
	}
	if last := w.bundles[0][len(w.bundles[0])-1]; !bytes.Equal(last.bundle, encodeCert(second.cert)) {
		w.fail("the caBundles keep the old CA")
	}
	if !slices.ContainsFunc(w.trace,
		func(line string) bool { return bytes.Contains([]byte(line), []byte("removed 1")) }) {
		w.fail("the removal was not described")
	}
}

// nextCheck returns the next instant at which time alone changes a decision; zero if there is none. The leader decides
// more often.
func (s *state) nextCheck(now time.Time, l Lifetimes) time.Time {
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
