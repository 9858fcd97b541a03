package lookup

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestI1LookupsAreFound checks that what templates look up is found in their text, that what is not understood counts as
// anything, and what is computed as all that it may be.
func TestI1LookupsAreFound(t *testing.T) {
	configMap := func(namespace, name string) Lookup {
		return Lookup{Kind: "ConfigMap", Namespace: namespace, Name: name}
	}
	anyKind := []Lookup{anything}
	all := []Lookup{configMap("", "")}
	for _, tc := range []struct {
		name, text string
		want       []Lookup
	}{
		{name: "no template", text: "lookup-operator.v1"},
		{name: "a template without lookups", text: `{{ printf "%s" "fromConfigMap" }}`},
		{name: "a hub template, which is not resolved", text: `{{hub fromConfigMap "a" "b" "c" hub}}`},
		{name: "fromConfigMap", text: `{{ fromConfigMap "a" "b" "c" }}`, want: []Lookup{configMap("a", "b")}},
		{name: "in parentheses, with fields", text: `x{{ (lookup "v1" "ConfigMap" "a" "b").data.v | upper }}`,
			want: []Lookup{configMap("a", "b")}},
		{name: "a group", text: `{{ lookup "apps/v1" "Deployment" "a" "b" }}`,
			want: []Lookup{{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "b"}}},
		{name: "a kind without namespaces", text: `{{ lookup "v1" "Node" "" "n" }}`,
			want: []Lookup{{Kind: "Node", Name: "n"}}},
		{name: "a claim", text: `{{ fromClusterClaim "id" }}`,
			want: []Lookup{{Group: "cluster.open-cluster-management.io", Kind: "ClusterClaim", Name: "id"}}},
		{name: "nodes", text: `{{ hasNodesWithExactRoles "infra" }}`, want: []Lookup{{Kind: "Node"}}},
		{name: "the key is piped", text: `{{ "v" | fromConfigMap "a" "b" }}`, want: []Lookup{configMap("a", "b")}},
		{name: "branches and variables",
			text: `{{ if fromConfigMap "a" "b" "c" }}{{ $x := fromConfigMap "a" "d" "c" }}{{ range list 1 }}{{ copyConfigMapData "a" "e" }}` +
				`{{ else }}{{ with fromConfigMap "a" "f" "c" }}{{ end }}{{ end }}{{ end }}`,
			want: []Lookup{configMap("a", "b"), configMap("a", "d"), configMap("a", "e"), configMap("a", "f")}},
		{name: "one in another", text: `{{ fromConfigMap "a" (fromConfigMap "a" "b" "c") "d" }}`,
			want: []Lookup{configMap("", ""), configMap("a", "b")}},
		{name: "attack: a list", text: `{{ lookup "v1" "ConfigMap" "a" "" }}`, want: all},
		{name: "attack: a list by labels", text: `{{ lookup "v1" "ConfigMap" "a" "" "x=y" }}`, want: all},
		{name: "attack: a computed name", text: `{{ fromConfigMap "a" (print "b") "c" }}`, want: all},
		{name: "attack: a computed namespace", text: `{{ $n := "a" }}{{ fromConfigMap $n "b" "c" }}`, want: all},
		{name: "attack: a piped name", text: `{{ "b" | copyConfigMapData "a" }}`, want: all},
		{name: "attack: a computed kind", text: `{{ lookup "v1" (print "Pod") "a" "b" }}`, want: anyKind},
		{name: "attack: a computed version", text: `{{ lookup (print "v1") "Pod" "a" "b" }}`, want: anyKind},
		{name: "attack: every kind", text: `{{ lookup "v1" "*" "a" "b" }}`, want: anyKind},
		{name: "attack: a function as an argument", text: `{{ print lookup }}`, want: anyKind},
		{name: "attack: a name between backquotes", text: "{{ fromConfigMap \"a\" `b` \"c\" }}", want: all},
		{name: "attack: too few arguments", text: `{{ fromConfigMap "a" }}`, want: all},
		{name: "attack: half a template", text: `{{ fromConfigMap $n "b" "c" }}`, want: all},
		{name: "attack: a field of a call without arguments", text: `{{ getNodesWithExactRoles.items }}`, want: []Lookup{{Kind: "Node"}}},
		{name: "attack: deeply nested text",
			text: `{{ fromConfigMap "a" "b" "c" }}` + strings.Repeat("{{ if 1 }}", 8<<10) + `{{ lookup "v1" }}`,
			want: []Lookup{configMap("a", "b"), anything}},
		{name: "attack: define", text: `{{ define "x" }}{{ fromConfigMap "a" "b" "c" }}{{ end }}`,
			want: []Lookup{configMap("a", "b")}},
		{name: "attack: a comment with the end of an action",
			text: `{{/* }} fromConfigMap */}}{{ fromConfigMap "a" "b" "c" }}`,
			want: []Lookup{configMap("", ""), configMap("a", "b")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, value := range []any{tc.text, []string{tc.text},
				map[string]any{"a": map[string]string{tc.text: "b"}}} {
				if diff := cmp.Diff(tc.want, Of(value)); diff != "" {
					t.Errorf("lookups of %v (-want +got):\n%s", value, diff)
				}
			}
		})
	}
}

// TestI1TemplateInParts: a template may begin in another string than it looks up in, and with escapes.
func TestI1TemplateInParts(t *testing.T) {
	for _, value := range []any{[]string{"{{ (", `lookup "v1" "Pod" "a" "b"`, ") }}"},
		json.RawMessage(`["\u007b\u007b (lookup \"v1\" \"Pod\" \"a\" \"b\") }}"]`)} {
		if diff := cmp.Diff([]Lookup{{Kind: "Pod", Namespace: "a", Name: "b"}}, Of(value)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestCovers checks which objects a right covers.
func TestCovers(t *testing.T) {
	configMaps, nodes := schema.GroupResource{Resource: "configmaps"}, schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		name            string
		lookup          Lookup
		resource        schema.GroupResource
		namespace, find string
		want            bool
	}{
		{name: "the object", lookup: Lookup{Kind: "ConfigMap", Namespace: "a", Name: "b"}, resource: configMaps,
			namespace: "a", find: "b", want: true},
		{name: "another name", lookup: Lookup{Kind: "ConfigMap", Namespace: "a", Name: "b"}, resource: configMaps,
			namespace: "a", find: "c"},
		{name: "another namespace", lookup: Lookup{Kind: "ConfigMap", Namespace: "a", Name: "b"}, resource: configMaps,
			namespace: "b", find: "b"},
		{name: "a list", lookup: Lookup{Kind: "ConfigMap", Namespace: "a", Name: "b"}, resource: configMaps,
			namespace: "a"},
		{name: "another kind", lookup: Lookup{Kind: "ConfigMap"}, resource: nodes, find: "b"},
		{name: "another group", lookup: Lookup{Group: "x.io", Kind: "ConfigMap"}, resource: configMaps, namespace: "a",
			find: "b"},
		{name: "all of a kind", lookup: Lookup{Kind: "ConfigMap"}, resource: configMaps, namespace: "a", find: "b",
			want: true},
		{name: "a list of all", lookup: Lookup{Kind: "ConfigMap"}, resource: configMaps, want: true},
		{name: "any kind", lookup: anything, resource: nodes, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.lookup.Covers(tc.resource, tc.namespace, tc.find); got != tc.want {
				t.Errorf("Covers is %v", got)
			}
		})
	}
}
