package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/stable"
	"github.com/opgate/opgate/manifests/crd"
	"github.com/opgate/opgate/rules"
)

// TestStableNames compares fields, rules, metrics, alerts and values of the chart with their lists in docs/stability.
// Those of the commands are compared by their tests.
func TestStableNames(t *testing.T) {
	for file, names := range map[string][]string{
		"fields.txt":  fields(t),
		"rules.txt":   ruleIDs(),
		"metrics.txt": metrics(t),
		"alerts.txt":  alerts(t),
		"values.txt":  values(t),
	} {
		stable.Compare(t, path.Join("stability", file), names, *update)
	}
	page := document(t, "stability.md")
	lists, err := os.ReadDir("stability")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		if !strings.Contains(page, "](stability/"+list.Name()+")") {
			t.Errorf("stability.md does not link %s", list.Name())
		}
	}
}

// fields returns every field of the definitions, by kind and version, with its type and its values where these are
// listed.
func fields(t *testing.T) (names []string) {
	t.Helper()
	files, err := crd.Definitions.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := crd.Definitions.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, definition); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			names = append(names, fieldsOf(definition.Spec.Names.Kind+" "+version.Name+" ", "", schema)...)
		}
	}
	return names
}

func fieldsOf(kind, at string, schema *apiextensionsv1.JSONSchemaProps) (names []string) {
	for name, property := range schema.Properties {
		below := strings.TrimPrefix(at+"."+name, ".")
		if at == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		line := kind + below
		if property.Type != "" {
			line += " " + property.Type
		}
		if slices.Contains(schema.Required, name) {
			line += " required"
		}
		var allowed []string
		for _, value := range property.Enum {
			allowed = append(allowed, string(value.Raw))
		}
		if len(allowed) > 0 {
			line += " one of " + strings.Join(allowed, ", ")
		}
		names = append(append(names, line), fieldsOf(kind, below, &property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		names = append(names, fieldsOf(kind, at+"[]", schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		names = append(names, fieldsOf(kind, at+".*", schema.AdditionalProperties.Schema)...)
	}
	return names
}

// ruleIDs returns the IDs of all rules.
func ruleIDs() (names []string) {
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		names = append(names, string(r.ID))
	}
	return names
}

// metrics returns the rows of metrics.md, which a test of the server compares with what is registered: name, type and
// labels.
func metrics(t *testing.T) (names []string) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `((?:opgate|cluster)_\\w+)` \\| (\\w+) \\| (.*?) \\| (?:\\w*) \\| ")
	for _, m := range row.FindAllStringSubmatch(document(t, "metrics.md"), -1) {
		names = append(names, strings.TrimSpace(m[1]+" "+m[2]+" "+strings.NewReplacer("`", "", ",", "").Replace(m[3])))
	}
	return names
}

// alerts returns the names and severities of the alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert  string
				Labels map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(document(t, "../manifests/chart/opgate/files/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" { // else it records
				names = append(names, rule.Alert+" "+rule.Labels["severity"])
			}
		}
	}
	return names
}

// values returns the values of the chart with their defaults.
func values(t *testing.T) (names []string) {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(document(t, "../manifests/chart/opgate/values.yaml")), &tree); err != nil {
		t.Fatal(err)
	}
	var visit func(at string, value any)
	visit = func(at string, value any) {
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			for name, v := range below {
				visit(strings.TrimPrefix(at+"."+name, "."), v)
			}
			return
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s = %s", at, encoded))
	}
	visit("", tree)
	return names
}
