package certs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/metakey"
)

// TestSecretKeepsAState writes and reads everything that a state has.
func TestSecretKeepsAState(t *testing.T) {
	old := newCA(t, start, usual.CA)
	s := anchored(state{signer: newCA(t, start, usual.CA), next: newCA(t, start, usual.CA),
		published: start.Add(123456789), requested: "b", acted: "a"})
	s.add(anchor{cert: old.cert, retire: start.Add(time.Hour)})
	secret, changed, err := encode(s, "opgate-system", nil)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	got := decode(secret)
	compare(t, got, s)
	if len(got.problems) > 0 || got.requested != "b" || got.acted != "a" {
		t.Errorf("read %+v", got)
	}
	if _, changed, err = encode(got, "opgate-system", secret); err != nil || changed {
		t.Errorf("what was read is written again: %t, %v", changed, err)
	}
	secret.Data["theirs"], secret.Annotations["theirs"] = []byte("x"), "y"
	got.next = nil
	rest, changed, err := encode(got, "opgate-system", secret)
	if err != nil || !changed || string(rest.Data["theirs"]) != "x" || rest.Annotations["theirs"] != "y" ||
		len(rest.Data[keyNextKey]) > 0 {
		t.Errorf("what others keep in the Secret is lost, or a CA stays that is gone: %v", err)
	}
}

// TestSecretProblems lists what cannot be read, without the data: it could be a key.
func TestSecretProblems(t *testing.T) {
	signer, other := newCA(t, start, usual.CA), newCA(t, start, usual.CA)
	base, _, err := encode(anchored(state{signer: signer, next: other, published: start}), "opgate-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := signer.sign(dynamicTemplate(t), start, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(s *corev1.Secret)
		want   string
		signs  bool
	}{
		"no key": {func(s *corev1.Secret) { delete(s.Data, keySignerKey) },
			"tls.crt and tls.key", false},
		"the key of another": {func(s *corev1.Secret) { s.Data[keySignerKey] = s.Data[keyNextKey] },
			"tls.crt and tls.key", false},
		"key and certificate exchanged": {func(s *corev1.Secret) { s.Data[keySignerCert] = s.Data[keySignerKey] },
			"tls.crt and tls.key", false},
		"a certificate that is not a CA": {func(s *corev1.Secret) {
			s.Data[keyBundle],
				s.Data[keySignerCert] = encodeCert(leaf), encodeCert(leaf)
		}, "tls.crt and tls.key", false},
		"next is garbage": {func(s *corev1.Secret) { s.Data[keyNextCert] = []byte("garbage SECRET") },
			"next.crt and next.key", true},
		"the bundle ends in garbage": {func(s *corev1.Secret) {
			s.Data[keyBundle] = append(s.Data[keyBundle],
				"garbage SECRET"...)
		}, "ca.crt", true},
		"a key in the bundle": {func(s *corev1.Secret) {
			s.Data[keyBundle] = append(s.Data[keyNextKey],
				s.Data[keyBundle]...)
		}, "ca.crt", true},
		"an instant that is none": {func(s *corev1.Secret) { s.Annotations[metakey.NextCAPublished] = "SECRET" },
			metakey.NextCAPublished, true},
		"times that are none": {func(s *corev1.Secret) { s.Annotations[metakey.CARetire] = `{"SECRET":7}` },
			metakey.CARetire, true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := base.DeepCopy()
			test.change(secret)
			s := decode(secret)
			if said := strings.Join(s.problems, "; "); !strings.HasPrefix(said, test.want+": ") ||
				strings.Contains(said, "PRIVATE") {
				t.Errorf("problems are %q, want %q", said, test.want)
			}
			if s.signs(start) != test.signs {
				t.Errorf("it signs: %t", s.signs(start))
			}
		})
	}
}

// FuzzSecret decides on arbitrary content of a Secret, and must end with a CA that signs.
func FuzzSecret(f *testing.F) {
	a, b := newCA(f, start, usual.CA), newCA(f, start, usual.CA)
	good, _, err := encode(anchored(state{signer: a, next: b, published: start}), "opgate-system", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Data[keySignerCert], good.Data[keySignerKey], good.Data[keyBundle], good.Data[keyNextCert],
		good.Data[keyNextKey], "x", "", start.Format(time.RFC3339Nano), `{"aa":"2026-11-21T12:00:00Z"}`)
	f.Add([]byte("garbage"), []byte("-----BEGIN"), []byte{}, []byte{0}, []byte(nil), "", "y", "never", `[`)
	f.Add([]byte{}, []byte{}, bytes.Repeat(good.Data[keySignerCert], 20), []byte{}, []byte{}, "", "", "",
		`{"aa":"9999-12-31T23:59:59Z"}`)
	f.Fuzz(func(t *testing.T, cert, key, bundle, nextCert, nextKey []byte, requested, acted, published, retire string) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metakey.RotateCA: requested,
				metakey.RotatedCA: acted, metakey.NextCAPublished: published, metakey.CARetire: retire}},
			Data: map[string][]byte{keySignerCert: cert, keySignerKey: key, keyBundle: bundle,
				keyNextCert: nextCert, keyNextKey: nextKey},
		}
		for _, remembered := range []*state{nil, anchored(state{signer: a})} {
			current := secret
			for range 3 {
				wanted, _, err := decide(&input{now: start, lifetimes: usual, stored: decode(current),
					remembered: remembered,
					fresh:      func() (*authority, error) { return newAuthority(start, usual.CA) }})
				if err != nil {
					t.Fatal(err)
				}
				if current, _, err = encode(&wanted, "opgate-system", current); err != nil {
					t.Fatal(err)
				}
			}
			s := decode(current)
			if !s.signs(start) || len(s.problems) > 0 || len(s.anchors) > maxAnchors {
				t.Fatalf("it ends with %+v", s)
			}
			if wanted, done, err := decide(&input{now: start, lifetimes: usual, stored: s,
				remembered: remembered}); err != nil {
				t.Fatal(err)
			} else if _, changed, err := encode(&wanted, "opgate-system", current); err != nil || changed {
				t.Fatalf("it does not come to rest: %q %v", done, err)
			}
		}
	})
}
