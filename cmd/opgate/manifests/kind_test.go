package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/snapshot"
)

// TestKinds: check reads all kinds that every replica of the gate judges by, but no state of Opgate itself.
func TestKinds(t *testing.T) {
	for _, watched := range snapshot.Kinds() {
		read := slices.ContainsFunc(kinds, func(k kind) bool {
			return k.GroupVersionKind == watched.GroupVersionKind && k.kept == watched
		})
		if read != (watched.Readers != snapshot.Leader && !watched.Own) {
			t.Errorf("%s: is read is %v", watched.GroupVersionKind, read)
		}
	}
}

// The fields that the command wants are those that OLM's schemas require.
func TestRequiredFieldsAreTheSchemas(t *testing.T) {
	for kept, crd := range map[*snapshot.Kind]*apiextensionsv1.CustomResourceDefinition{
		snapshot.Subscriptions: crds.Subscription(), snapshot.InstallPlans: crds.InstallPlan(),
		snapshot.CatalogSources: crds.CatalogSource(),
	} {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.kept == kept })
		var wanted []string
		for _, fault := range kinds[i].read([]byte(`{"metadata":{"name":"x"},"spec":{}}`), &Object{}) {
			wanted = append(wanted, strings.TrimPrefix(fault.path, "spec."))
		}
		required := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Required
		if slices.Sort(required); !slices.Equal(wanted, required) {
			t.Errorf("%s: the schema requires %v, the command %v", kept.Kind, required, wanted)
		}
	}
}
