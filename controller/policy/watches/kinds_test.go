package watches

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// crd is a CustomResourceDefinition of a kind of example.com with versions, each as "<name>", "<name> served",
// "<name> stored" or "<name> served stored".
func crd(kind string, change func(map[string]any), versions ...string) *snapshot.Definition {
	return (&Options{}).definition(definitionObject(kind, change, versions...))
}

func definitionObject(kind string, change func(map[string]any), versions ...string) *snapshot.Object {
	object := map[string]any{
		"metadata": map[string]any{"name": "widgets.example.com", "uid": "1", "resourceVersion": "7"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"kind": kind, "plural": "widgets"},
			"versions": versionList(versions)},
		"status": map[string]any{
			"acceptedNames": map[string]any{"kind": kind, "plural": "widgets"},
			"conditions": []any{map[string]any{"type": "NamesAccepted", "status": "True"},
				map[string]any{"type": "Established", "status": "True"}}},
	}
	if change != nil {
		change(object)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var reader snapshot.Reader
	return reader.Read(snapshot.CustomResourceDefinitions, raw)
}

func versionList(versions []string) []any {
	var list []any
	for _, v := range versions {
		var name, a, b string
		_, _ = fmt.Sscan(v, &name, &a, &b) // omitted parts stay empty
		list = append(list, map[string]any{"name": name, "served": a == "served",
			"storage": a == "stored" || b == "stored"})
	}
	return list
}

func set(value any, fields ...string) func(map[string]any) {
	return func(object map[string]any) {
		if err := unstructured.SetNestedField(object, value, fields...); err != nil {
			panic(err)
		}
	}
}

