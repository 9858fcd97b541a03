package manifests

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/operator-framework/api/crds"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/manifests/crd"
	"github.com/opgate/opgate/snapshot"
)

// definition is the schema of a version of a kind.
type definition struct {
	structural *structural.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// ofOLM are the definitions of the kinds of OLM that are judged.
var ofOLM = map[schema.GroupVersionKind]func() *apiextensionsv1.CustomResourceDefinition{
	snapshot.CatalogSources.GroupVersionKind: crds.CatalogSource,
	snapshot.InstallPlans.GroupVersionKind:   crds.InstallPlan,
	snapshot.OperatorGroups.GroupVersionKind: crds.OperatorGroup,
	snapshot.Subscriptions.GroupVersionKind:  crds.Subscription,
}

// definitions compiles the schema of each kind that is judged when it is first asked for.
var definitions = sync.OnceValue(func() map[schema.GroupVersionKind]func() *definition {
	all := map[schema.GroupVersionKind]func() *definition{}
	files, err := fs.Glob(crd.Definitions, "*.yaml")
	must(err)
	for _, file := range files {
		text, err := crd.Definitions.ReadFile(file)
		must(err)
		var d apiextensionsv1.CustomResourceDefinition
		must(yaml.UnmarshalStrict(text, &d))
		for i := range d.Spec.Versions {
			v := &d.Spec.Versions[i]
			all[schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}] = sync.OnceValue(func() *definition {
				return compiled(v.Schema.OpenAPIV3Schema)
			})
		}
	}
	for gvk, read := range ofOLM {
		all[gvk] = sync.OnceValue(func() *definition {
			versions := read().Spec.Versions
			i := slices.IndexFunc(versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version })
			return compiled(versions[i].Schema.OpenAPIV3Schema)
		})
	}
	return all
})

func compiled(props *apiextensionsv1.JSONSchemaProps) *definition {
	var internal apiextensions.JSONSchemaProps
	must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, &internal, nil))
	s, err := structural.NewStructural(&internal)
	must(err)
	validator, _, err := validation.NewSchemaValidator(&internal)
	must(err)
	return &definition{s, validator, cel.NewValidator(s, true, celconfig.PerCallLimit)}
}

// must panics: the definitions are those of this program, and tests read them.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("read the definitions: %v", err))
	}
}

// refusedBySchema returns what the API server refuses in an object before it asks the gate: what the schema of the kind
// does not admit. It refuses nothing of other kinds, in the status, which is not written with the spec, and in fields
// with hub templates, which are resolved before.
func refusedBySchema(gvk schema.GroupVersionKind, raw []byte) apifield.ErrorList {
	compile := definitions()[gvk]
	if compile == nil {
		return nil
	}
	d := compile()
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil // the decoding has reported it
	}
	delete(object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	defaulting.Default(object, d.structural)
	errs := validation.ValidateCustomResource(nil, object, d.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	if len(errs) == 0 { // rules rely on the rest of the schema
		//nolint:forbidigo // rules of a schema make no calls
		errs, _ = d.rules.Validate(context.Background(), nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	return slices.DeleteFunc(errs, func(err *apifield.Error) bool { return strings.Contains(fmt.Sprint(err.BadValue), hubOpens) })
}
