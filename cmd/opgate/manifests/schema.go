package manifests

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/snapshot"
)

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

// refusedBySchema returns what the API server refuses in an object before it asks the gate: what the schema of the kind
// does not admit. It refuses nothing of other kinds, and in fields with hub templates, which are resolved before.
func refusedBySchema(gvk schema.GroupVersionKind, raw []byte) apifield.ErrorList {
	s := crdschema.Own(gvk)
	if compile := ofOLM[gvk]; compile != nil {
		s = compile()
	}
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(s.Validate(raw),
		func(err *apifield.Error) bool { return strings.Contains(fmt.Sprint(err.BadValue), hubOpens) })
}
