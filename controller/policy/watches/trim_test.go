package watches

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func trimmed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return trim(object(t, text))
}

func TestTrim(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"contents go, metadata stays": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","annotations":{"a":"b"},"managedFields":[{"manager":"m"}]},"spec":{"large":"x"},"data":{"d":"e"}}`,
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","annotations":{"a":"b"}}}`},
		"of the status, what tells of compliance": {
			`{"metadata":{},"status":{"compliant":"Compliant","complianceState":"x","history":[{"message":"m","lastTimestamp":"t"},{"message":"before"}],
				"conditions":[{"type":"c"},{"type":"Compliant","status":"True","message":"m"}],"observedGeneration":3,
				"lastEvaluatedGeneration":4,"totalViolations":0,"created":true,"relatedObjects":[{"large":"x"}],"byPod":[]}}`,
			`{"apiVersion":null,"kind":null,"metadata":{},"status":{"compliant":"Compliant","complianceState":"x","history":[{"message":"m"}],
				"conditions":[{"type":"Compliant","status":"True","message":"m"}],
				"observedGeneration":3,"lastEvaluatedGeneration":4,"totalViolations":0,"created":true}}`},
		"a status that is none": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"status":"ready"}`,
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			from := object(t, test.object)
			kept := trim(from)
			if diff := cmp.Diff(object(t, test.want).Object, kept.Object); diff != "" {
				t.Errorf("kept is not what is wanted (-want +got):\n%s", diff)
			}
			// A reflector may trim an object again, while others read it.
			if again := trim(kept); !cmp.Equal(again, kept) {
				t.Errorf("trimmed again it is %v", again)
			}
			if diff := cmp.Diff(object(t, test.object).Object, from.Object); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
}

// TestO23TrimDependency checks that little of a dependency is stored, however large its owner makes it.
func TestO23TrimDependency(t *testing.T) {
	large := strings.Repeat("x", 200_000)
	tests := map[string]struct{ object, want string }{
		"what is read": {
			`{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","namespace":"s","uid":"1","resourceVersion":"7","generation":2,"deletionTimestamp":"2026-11-22T00:00:00Z",
				"labels":{"policy.open-cluster-management.io/policy":"p","other":"l"},"annotations":{"opgate.io/pending":"s/p","other":"LARGE"},"finalizers":["f"],"managedFields":[{"manager":"m"}],
				"ownerReferences":[{"apiVersion":"a/v1","kind":"O","name":"other","uid":"2"},{"apiVersion":"a/v1","kind":"O","name":"o","uid":"3","controller":true}]},
			  "spec":{"large":"LARGE"},
			  "status":{"compliant":"Compliant","observedGeneration":2,"history":[{"message":"now","lastTimestamp":"t"},{"message":"before"}],
				"conditions":[{"type":"Other","message":"LARGE"},{"type":"Compliant","status":"True","reason":"r","message":"m","lastTransitionTime":"t"}],"relatedObjects":["LARGE"]}}`,
			`{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","namespace":"s","uid":"1","resourceVersion":"7","generation":2,"deletionTimestamp":"2026-11-22T00:00:00Z",
				"labels":{"policy.open-cluster-management.io/policy":"p"},"annotations":{"opgate.io/pending":"s/p"},
				"ownerReferences":[{"apiVersion":"a/v1","kind":"O","name":"o","uid":"3","controller":true}]},
			  "status":{"compliant":"Compliant","observedGeneration":2,"history":[{"message":"now"}],
				"conditions":[{"type":"Compliant","status":"True","reason":"r","message":"m"}]}}`},
		"attack: large states, and objects in the place of texts": {
			`{"metadata":{"name":"n","labels":{"policy.open-cluster-management.io/policy":"LARGE"}},"status":{"compliant":"LARGE","complianceState":{"a":"LARGE"},"history":["LARGE"],
				"conditions":["LARGE",{"type":"Compliant","message":"LARGE","status":["LARGE"]}]}}`,
			`{"apiVersion":null,"kind":null,"metadata":{"name":"n","labels":{"policy.open-cluster-management.io/policy":"SHORT"}},
				"status":{"compliant":"SHORT","conditions":[{"type":"Compliant","message":"SHORT"}]}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sized := func(text string) *unstructured.Unstructured {
				return object(t, strings.NewReplacer("LARGE", large, "SHORT", large[:maxKept]).Replace(text))
			}
			kept := trimDependency(sized(test.object))
			if diff := cmp.Diff(sized(test.want).Object, kept.Object); diff != "" {
				t.Errorf("kept is not what is wanted (-want +got):\n%s", diff)
			}
			if again := trimDependency(kept); !cmp.Equal(again, kept) {
				t.Errorf("trimmed again it is %v", again)
			}
		})
	}
}

func TestSame(t *testing.T) {
	const before = `{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","resourceVersion":"1","generation":1},"spec":{"a":1},"status":{"compliant":"Pending","other":1}}`
	tests := map[string]struct {
		now  string
		want bool
	}{
		"another resourceVersion, and what is not kept": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","resourceVersion":"2","generation":1},"spec":{"a":2},"status":{"compliant":"Pending","other":2}}`, true},
		"another generation": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","resourceVersion":"2","generation":2},"status":{"compliant":"Pending"}}`, false},
		"another state": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","resourceVersion":"2","generation":1},"status":{"compliant":"Compliant"}}`, false},
		"another object of that name": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"2","resourceVersion":"2","generation":1},"status":{"compliant":"Pending"}}`, false},
		"a label": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","resourceVersion":"2","generation":1,"labels":{"a":"b"}},"status":{"compliant":"Pending"}}`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := same(trimmed(t, before), trimmed(t, test.now)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if same(nil, trimmed(t, before)) || same(trimmed(t, before), nil) || !same(nil, nil) {
		t.Error("an object passes for none")
	}
}

func TestParentOf(t *testing.T) {
	tests := map[string]struct {
		metadata string
		want     types.NamespacedName
	}{
		"in a namespace": {`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":"p"}}`,
			types.NamespacedName{Namespace: "shop", Name: "p"}},
		"handed to the Policy of another namespace": {
			`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":"p","policy.open-cluster-management.io/cluster-namespace":"other"}}`,
			types.NamespacedName{Namespace: "shop", Name: "p"}},
		"without a namespace": {
			`{"labels":{"policy.open-cluster-management.io/policy":"p","policy.open-cluster-management.io/cluster-namespace":"shop"}}`,
			types.NamespacedName{Namespace: "shop", Name: "p"}},
		"without a namespace, nor one that is said": {`{"labels":{"policy.open-cluster-management.io/policy":"p"}}`,
			types.NamespacedName{}},
		"of no Policy": {`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":""}}`,
			types.NamespacedName{}},
		"no labels": {`{"namespace":"shop"}`, types.NamespacedName{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, `{"metadata":`+test.metadata+`}`)
			got, ok := parentOf(u)
			if ok != (test.want != types.NamespacedName{}) || ok && got != test.want {
				t.Errorf("got %v, %v; want %v", got, ok, test.want)
			}
			if index, err := indexers[byParent](u); err != nil || ok != (len(index) == 1) {
				t.Errorf("indexed by %v, %v", index, err)
			}
		})
	}
}
