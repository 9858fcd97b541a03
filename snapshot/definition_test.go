package snapshot

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

// definedVersion is a version of a CustomResourceDefinition.
func definedVersion(name string, served, stored bool) map[string]any {
	return map[string]any{"name": name, "served": served, "storage": stored}
}

func TestDefinition(t *testing.T) {
	set := func(value any, fields ...string) func(map[string]any) {
		return func(object map[string]any) {
			if err := unstructured.SetNestedField(object, value, fields...); err != nil {
				panic(err)
			}
		}
	}
	one := []any{definedVersion("v1", true, true)}
	for _, test := range []struct {
		name     string
		versions []any
		change   func(map[string]any)
		want     func(*Definition)
	}{
		{name: "one version", versions: one},
		{
			name: "versions are ordered by stability",
			versions: []any{definedVersion("v1beta1", true, false), definedVersion("v10", true, false),
				definedVersion("v1", true, true), definedVersion("v2", true, false)},
			want: func(d *Definition) { d.Versions = []string{"v10", "v2", "v1", "v1beta1"} },
		},
		{
			name:     "the stored version is not served",
			versions: []any{definedVersion("v1", true, false), definedVersion("v2", false, true)},
			want:     func(d *Definition) { d.Storage = "v2" },
		},
		{
			name:     "no version is served",
			versions: []any{definedVersion("v1", false, true)},
			want:     func(d *Definition) { d.Versions, d.Established = nil, false },
		},
		{
			name:     "cluster-scoped",
			versions: one,
			change:   set("Cluster", "spec", "scope"),
			want:     func(d *Definition) { d.Namespaced = false },
		},
		{
			name:     "a kind for templates",
			versions: one,
			change:   set("template", "metadata", "labels", metakey.PolicyType),
			want:     func(d *Definition) { d.Template = true },
		},
		{name: "another value of the label", versions: one,
			change: set("other", "metadata", "labels", metakey.PolicyType)},
		{name: "names that are not accepted do not count", versions: one,
			change: set("Taken", "spec", "names", "kind")},
		{
			name:     "nothing is accepted yet",
			versions: one,
			change:   func(o map[string]any) { delete(o, "status") },
			want:     func(d *Definition) { d.Established = false },
		},
		{
			name:     "not established",
			versions: one,
			change:   set([]any{map[string]any{"type": "Established", "status": "False"}}, "status", "conditions"),
			want:     func(d *Definition) { d.Established = false },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			names := map[string]any{"kind": "Widget", "plural": "widgets"}
			object := map[string]any{
				"metadata": map[string]any{"name": "widgets.example.com"},
				"spec": map[string]any{"group": "example.com", "scope": "Namespaced",
					"names": map[string]any{"kind": "Widget", "plural": "widgets"}, "versions": test.versions},
				"status": map[string]any{"acceptedNames": names,
					"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
			}
			if test.change != nil {
				test.change(object)
			}
			want := &Definition{Metadata: olm.ObjectMeta{Name: "widgets.example.com"}, Group: "example.com", Kind: "Widget", Plural: "widgets", Versions: []string{"v1"},
				Storage: "v1", Namespaced: true, Established: true, Annotations: sha256.Sum256([]byte("null"))}
			if test.want != nil {
				test.want(want)
			}
			raw, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			var reader Reader
			if got := reader.Read(CustomResourceDefinitions, raw).Definition(); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestDefinitionAnnotated has an annotation added to a definition that has others: subscribers are notified of it, and
// of nothing else that is not stored.
func TestDefinitionAnnotated(t *testing.T) {
	var reader Reader
	read := func(metadata string) *Object {
		return reader.Read(CustomResourceDefinitions,
			[]byte(`{"metadata":{"name":"widgets.example.com",`+metadata+`},"spec":{"group":"example.com"}}`))
	}
	var b Builder
	last := read(`"resourceVersion":"1","annotations":{"a":"b","c":"d"}`)
	b.build(time.Time{}, []event{{now: last}})
	for _, c := range []struct {
		metadata string
		notified int
	}{
		{metadata: `"resourceVersion":"2","annotations":{"c":"d","a":"b"},"managedFields":[{}]`},
		{metadata: `"resourceVersion":"3","annotations":{"a":"b","c":"d","example.com/note":"granted"}`, notified: 1},
		{metadata: `"resourceVersion":"4","annotations":{"a":"b","c":"d"}`, notified: 1},
	} {
		now := read(c.metadata)
		if _, change := b.build(time.Time{}, []event{{old: last, now: now}}); len(change.Objects) != c.notified {
			t.Errorf("%s: %d objects changed, want %d", c.metadata, len(change.Objects), c.notified)
		}
		last = now
	}
}
