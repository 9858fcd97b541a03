package manifests

import (
	"slices"
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
	for _, tc := range []struct {
		crd  *apiextensionsv1.CustomResourceDefinition
		want []string
	}{{crds.Subscription(), subscriptionRequires}, {crds.InstallPlan(), planRequires}} {
		got := tc.crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Required
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(tc.want))) {
			t.Errorf("%s: the schema requires %v, the command %v", tc.crd.Spec.Names.Kind, got, tc.want)
		}
	}
}
