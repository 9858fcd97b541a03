package watches

import (
	"encoding/json"
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
	kept, err := trim(object(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return kept.(*unstructured.Unstructured)
}

func TestTrim(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"contents go, metadata stays": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","annotations":{"a":"b"},"managedFields":[{"manager":"m"}]},"spec":{"large":"x"},"data":{"d":"e"}}`,
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"1","annotations":{"a":"b"}}}`},
		"of the status, what tells of compliance": {
			`{"metadata":{},"status":{"compliant":"Compliant","complianceState":"x","history":[{"message":"m"}],"conditions":[{"type":"c"}],"observedGeneration":3,
				"lastEvaluatedGeneration":4,"totalViolations":0,"created":true,"relatedObjects":[{"large":"x"}],"byPod":[]}}`,
			`{"apiVersion":null,"kind":null,"metadata":{},"status":{"compliant":"Compliant","complianceState":"x","history":[{"message":"m"}],"conditions":[{"type":"c"}],
				"observedGeneration":3,"lastEvaluatedGeneration":4,"totalViolations":0,"created":true}}`},
		"a status that is none": {
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"status":"ready"}`,
			`{"apiVersion":"v1","kind":"K","metadata":{"name":"n"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			from := object(t, test.object)
			kept, err := trim(from)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, test.want).Object, kept.(*unstructured.Unstructured).Object); diff != "" {
				t.Errorf("kept is not what is wanted (-want +got):\n%s", diff)
			}
			// An informer may trim what it has trimmed, while others read it.
			if again, err := trim(kept); err != nil || !cmp.Equal(again, kept) {
				t.Errorf("trimmed again it is %v, %v", again, err)
			}
			if diff := cmp.Diff(object(t, test.object).Object, from.Object); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
	if kept, err := trim("tombstone"); kept != "tombstone" || err != nil {
		t.Errorf("got %v, %v", kept, err)
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
		"in a namespace": {`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":"p"}}`, types.NamespacedName{Namespace: "shop", Name: "p"}},
		"handed to the Policy of another namespace": {
			`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":"p","policy.open-cluster-management.io/cluster-namespace":"other"}}`,
			types.NamespacedName{Namespace: "shop", Name: "p"}},
		"without a namespace": {
			`{"labels":{"policy.open-cluster-management.io/policy":"p","policy.open-cluster-management.io/cluster-namespace":"shop"}}`,
			types.NamespacedName{Namespace: "shop", Name: "p"}},
		"without a namespace, nor one that is said": {`{"labels":{"policy.open-cluster-management.io/policy":"p"}}`, types.NamespacedName{}},
		"of no Policy": {`{"namespace":"shop","labels":{"policy.open-cluster-management.io/policy":""}}`, types.NamespacedName{}},
		"no labels":    {`{"namespace":"shop"}`, types.NamespacedName{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, `{"metadata":`+test.metadata+`}`)
			got, ok := parentOf(u)
			if ok != (test.want != types.NamespacedName{}) || ok && got != test.want {
				t.Errorf("got %v, %v; want %v", got, ok, test.want)
			}
			if index, err := indexParent(u); err != nil || ok != (len(index) == 1) {
				t.Errorf("indexed by %v, %v", index, err)
			}
		})
	}
}
