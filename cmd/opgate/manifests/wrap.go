package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
)

const kindConfigurationPolicy = "ConfigurationPolicy"

// wrapped reads the objects in an object of another kind, which carries them to clusters: in SyncSets, ManifestWorks,
// ConfigurationPolicies, Templates of OpenShift, Objects of Crossplane, and whatever else holds an object as such.
func (l *loader) wrapped(d document, h *head, from origin) {
	group := groupOf(h.apiVersion)
	if h.kind == "ApplicationSet" && group == groupArgo {
		l.in.recognised(d.Place, "what ApplicationSet "+text.Name(nameOf(d.raw))+" makes")
	}
	var object map[string]any
	if !mayHold(d.raw) || kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &object) != nil {
		return
	}
	if h.kind == "Template" && object["objects"] != nil {
		object = withParameters(d.raw, object)
	}
	where := from
	where.top, where.deploy, where.again, where.apiVersion, where.kind = false, nil, false, "", ""
	where.depth, where.foreign, where.wrapped = from.depth+1, true, true
	via := ", in " + text.Name(h.kind) + " " + text.Name(nameOf(d.raw))
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			if h.kind == kindConfigurationPolicy && value["complianceType"] != nil {
				if kind, _ := value["complianceType"].(string); strings.EqualFold(kind, "mustnothave") {
					return // it removes what it describes
				}
			}
			if path != "" && isObject(value) {
				l.inner(d, path, via, value, where)
				return
			}
			for _, name := range slices.Sorted(maps.Keys(value)) {
				walk(joinPath(path, name), value[name])
			}
		case []any:
			for i, element := range value {
				walk(fmt.Sprintf("%s[%d]", path, i), element)
			}
		case string:
			if kind := manifestText.FindStringSubmatch(value); kind != nil {
				l.in.recognised(d.at(d.tree.line(path, d.Line)), kind[1]+" in a text, "+text.Escape(path)+via)
			}
		}
	}
	if h.kind == kindConfigurationPolicy {
		where.partial = true
		if spec, ok := object["spec"].(map[string]any); ok {
			if action, _ := spec["remediationAction"].(string); !strings.EqualFold(action, "enforce") {
				via += ", which only informs"
			}
		}
	}
	walk("", object)
}

// inner reads an object that was found at a path in another one.
func (l *loader) inner(d document, path, via string, value map[string]any, from origin) {
	if from.depth > maxLists {
		l.fault(d, []fieldFault{{path: path, text: fmt.Sprintf("%s is an object in more than %d others", path, maxLists)}}, nil)
		return
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return // it was decoded from JSON
	}
	inner := document{Place: d.at(d.tree.line(path, d.Line)), raw: raw, tree: d.tree.within(path)}
	inner.Via = via + d.Via
	l.value(inner, from)
}

// isObject reports whether a value is an object and not a reference to one.
func isObject(value map[string]any) bool {
	version, _ := value["apiVersion"].(string)
	kind, _ := value["kind"].(string)
	for _, name := range []string{"metadata", "spec", "items", "objects"} {
		switch value[name].(type) {
		case map[string]any, []any:
			return version != "" && kind != ""
		}
	}
	return false
}

// manifestText finds a manifest of a kind that is judged in a text.
var manifestText = regexp.MustCompile(`(?:^|[\s\\n{,])-?\s*\\?"?kind\\?"?:\s*["'\\]*(OperatorPolicy|PolicySet|Constraint|` +
	`Subscription|InstallPlan|CatalogSource|OperatorGroup|ClusterExtension|ClusterCatalog)\b`)

var parameter = regexp.MustCompile(`\$\{(\w+)\}|"\$\{\{(\w+)\}\}"`)

// withParameters replaces the parameters of a Template that have values.
func withParameters(raw []byte, object map[string]any) map[string]any {
	var t struct {
		Parameters []struct{ Name, Value string }
	}
	if json.Unmarshal(raw, &t) != nil || len(t.Parameters) == 0 {
		return object
	}
	values := map[string]string{}
	for _, p := range t.Parameters {
		if p.Value != "" {
			values[p.Name] = p.Value
		}
	}
	replaced := parameter.ReplaceAllFunc(raw, func(found []byte) []byte {
		m := parameter.FindSubmatch(found)
		value, ok := values[string(m[1])+string(m[2])]
		quoted, err := json.Marshal(value)
		switch {
		case !ok || err != nil:
			return found
		case len(m[2]) > 0:
			return []byte(value)
		}
		return quoted[1 : len(quoted)-1]
	})
	var with map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(replaced, &with) != nil {
		return object
	}
	return with
}

// opensUnresolved begins what another program replaces before an object is applied.
var opensUnresolved = words{"{{", "${", "{%"}

// unresolved returns the first field by which an object is judged that another program has to resolve. OperatorPolicies
// have templates of their own.
func unresolved(raw []byte) string {
	if !opensUnresolved.Match(raw) {
		return ""
	}
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return ""
	}
	for _, path := range []string{"metadata.name", "metadata.namespace", "spec.name", "spec.channel", "spec.source",
		"spec.sourceNamespace", "spec.startingCSV", "spec.installPlanApproval", "spec.namespace", "spec.sourceType",
		"spec.image", "spec.address"} {
		part, name, _ := strings.Cut(path, ".")
		fields, _ := object[part].(map[string]any)
		if value, ok := fields[name].(string); ok && opensUnresolved.Match([]byte(value)) {
			return path
		}
	}
	return ""
}
