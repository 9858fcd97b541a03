package change

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// manyRules returns a list of n rules, each made from its number by format.
func manyRules(n int, format func(int) string) string {
	rules := make([]string, n)
	for i := range rules {
		rules[i] = format(i)
	}
	return "[" + strings.Join(rules, ",") + "]"
}

// names returns n quoted names.
func names(prefix string, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%q", fmt.Sprint(prefix, i))
	}
	return strings.Join(list, ",")
}

func TestHostileRules(t *testing.T) {
	secretRule := func(i int) string {
		return fmt.Sprintf(`{"apiGroups":[""],"resources":["secrets"],"resourceNames":["before%d"],"verbs":["get"]}`, i)
	}
	for _, test := range []struct {
		name, before, after string
		// want is a part of the first text, of the first note, or of the Fault.
		want string
	}{
		{
			name:   "5,000 rules, all new, on one resource",
			before: manyRules(5000, secretRule),
			after:  manyRules(5000, func(i int) string { return strings.ReplaceAll(secretRule(i), "before", "after") }),
			want:   "there are too many rules",
		},
		{
			name: "5,000 rules of different resources",
			before: manyRules(5000, func(i int) string {
				return fmt.Sprintf(
					`{"apiGroups":["g"],"resources":["r%d"],"verbs":["get"]}`, i)
			}),
			after: manyRules(5000, func(i int) string {
				return fmt.Sprintf(`{"apiGroups":["g"],"resources":["r%d"],"verbs":["get","list"]}`, i)
			}),
			want: "cluster-wide: list on r0, r1, r10,",
		},
		{
			name:   "5,000 equal rules",
			before: `[]`,
			after:  manyRules(5000, func(int) string { return `{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}` }),
			want:   "cluster-wide: get on pods",
		},
		{
			name:   "one rule with 10^9 combinations",
			before: `[]`,
			after: `[{"apiGroups":[` + names("g", 1000) + `],"resources":[` + names("r", 1000) + `],"verbs":[` +
				names("v", 1000) + `]}]`,
			want: "combinations of verb and resource",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			from := read(t, "a.v1", []json.RawMessage{csvManifest("a.v1", test.before)})
			set := Compare(from, read(t, "a.v2", []json.RawMessage{csvManifest("a.v2", test.after)}))
			if got := set.Fault + strings.Join(set.Notes, "") +
				strings.Join(texts(set), "; "); !strings.Contains(got, test.want) {
				t.Errorf("got %.300q, want %q", got, test.want)
			}
			if len(set.Differences) > maxPerClass*len(classOrder) {
				t.Errorf("%d differences", len(set.Differences))
			}
		})
	}
}

// csvManifest returns a ClusterServiceVersion with cluster-wide rules.
func csvManifest(name, rules string) json.RawMessage {
	return json.RawMessage(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"` + name + `"},
		"spec":{"version":"1.0.0","displayName":"d","install":{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[
		{"serviceAccountName":"operator","rules":` + rules + `}]}}}}`)
}

// definitionManifest returns a CustomResourceDefinition with versions of one schema, all served.
func definitionManifest(schema string, versions ...string) json.RawMessage {
	list := make([]string, len(versions))
	for i, v := range versions {
		list[i] = fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":%s}}`, v, i == 0,
			schema)
	}
	return json.RawMessage(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},"versions":[` + strings.Join(list, ",") + `]}}`)
}

func TestHostileDefinitions(t *testing.T) {
	nested := func(depth int, inner string) string {
		return strings.Repeat(`{"type":"array","items":`, depth) + inner + strings.Repeat("}", depth)
	}
	wide := func(n int, kind string) string {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = fmt.Sprintf(`"f%d":{"type":%q}`, i, kind)
		}
		return `{"type":"object","properties":{` + strings.Join(fields, ",") + `}}`
	}
	manyVersions := make([]string, 40)
	for i := range manyVersions {
		manyVersions[i] = fmt.Sprintf("v%d", i+1)
	}
	for _, test := range []struct {
		name          string
		before, after json.RawMessage
		want          string
	}{
		{
			name:   "a schema that is nested deeper than any is read",
			before: definitionManifest(`{"type":"object"}`, "v1"),
			after:  definitionManifest(nested(5000, `{"type":"string"}`), "v1"),
			want:   "levels deep",
		},
		{
			name:   "a nested schema of 1 MiB",
			before: definitionManifest(nested(110, wide(20000, "string")), "v1"),
			after:  definitionManifest(nested(110, wide(20000, "integer")), "v1"),
			want:   "changes in more places than are compared",
		},
		{
			name:   "a wide schema with another type in each field",
			before: definitionManifest(wide(10000, "string"), "v1"),
			after:  definitionManifest(wide(10000, "integer"), "v1"),
			want:   `things.example.com: v1: f0: type changed: "string" -> "integer"`,
		},
		{
			name:   "forty served versions",
			before: definitionManifest(wide(100, "string"), "v1"),
			after:  definitionManifest(wide(100, "string"), manyVersions...),
			want:   "40 versions are served",
		},
		{
			name:   "a schema that refers to itself",
			before: definitionManifest(`{"type":"object"}`, "v1"),
			after:  definitionManifest(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, "v1"),
			want:   "",
		},
		{
			name:   "no schema at all",
			before: definitionManifest(`{"type":"object"}`, "v1"),
			after:  definitionManifest(`null`, "v1"),
			want:   `things.example.com: v1: the object: type changed: "object" -> ""`,
		},
		{
			name: "fields whose paths look the same",
			before: definitionManifest(
				`{"properties":{"a":{"properties":{"b":{"type":"string"}}},"a.b":{"type":"integer"}}}`, "v1"),
			after: definitionManifest(
				`{"properties":{"a":{"properties":{"b":{"type":"integer"}}},"a.b":{"type":"string"}}}`, "v1"),
			want: `things.example.com: v1: a%2Eb: type changed: "integer" -> "string"; breakingCRDs: things.example.com: v1: a.b: type changed: "string" -> "integer"`,
		},
		{
			name:   "a field with a composition",
			before: definitionManifest(`{"properties":{"a":{"anyOf":[{"type":"string"}],"pattern":"a"}}}`, "v1"),
			after:  definitionManifest(`{"properties":{"a":{"anyOf":[{"type":"string"}],"pattern":"b"}}}`, "v1"),
			want:   `things.example.com: v1: a: changed: pattern`,
		},
		{
			name:   "another API version",
			before: definitionManifest(`{"type":"object"}`, "v1"),
			after: json.RawMessage(strings.Replace(string(definitionManifest(`{}`, "v1")), "k8s.io/v1",
				"k8s.io/v1beta1", 1)),
			want: "is of apiextensions.k8s.io/v1beta1, want apiextensions.k8s.io/v1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := Compare(ReadContents("", "", []json.RawMessage{test.before}),
				ReadContents("", "", []json.RawMessage{test.after}))
			if got := set.Fault + strings.Join(texts(set), "; "); !strings.Contains(got, test.want) {
				t.Errorf("got %.300q, want %q", got, test.want)
			}
		})
	}
}
