package chart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/manifests/crd"
)

// Definitions that the chart has.
const (
	policyDefinition     = "operatorpolicies.policy.open-cluster-management.io"
	constraintDefinition = "constraints.operators.coreos.com"
)

// orderingDefinitions are those that are only there with ordering.
var orderingDefinitions = []string{"policies.policy.open-cluster-management.io",
	"policysets.policy.open-cluster-management.io"}

// definitionsOf are all definitions that were rendered, by name. There have to be some.
func definitionsOf(t *testing.T, o objects) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions := of[*apiextensionsv1.CustomResourceDefinition](o)
	if len(definitions) == 0 {
		t.Fatal("there are no definitions")
	}
	return definitions
}

// TestDefinitions holds the definitions in the chart to those that controller-gen made, but for what depends on the
// release.
func TestDefinitions(t *testing.T) {
	made, err := crd.Definitions.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	copies, err := os.ReadDir(checkout.ChartCRDs())
	if err != nil {
		t.Fatal(err)
	}
	names := func(entries []os.DirEntry) (names []string) {
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	same(t, "copies in the chart ('make generate' makes them)", names(copies), names(made))
	rendered := definitionsOf(t, defaults)
	same(t, "definitions that are rendered", len(rendered), len(made))
	for _, name := range append([]string{policyDefinition, constraintDefinition}, orderingDefinitions...) {
		if rendered[name] == nil {
			t.Errorf("%s is not among them", name)
		}
	}
	for _, entry := range made {
		t.Run(entry.Name(), func(t *testing.T) { checkDefinition(t, entry.Name(), rendered) })
	}
}

// checkDefinition looks at the definition in a file.
func checkDefinition(t *testing.T, file string, rendered map[string]*apiextensionsv1.CustomResourceDefinition) {
	text, err := crd.Definitions.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(checkout.ChartCRDs(), file))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "copy in the chart ('make generate' makes it)", string(copied), string(text))
	var want apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	if rendered[want.Name] == nil {
		t.Fatalf("%s is not rendered", want.Name)
	}
	got := rendered[want.Name].DeepCopy()
	same(t, "policy of helm", got.Annotations["helm.sh/resource-policy"], "keep")
	same(t, "part of", got.Labels["app.kubernetes.io/part-of"], "opgate")
	// Any user who deletes what has the label app.kubernetes.io/name=opgate must not delete every policy and
	// constraint.
	if name, ok := got.Labels["app.kubernetes.io/name"]; ok {
		t.Errorf("it has the name %s", name)
	}
	for key, value := range want.Labels {
		same(t, "label "+key, got.Labels[key], value)
	}
	for key, value := range want.Annotations {
		same(t, "annotation "+key, got.Annotations[key], value)
	}
	if want.Name == policyDefinition {
		same(t, "strategy", got.Spec.Conversion.Strategy, apiextensionsv1.WebhookConverter)
		service := got.Spec.Conversion.Webhook.ClientConfig.Service
		same(t, "converter", []string{service.Namespace, service.Name, *service.Path},
			[]string{namespace, "opgate-webhook", "/convert"})
		if len(got.Spec.Conversion.Webhook.ClientConfig.CABundle) > 0 {
			t.Error("it has a caBundle, which is filled in at run time")
		}
		got.Spec.Conversion = nil
	}
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("the definition changed (-generated +rendered):\n%s", diff)
	}
}
