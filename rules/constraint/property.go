package constraint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Property types with the Kubernetes version, which OLM does not define.
const (
	typeK8s         = "olm.k8s"
	typeK8sVersion  = "olm.k8sversion"
	typeKubeVersion = "olm.kubeversion"
)

// automaticTypes are the properties with the Kubernetes version that a Set adds to the cluster.
var automaticTypes = []string{typeK8s, typeKubeVersion}

func hasType(properties []olm.Property, propertyType string) bool {
	return slices.ContainsFunc(properties, func(p olm.Property) bool { return p.Type == propertyType })
}

// properties reads spec.properties and spec.offers: any type with any value, but a known type must be well-formed,
// since OLM's resolver silently skips one that is not.
func (d *Definition) properties(spec *constraintv1.ConstraintSpec, found *faults) {
	add := func(of *document, e element) {
		if of.wellFormed(e) {
			d.Properties = append(d.Properties, olm.Property{Type: e.kind, Raw: of.raw(e.value)})
		}
	}
	text := &document{text: spec.Properties, path: "spec.properties", faults: found}
	for _, e := range text.elements(maxProperties, "any JSON value is accepted") {
		add(text, e)
	}
	if !found.room("spec.offers", text.length, len(spec.Offers), maxProperties) {
		return
	}
	for i := range spec.Offers {
		offered, path := &spec.Offers[i], fmt.Sprintf("spec.offers[%d]", i)
		value := &document{text: string(offered.Value.Raw), path: path + ".value", faults: found}
		switch {
		case offered.Type == "":
			found.add(Syntax, path+".type", `""`, "is empty")
		case len(offered.Value.Raw) == 0: // null reads as nothing
			found.add(Syntax, path+".value", "", "is missing; any value but null is accepted")
		default:
			if n := value.parse(); n != nil {
				add(value, element{path: path, index: i, node: n, kind: offered.Type, value: n})
			}
		}
	}
}

func (d *document) wellFormed(e element) bool {
	before := len(*d.faults)
	path := e.path + ".value"
	switch e.kind {
	case olm.TypePackage:
		d.fields(e.value, path, "packageName", "version")
		if v := e.value.get("version"); v != nil && v.kind == stringNode && v.text != "" {
			if _, err := semver.Parse(v.text); err != nil {
				d.shapeFault(path+".version", v.text, "is not a semantic version such as 1.2.3")
			}
		}
	case olm.TypeGVK:
		d.fields(e.value, path, "group", "version", "kind")
	case olm.TypeLabel:
		d.fields(e.value, path, "label")
	case typeK8s, typeK8sVersion, typeKubeVersion:
		d.fields(e.value, path, "version")
		if v := e.value.get("version"); v != nil && v.kind == stringNode && v.text != "" {
			if _, err := semver.ParseTolerant(v.text); err != nil {
				d.shapeFault(path+".version", v.text, "is not a version such as 1.36 or 1.36.3")
			}
		}
	case olm.TypeMaxOpenShift:
		if e.value.kind != stringNode {
			d.shapeFault(path, string(d.raw(e.value)),
				fmt.Sprintf(`is %s; a string such as "4.19" is required`, e.value.kind))
		} else if _, problem := minorVersion(e.value.text); problem != "" {
			d.shapeFault(path, e.value.text, problem)
		}
	}
	return len(*d.faults) == before
}

// fields requires an object with exactly these fields, all of them non-empty strings.
func (d *document) fields(n *node, path string, names ...string) {
	want := `{"` + strings.Join(names, `": "...", "`) + `": "..."}`
	if n.kind != objectNode {
		d.shapeFault(path, string(d.raw(n)), fmt.Sprintf("is %s; %s is required", n.kind, want))
		return
	}
	for _, name := range names {
		switch v := n.get(name); {
		case v == nil:
			d.shapeFault(path+"."+name, "", "is missing; "+want+" is required")
		case v.kind != stringNode:
			d.shapeFault(path+"."+name, string(d.raw(v)), fmt.Sprintf("is %s; a string is required", v.kind))
		case v.text == "":
			d.shapeFault(path+"."+name, `""`, "is empty; a string is required")
		}
	}
	for i, key := range n.keys {
		if !slices.Contains(names, key) {
			d.shapeFault(path+"."+text.Truncate(key, valueShown), string(d.raw(n.children[i])),
				"is not known; "+want+" is required")
		}
	}
}

func (d *document) shapeFault(path, value, message string) {
	d.faults.add(PropertyShape, path, value, message)
}
