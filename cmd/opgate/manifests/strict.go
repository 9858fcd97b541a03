package manifests

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/operator-framework/api/crds"
	yamltree "go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// fieldFault is what is wrong with one field of an object.
type fieldFault struct {
	// path is empty where the fault lies in no single field.
	path string
	text string
	// absent is set for a field that is missing.
	absent bool
}

// unknownFields decodes as the API server does under strict field validation, into a type that has every
// field of the kind, and says what it would refuse.
func unknownFields[Every any](raw []byte) []fieldFault {
	into := new(Every)
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return undecodable(raw, err)
	}
	var faults []fieldFault
	for _, err := range strict {
		faults = append(faults, unknown(raw, fieldOf(err)))
	}
	return faults
}

// keepsUnknown returns the reader of a kind whose unknown fields are warned of, since the API server stores them.
func keepsUnknown[T any](required ...string) func(raw []byte, o *Object) []fieldFault {
	return func(raw []byte, o *Object) []fieldFault {
		value := new(T)
		strict, err := kjson.UnmarshalStrict(raw, value)
		if err != nil {
			return append(undecodable(raw, err), missing(raw, required)...)
		}
		o.Value, o.Strict = value, strict
		return append(missing(raw, required), readMetadata(raw, o)...)
	}
}

// undecodable returns what is wrong with an object that does not decode: what the schema of its kind does not admit, and
// unknown fields; without a schema the error.
func undecodable(raw []byte, cause error) (faults []fieldFault) {
	h, _ := headOf(raw)
	s := schemaFor(schema.FromAPIVersionAndKind(h.apiVersion, h.kind))
	if s != nil {
		faults = faultsOf(s.Validate(raw), raw)
	}
	if len(faults) == 0 {
		faults = orFault(nil, cause)
	}
	if s != nil {
		for _, path := range s.Unknown(raw) {
			faults = append(faults, unknown(raw, path))
		}
	}
	return faults
}

// faultsOf returns what a schema does not admit in an object, with the value if it is of a wrong type.
func faultsOf(refused apifield.ErrorList, raw []byte) (faults []fieldFault) {
	for _, err := range refused {
		fault := fieldFault{path: err.Field, text: err.Error()}
		if err.Type == apifield.ErrorTypeTypeInvalid {
			fault.text = strings.NewReplacer(" in body must", " must", `: "`, ", not ", `"`, "").Replace(err.Detail)
			if value := lazyTree(raw, 1).within(err.Field).node(); value != nil && value.Kind == yamltree.ScalarNode {
				fault.text = strings.ReplaceAll(fault.text+" "+text.Name(value.Value), "type string,", "type string (in quotes),")
			}
		}
		faults = append(faults, fault)
	}
	return faults
}

func unknown(raw []byte, path string) fieldFault {
	h, _ := headOf(raw)
	return fieldFault{path: path, text: path + " is not a field of " + cmp.Or(h.kind, "this kind") + "; correct its name or remove it"}
}

// fieldOf is the path that a strict decoding error is about.
func fieldOf(err error) string {
	if at, ok := errors.AsType[kjson.FieldError](err); ok {
		return at.FieldPath()
	}
	return ""
}

// missing says which of the fields that the schema of a kind requires in spec are not there.
func missing(raw []byte, required []string) (faults []fieldFault) {
	var object struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil // the strict decoding has said so
	}
	if object.Spec == nil {
		return []fieldFault{{path: "spec", text: "spec is missing", absent: true}}
	}
	for _, name := range slices.Sorted(slices.Values(required)) {
		if value, ok := object.Spec[name]; !ok || string(value) == "null" {
			faults = append(faults, fieldFault{path: "spec." + name, text: "spec." + name + " is missing", absent: true})
		}
	}
	return faults
}

// hubOpens begins a template that only the hub of Open Cluster Management resolves.
const hubOpens = "{{hub"

// ofOLM are the schemas of the kinds of OLM that are judged.
var ofOLM = map[schema.GroupVersionKind]func() *crdschema.Schema{
	snapshot.CatalogSources.GroupVersionKind: schemaOf(crds.CatalogSource, snapshot.CatalogSources),
	snapshot.InstallPlans.GroupVersionKind:   schemaOf(crds.InstallPlan, snapshot.InstallPlans),
	snapshot.OperatorGroups.GroupVersionKind: schemaOf(crds.OperatorGroup, snapshot.OperatorGroups),
	earlierGroup:                             schemaOf(crds.OperatorGroup, snapshot.OperatorGroups),
	snapshot.Subscriptions.GroupVersionKind:  schemaOf(crds.Subscription, snapshot.Subscriptions),
}

func schemaOf(read func() *apiextensionsv1.CustomResourceDefinition, kind *snapshot.Kind) func() *crdschema.Schema {
	return sync.OnceValue(func() *crdschema.Schema { return crdschema.Of(read(), kind.Version) })
}

// schemaFor returns the schema of a kind; nil if it has none.
func schemaFor(gvk schema.GroupVersionKind) *crdschema.Schema {
	if compile := ofOLM[gvk]; compile != nil {
		return compile()
	}
	return crdschema.Own(gvk)
}

// refusedBySchema returns what the API server refuses in an object before it asks the gate: what the schema of the kind
// does not admit. It refuses nothing of other kinds, and in fields with hub templates, which are resolved before.
func refusedBySchema(gvk schema.GroupVersionKind, raw []byte) apifield.ErrorList {
	s := schemaFor(gvk)
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(s.Validate(raw),
		func(err *apifield.Error) bool { return strings.Contains(fmt.Sprint(err.BadValue), hubOpens) })
}
