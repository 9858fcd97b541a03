// Package reference writes a page with every field of Opgate's kinds, from their definitions.
package reference

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/manifests/crd"
)

// Path is the page, from the root of the repository.
const Path = "docs/reference.md"

// kinds are the definitions, in the order of the page.
var kinds = []string{
	"policy.open-cluster-management.io_operatorpolicies", "operators.coreos.com_constraints",
	"policy.open-cluster-management.io_policies", "policy.open-cluster-management.io_policysets",
}

const head = `# Reference of fields

Every field of Opgate's kinds, as their definitions have it: ` + "`make generate`" + ` writes this page. A field in bold is required where its parent is set. ` +
	"`kubectl explain`" + ` shows the
same. For OperatorPolicy this is ` + "`v1beta2`" + `; [conversion.md](conversion.md) has what ` + "`v1beta1`" + ` calls these fields.
`

// Write writes the page into a checkout.
func Write(root string) error {
	text, err := Page()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(Path)), text, 0o644) //nolint:gosec // a source file
}

// Page returns the page.
func Page() ([]byte, error) {
	var b strings.Builder
	b.WriteString(head)
	for _, name := range kinds {
		data, err := crd.Definitions.ReadFile(name + ".yaml")
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		spec := definition.Spec
		for _, v := range spec.Versions {
			if !v.Storage {
				continue
			}
			schema := v.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n`%s/%s`, %s. %s\n\n| Field | Type | Meaning |\n|---|---|---|\n", spec.Names.Kind,
				spec.Group, v.Name, strings.ToLower(string(spec.Scope)), line(schema.Description))
			fields(&b, "spec", schema.Properties["spec"])
			fields(&b, "status", schema.Properties["status"])
		}
	}
	return []byte(b.String()), nil
}

// fields writes a row for each field below a path, in alphabetical order.
func fields(b *strings.Builder, path string, schema apiextensionsv1.JSONSchemaProps) {
	if schema.Items != nil && schema.Items.Schema != nil {
		path, schema = path+"[]", *schema.Items.Schema
	} else if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		path, schema = path+".*", *schema.AdditionalProperties.Schema
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		title := "`" + path + "." + name + "`"
		if slices.Contains(schema.Required, name) {
			title = "**" + title + "**"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", title, typeOf(field), meaning(field))
		fields(b, path+"."+name, field)
	}
}

// typeOf returns the type of a field in words.
func typeOf(field apiextensionsv1.JSONSchemaProps) string {
	switch {
	case field.XIntOrString:
		return "integer or string"
	case field.Items != nil && field.Items.Schema != nil:
		return "list of " + typeOf(*field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*field.AdditionalProperties.Schema)
	case field.Format == "date-time":
		return "time"
	case field.Type == "":
		return "any"
	}
	return field.Type
}

// meaning returns the description of a field, with its values and its default.
func meaning(field apiextensionsv1.JSONSchemaProps) string {
	text := line(field.Description)
	var values []string
	for _, value := range field.Enum {
		values = append(values, "`"+string(value.Raw)+"`")
	}
	if len(values) > 0 {
		text += " One of " + strings.Join(values, ", ") + "."
	}
	if field.Default != nil {
		text += " Default: `" + string(field.Default.Raw) + "`."
	}
	return strings.TrimSpace(text)
}

// line returns a description as one line of a table.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}