func TestKindsReplace(t *testing.T) {
	var (
		widget = schema.GroupKind{Group: "example.com", Kind: "Widget"}
		gadget = schema.GroupKind{Group: "example.com", Kind: "Gadget"}
		one    = crd("Widget", nil, "v1 served stored")
		same   = crd("Widget", set("8", "metadata", "resourceVersion"), "v1 served stored")
		two    = crd("Widget", nil, "v1 served stored", "v2 served")
		reborn = crd("Widget", set("2", "metadata", "uid"), "v1 served stored")
		broken = crd("Widget", func(o map[string]any) { delete(o["status"].(map[string]any), "conditions") },
			"v1 served stored")
		renamed      = crd("Gadget", nil, "v1 served stored")
		anotherOfOne = crd("Widget", set("others.example.com", "metadata", "name"), "v1 served stored")
	)
	anotherOfOne.Metadata.UID = "9"
	type event struct {
		old, now *snapshot.Definition
		changed  []schema.GroupKind
	}
	tests := map[string]struct {
		events []event
		want   *snapshot.Definition // of Widget
	}{
		"comes and goes": {[]event{{nil, one, []schema.GroupKind{widget}}, {one, nil, []schema.GroupKind{widget}}},
			nil},
		"nothing has changed": {[]event{{nil, one, []schema.GroupKind{widget}}, {one, same, nil}}, same},
		"a version more": {[]event{{nil, one, []schema.GroupKind{widget}}, {one, two, []schema.GroupKind{widget}}},
			two},
		"gone and back between two looks": {
			[]event{{nil, one, []schema.GroupKind{widget}}, {one, reborn, []schema.GroupKind{widget}}}, reborn},
		"not established yet": {[]event{{nil, broken, nil}, {broken, one, []schema.GroupKind{widget}}}, one},
		"no longer established": {[]event{{nil, one, []schema.GroupKind{widget}},
			{one, broken, []schema.GroupKind{widget}}}, nil},
		"never established": {[]event{{nil, broken, nil}, {broken, nil, nil}}, nil},
		"another kind": {[]event{{nil, one, []schema.GroupKind{widget}},
			{one, renamed, []schema.GroupKind{widget, gadget}}}, nil},
		"its successor is first": {[]event{{nil, one, []schema.GroupKind{widget}},
			{nil, anotherOfOne, []schema.GroupKind{widget}}, {one, nil, nil}}, anotherOfOne},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := kinds{}
			for i, e := range test.events {
				if changed := k.replace(e.old, e.now); !slices.Equal(changed, e.changed) {
					t.Errorf("event %d changed %v, want %v", i, changed, e.changed)
				}
			}
			if got := k[widget]; got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	of := func(group, kind string, label string) *snapshot.Object {
		return definitionObject(kind, func(o map[string]any) {
			set(group, "spec", "group")(o)
			set(kind+"."+group, "metadata", "name")(o)
			if label != "" {
				set(label, "metadata", "labels", metakey.PolicyType)(o)
			}
		}, "v1 served stored")
	}
	for gatekeeper, want := range map[bool][]string{
		false: {"Config", "Cert"},
		true:  {"K8sRequired", "Config", "Cert", "ConstraintTemplate"},
	} {
		w := New(Options{Gatekeeper: gatekeeper})
		for _, d := range []*snapshot.Object{of("a.example.com", "Plain", ""),
			of("z.example.com", "Cert", "template"), of("example.com", "Config", "template"),
			of("templates.gatekeeper.sh", "ConstraintTemplate", ""),
			of("constraints.gatekeeper.sh", "K8sRequired", "template")} {
			w.Define(nil, d)
		}
		var got []string
		for _, kind := range w.Templates() {
			got = append(got, kind.Kind)
			if !w.Lookup(kind.Group, kind.Kind).Template {
				t.Errorf("%s is listed as a kind of templates, and is none alone", kind.Kind)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("gatekeeper %v: got %v, want %v", gatekeeper, got, want)
		}
	}
}

func TestSubject(t *testing.T) {
	widget := func(version, namespace string) watchKey {
		return watchKey{resource: schema.GroupVersionResource{Group: "example.com", Version: version,
			Resource: "widgets"}, namespaced: true,
			namespace: namespace, definition: "1"}
	}
	bound := watchKey{resource: widget("v1", "").resource, definition: "1"}
	tests := map[string]struct {
		definition *snapshot.Definition
		want       watchKey
		right      string
	}{
		"as it is stored": {crd("Widget", nil, "v1 served stored", "v2 served"), widget("v1", "shop"),
			"list and watch widgets.example.com in namespace shop"},
		"stored in one not served": {crd("Widget", nil, "v1 served", "v2 stored"), widget("v1", "shop"),
			"list and watch widgets.example.com in namespace shop"},
		"without namespaces": {crd("Widget", set("Cluster", "spec", "scope"), "v1 served stored"), bound,
			"list and watch widgets.example.com"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := keyOf(test.definition, "shop")
			if got != test.want || got.right() != test.right {
				t.Errorf("got %+v (%s), want %+v (%s)", got, got.right(), test.want, test.right)
			}
		})
	}
	if got := keyOf(crd("Widget", nil, "v1 served stored"), "").right(); got != "list and watch widgets.example.com in all namespaces" {
		t.Errorf("got %q", got)
	}
}

func TestNotServed(t *testing.T) {
	wanted := Target{Ref: dependency.Ref{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "a"}, Version: "v3"}
	for want, versions := range map[string][]string{
		"Widget.example.com is not served in v3, served is v1":      {"v1"},
		"Widget.example.com is not served in v3, served are v2, v1": {"v2", "v1"},
	} {
		if got := notServed(wanted, versions); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestA2Shares deletes an older Policy, and a newer one takes its watches, of which it is notified.
func TestA2Shares(t *testing.T) {
	var notified []string
	w := New(Options{Notify: func(owner types.NamespacedName) { notified = append(notified, owner.Name) }})
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	var last Target
	for i, policy := range []string{"four", "three", "two", "one"} { // the oldest is the last that is read
		var targets []Target
		for j := range 12 {
			targets = append(targets, Target{Ref: dependency.Ref{Group: "example.com", Kind: "Widget",
				Namespace: fmt.Sprintf("%s-%02d", policy, j), Name: "x"}})
		}
		if i == 0 {
			last = targets[11]
		}
		w.Set(name(policy), at.Add(-time.Duration(i)*time.Minute), targets)
	}
	if got := w.Observe(name("four"), last); got.Reason != dependency.TooMany || got.Detail != tooManyText {
		t.Errorf("the fourth is %+v", got)
	}
	if got := w.Observe(name("one"), last); got.Reason == dependency.TooMany {
		t.Errorf("of another Policy it is %+v", got)
	}
	if !slices.Equal(notified, []string{"four"}) {
		t.Errorf("notified are %v", notified)
	}
	w.Set(name("one"), time.Time{}, nil)
	if got := w.Observe(name("four"), last); got.Reason == dependency.TooMany {
		t.Errorf("given back, the fourth is %+v", got)
	}
	if !slices.Equal(notified, []string{"four", "four"}) {
		t.Errorf("notified are %v", notified)
	}
	for _, policy := range []string{"two", "three", "four"} {
		w.Set(name(policy), time.Time{}, nil)
	}
	if len(w.owners)+len(w.beyond) > 0 {
		t.Errorf("left behind are %v, beyond %v", w.owners, w.beyond)
	}
}
