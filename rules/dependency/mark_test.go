package dependency

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/metakey"
)

const markedText = `{"metadata":{"namespace":"shop","name":"db"},"spec":{"disabled":false,"remediationAction":"enforce",
	"policy-templates":[{"objectDefinition":{"apiVersion":"operators.coreos.com/v1","kind":"Constraint","metadata":{"name":"x"},"spec":{"a":"<&>","n":1,"f":1.5}}}],
	"dependencies":[{"kind":"Policy","name":"base","compliance":"Compliant"}]}}`

func markedPolicy(t *testing.T, text string) (*policyv1.Policy, Digest) {
	t.Helper()
	p := &policyv1.Policy{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	digest, err := DigestOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, digest
}

// TestB2MarkIsOfOneSpec: a mark covers only what was verified (threat O21).
func TestB2MarkIsOfOneSpec(t *testing.T) {
	key := []byte("key")
	p, digest := markedPolicy(t, markedText)
	said := Verification{Narrow: []schema.GroupKind{{Group: "b.example.com", Kind: "Zone"},
		{Group: "a.example.com", Kind: "Zone"}, {Group: "b.example.com", Kind: "Zone"}}}
	mark := Sign(key, p, digest, said)
	if _, kinds, _ := strings.Cut(mark, " "); kinds != "Zone.a.example.com Zone.b.example.com" {
		t.Errorf("the mark is %q", mark)
	}
	for _, tc := range []struct {
		name, from, to string
		mark           string
		key            string
		want           bool
	}{
		{name: "the same", want: true},
		{name: "the same, in another order", from: `"apiVersion":"operators.coreos.com/v1","kind":"Constraint"`,
			to: `"kind":"Constraint",  "apiVersion":"operators.coreos.com/v1"`, want: true},
		{name: "the same, written in another way", from: `"<&>","n":1`, to: `"\u003c\u0026\u003e","n":1`, want: true},
		{name: "attack: another name", from: `"db"`, to: `"db2"`},
		{name: "attack: another namespace", from: `"shop"`, to: `"victim"`},
		{name: "attack: a name that swallows the namespace", from: `"namespace":"shop","name":"db"`,
			to: `"namespace":"","name":"shop\" \"db"`},
		{name: "attack: other contents", from: `"f":1.5`, to: `"f":1.6`},
		{name: "attack: enforced instead of reported", from: `"enforce"`, to: `"inform"`},
		{name: "attack: enabled", from: `"disabled":false`, to: `"disabled":true`},
		{name: "attack: another dependency", from: `"base"`, to: `"bass"`},
		{name: "attack: no kinds", mark: strings.Fields(mark)[0]},
		{name: "attack: fewer kinds", mark: strings.Join(strings.Fields(mark)[:2], " ")},
		{name: "attack: another key", key: "another"},
		{name: "attack: nothing", mark: " "},
		{name: "attack: anything", mark: "yes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, digest := markedPolicy(t, strings.Replace(markedText, tc.from, tc.to, 1))
			if p.Annotations = map[string]string{metakey.Verified: mark}; tc.mark != "" {
				p.Annotations[metakey.Verified] = tc.mark
			}
			with := key
			if tc.key != "" {
				with = []byte(tc.key)
			}
			if got, ok := Verify(with, p, digest); ok != tc.want || ok && len(got.Narrow) != 2 {
				t.Errorf("got %v, %v; want %v", got, ok, tc.want)
			}
			if _, ok := Verify(nil, p, digest); ok {
				t.Error("without a key it is valid")
			}
		})
	}
}

// TestA8Covers: dependencies must be verified with the scope that they have on the cluster (threat O22).
func TestA8Covers(t *testing.T) {
	narrow := Verification{Narrow: []schema.GroupKind{{Group: "example.com", Kind: "Zone"}}}
	for _, tc := range []struct {
		name string
		ref  Ref
		want bool
	}{
		{name: "what has a namespace", ref: Ref{Group: "example.com", Kind: "Zone", Namespace: "shop", Name: "x"},
			want: true},
		{name: "what is known to have none", ref: Ref{Group: ConstraintGroup, Kind: KindConstraint, Name: "x"},
			want: true},
		{name: "what turned out to have none, and may be read",
			ref: Ref{Group: "example.com", Kind: "Region", Name: "x"}, want: true},
		{name: "attack: what turned out to have none", ref: Ref{Group: "example.com", Kind: "Zone", Name: "x"}},
		{name: "attack: what should have one", ref: Ref{Group: PolicyGroup, Kind: "BroadPolicy", Name: "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Dependency{Ref: tc.ref}
			if text := narrow.Uncovered(&Template{Dependencies: []*Dependency{&d}}); (text == "") != tc.want {
				t.Errorf("got %q", text)
			}
		})
	}
}
