// Package lookup finds what the templates of a policy look up, from their text alone.
package lookup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Any is the group and the kind of a Lookup whose kind is computed.
const Any = "*"

// Lookup is one object that templates look up, by name and, if its kind has namespaces, namespace. Without a name it is
// every object of the kind, in all namespaces: the template lists them, or computes the name or the namespace.
type Lookup struct{ Group, Kind, Namespace, Name string }

// Resource returns the resource of the kind by the usual plural, "*" for any kind. A kind with another plural cannot be
// looked up.
func (l Lookup) Resource() string {
	if l.Kind == Any {
		return Any
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: l.Group, Kind: l.Kind})
	return plural.Resource
}

// Covers reports whether a right to get l is one to get an object, or, without a name, all objects of a resource.
func (l Lookup) Covers(resource schema.GroupResource, namespace, name string) bool {
	switch {
	case l.Kind == Any:
		return true
	case l.Group != resource.Group || l.Resource() != resource.Resource:
		return false
	}
	return l.Name == "" || l.Name == name && l.Namespace == namespace
}

// functions are those that look up, with how many of their first arguments say what.
var functions = map[string]struct {
	arguments int
	group     string
	kind      string // "" if the first two arguments are apiVersion and kind
}{
	"lookup":                 {arguments: 4},
	"fromConfigMap":          {arguments: 2, kind: "ConfigMap"},
	"copyConfigMapData":      {arguments: 2, kind: "ConfigMap"},
	"fromClusterClaim":       {arguments: 1, kind: "ClusterClaim", group: "cluster.open-cluster-management.io"},
	"lookupClusterClaim":     {arguments: 1, kind: "ClusterClaim", group: "cluster.open-cluster-management.io"},
	"getNodesWithExactRoles": {kind: "Node"},
	"hasNodesWithExactRoles": {kind: "Node"},
}

// call matches the name of such a function where a template may call it, and the strings that follow it. A name cannot
// be computed, so that every call is found; one in a comment or in other text counts as well.
var call = regexp.MustCompile(`\b(` + strings.Join(slices.Collect(maps.Keys(functions)), "|") + `)((?:\s+"[^"\\]*")*)(?:[\s|,:().}]|$)`)

// literal matches one of the strings.
var literal = regexp.MustCompile(`"([^"]*)"`)

// anything is what a template may look up that is not understood.
var anything = Lookup{Group: Any, Kind: Any}

// Of returns what the template text in a value, as it is encoded in JSON, looks up, sorted and each once.
func Of(value any) []Lookup {
	raw, err := json.Marshal(value)
	if err != nil {
		return []Lookup{anything}
	}
	var decoded any
	if json.Unmarshal(raw, &decoded) != nil {
		return []Lookup{anything}
	}
	// Without escapes. Several strings may be one template, so that not each of them has to have this.
	if plain, err := json.Marshal(decoded); err == nil && !bytes.Contains(plain, []byte("{{")) {
		return nil
	}
	found := map[Lookup]bool{}
	collect(decoded, found)
	return slices.SortedFunc(maps.Keys(found), func(a, b Lookup) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
}

func collect(value any, found map[Lookup]bool) {
	switch value := value.(type) {
	case string:
		if strings.Contains(value, "{{hub") { // a part with hub templates is not resolved
			return
		}
		for _, match := range call.FindAllStringSubmatch(value, -1) {
			var arguments []string
			for _, argument := range literal.FindAllStringSubmatch(match[2], -1) {
				arguments = append(arguments, argument[1])
			}
			found[called(match[1], arguments)] = true
		}
	case []any:
		for _, item := range value {
			collect(item, found)
		}
	case map[string]any:
		for name, item := range value {
			collect(name, found)
			collect(item, found)
		}
	}
}

// called returns what one call looks up, by the arguments that are not computed, up to the first that is.
func called(function string, arguments []string) Lookup {
	f := functions[function]
	if f.kind == "" {
		if len(arguments) < 2 || arguments[0] == "" ||
			len(validation.IsDNS1035Label(strings.ToLower(arguments[1]))) > 0 {
			return anything
		}
		version, err := schema.ParseGroupVersion(arguments[0])
		if err != nil {
			return anything
		}
		f.group, f.kind, arguments, f.arguments = version.Group, arguments[1], arguments[2:], f.arguments-2
	}
	l := Lookup{Group: f.group, Kind: f.kind}
	switch {
	case len(arguments) < f.arguments || f.arguments == 0 || arguments[f.arguments-1] == "":
	case f.arguments == 2:
		l.Namespace, l.Name = arguments[0], arguments[1]
	default:
		l.Name = arguments[0]
	}
	return l
}
