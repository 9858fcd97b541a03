package bundle_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/bundle"
	"github.com/opgate/opgate/tools/chart"
)

// What all tests share.
var (
	checkout repo.Checkout
	helm     string
)

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if checkout, err = repo.Find(); err == nil {
		helm, err = assets.FindHelm(context.Background(), assets.Options{Log: os.Stderr})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func generate(t *testing.T, o bundle.Options) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Generate(t.Context(), helm, checkout, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func csvOf(t *testing.T, b *bundle.Bundle) operatorsv1alpha1.ClusterServiceVersion {
	t.Helper()
	csv, err := b.ClusterServiceVersion()
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// registered is the text of what the pods of a bundle apply.
func registered(t *testing.T, b *bundle.Bundle) map[string]string {
	t.Helper()
	var configMap corev1.ConfigMap
	if err := yaml.UnmarshalStrict(b.Manifests["configmap-opgate-registration-v"+b.Version+".yaml"],
		&configMap); err != nil {
		t.Fatal(err)
	}
	return configMap.Data
}

// TestValidators has the bundle judged by all validators of the operator framework that know this format.
func TestValidators(t *testing.T) {
	directory := t.TempDir()
	if err := generate(t, bundle.Options{Version: "0.2.0", Replaces: "0.1.0"}).Write(directory); err != nil {
		t.Fatal(err)
	}
	loaded, err := manifests.GetBundleFromDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Name != "opgate.v0.2.0" || loaded.Package != bundle.Package ||
		loaded.CSV.Spec.Replaces != "opgate.v0.1.0" {
		t.Errorf("got bundle %s of package %s, which replaces %s", loaded.Name, loaded.Package,
			loaded.CSV.Spec.Replaces)
	}
	for _, platform := range []string{"os.linux", "arch.amd64", "arch.arm64", "arch.ppc64le", "arch.s390x"} {
		if loaded.CSV.Labels["operatorframework.io/"+platform] != "supported" {
			t.Errorf("the labels of the bundle do not have %s: %v", platform, loaded.CSV.Labels)
		}
	}
	validators := validation.DefaultBundleValidators.WithValidators(validation.OperatorHubV2Validator,
		validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator, validation.ObjectValidator, validation.GoodPracticesValidator)
	results := validators.Validate(loaded.ObjectsToValidate()...)
	if len(results) == 0 {
		t.Error("no validator has looked at the bundle")
	}
	for _, result := range results {
		for _, finding := range slices.Concat(result.Errors, result.Warnings) {
			// Pods apply Opgate's own definitions, since OLM would let others write these objects
			// (TestNoDefinitionsForOLM).
			if !strings.Contains(finding.Error(), "CSV contains permissions to create CRD") {
				t.Errorf("%s: %s", result.Name, finding.Error())
			}
		}
	}
}

// TestCatalog has catalogs with two versions, and with one, validated by opm.
func TestCatalog(t *testing.T) {
	tools, err := assets.FindOLM(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	first, second := generate(t, bundle.Options{Version: "0.1.0"}),
		generate(t, bundle.Options{Version: "0.2.0", Replaces: "0.1.0"})
	catalog, err := bundle.Catalog([]*bundle.Bundle{first, second},
		[]string{"registry.example.com/bundle:v0.1.0", "registry.example.com/bundle:v0.2.0"})
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "catalog.yaml"), catalog, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tools.OPM, "validate", directory).CombinedOutput(); err != nil {
		t.Errorf("opm validate: %v\n%s", err, out)
	}
	if _, err := bundle.Catalog([]*bundle.Bundle{first, first}, []string{"a", "b"}); err == nil {
		t.Error("a catalog with the same version twice is accepted")
	}
}

// TestNoDefinitionsForOLM wants OLM to know nothing of the definitions: for each that a ClusterServiceVersion owns, it
// lets any user who may edit a namespace write its objects there, and an OperatorPolicy decides about any namespace.
func TestNoDefinitionsForOLM(t *testing.T) {
	b := generate(t, bundle.Options{})
	csv := csvOf(t, b)
	if owned := csv.Spec.CustomResourceDefinitions.Owned; len(owned) > 0 || len(csv.Spec.WebhookDefinitions) > 0 {
		t.Errorf("OLM is to make %v and %v", owned, csv.Spec.WebhookDefinitions)
	}
	for _, name := range b.Files() {
		if strings.HasPrefix(name, "customresourcedefinition") {
			t.Errorf("%s is in the bundle", name)
		}
	}
	definitions, err := filepath.Glob(filepath.Join(checkout.CRDs(), "*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("there are %d definitions: %v", len(definitions), err)
	}
	text := registered(t, b)["definitions.yaml"]
	if got := strings.Count(text, "kind: CustomResourceDefinition\n"); got != len(definitions) {
		t.Errorf("pods apply %d definitions, want %d", got, len(definitions))
	}
}

// TestMigratesToOLMv1 has the bundle meet what OLM v1's migration tool asks of an operator (library-olm,
// migration/pkg/migration/compatibility.go, 2026-09; its module is not published). It refuses an operator that may use
// the API of OLM and not that of OLM v1: such an operator would not work there. The tool's other checks are about the
// OperatorGroup and the OperatorCondition of an installation, of which Opgate writes none.
func TestMigratesToOLMv1(t *testing.T) {
	b := generate(t, bundle.Options{})
	csv := csvOf(t, b)
	if !slices.Contains(csv.Spec.InstallModes, operatorsv1alpha1.InstallMode{
		Type: operatorsv1alpha1.InstallModeTypeAllNamespaces, Supported: true}) {
		t.Errorf("install modes are %v, without AllNamespaces", csv.Spec.InstallModes)
	}
	if owned := csv.Spec.APIServiceDefinitions.Owned; len(owned) > 0 {
		t.Errorf("OLM is to make APIServices %v", owned)
	}
	for _, name := range append(b.Files(), csv.Annotations["operatorframework.io/properties"]) {
		if strings.Contains(name, "dependencies") || strings.Contains(name, ".required") {
			t.Errorf("the bundle has dependencies, in %s", name)
		}
	}
	var groups []string
	for _, permissions := range csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions {
		for _, rule := range permissions.Rules {
			groups = append(groups, rule.APIGroups...)
		}
	}
	for _, group := range []string{"operators.coreos.com", "olm.operatorframework.io"} {
		if !slices.Contains(groups, group) {
			t.Errorf("pods have no right to %s", group)
		}
	}
}

// TestPermissions wants no permission of the pods to be wider than in the chart, but for what they register.
func TestPermissions(t *testing.T) {
	csv := csvOf(t, generate(t, bundle.Options{}))
	strategy := csv.Spec.InstallStrategy.StrategySpec
	if len(strategy.Permissions) > 0 {
		t.Errorf("%v would be lifted to the whole cluster", strategy.Permissions)
	}
	for _, permissions := range strategy.ClusterPermissions {
		for _, rule := range permissions.Rules {
			if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "leases") {
				t.Errorf("pods may %v %v everywhere", rule.Verbs, rule.Resources)
			}
			if slices.Contains(rule.Verbs, "create") && len(rule.ResourceNames) > 0 {
				t.Errorf("create of %v by name, which RBAC does not know", rule.Resources)
			}
		}
	}
}

// TestPods wants the pods to fit OpenShift's constraints, to name the image, and to apply what is in the bundle.
func TestPods(t *testing.T) {
	const image = "registry.example.com/opgate@sha256:8f3c3f7a6a0d1a1d3f1d7f2f5b1a9c0e4d2b6a7c8e9f0a1b2c3d4e5f60718293"
	b := generate(t, bundle.Options{Version: "1.2.3", Image: image})
	csv := csvOf(t, b)
	pod := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec
	if c := pod.SecurityContext; c == nil || c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil ||
		c.RunAsNonRoot == nil || !*c.RunAsNonRoot {
		t.Errorf("the security context is %v", c)
	}
	if pod.Containers[0].Image != image || csv.Spec.RelatedImages[0].Image != image ||
		csv.Annotations["containerImage"] != image {
		t.Errorf("images are %s, %v and %s", pod.Containers[0].Image, csv.Spec.RelatedImages,
			csv.Annotations["containerImage"])
	}
	for _, want := range []string{"--register=/etc/opgate/registration", "--webhooks-owned-by-namespace=false",
		"--olm-identity=" + chart.OLM} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("arguments are %q, want %q", pod.Containers[0].Args, want)
		}
	}
	for file, text := range registered(t, b) {
		if !strings.Contains(text, "app.kubernetes.io/version: v1.2.3\n") || strings.Contains(text, "helm") {
			t.Errorf("%s names another version, or helm", file)
		}
	}
	if webhooks := registered(t, b)["webhooks.yaml"]; strings.Contains(webhooks, "\n  rules:") {
		t.Error("webhooks have rules before a replica was ready")
	}
}

// TestOpenShift wants OpenShift's account of OLM wherever a bundle names one.
func TestOpenShift(t *testing.T) {
	const account = "system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount"
	b := generate(t, bundle.Options{OLMIdentity: account})
	all := ""
	for _, name := range b.Files() {
		all += string(b.Manifests[name])
	}
	if strings.Contains(all, chart.OLM) || !strings.Contains(all, account) {
		t.Errorf("%s is there %d times, %s %d times", account, strings.Count(all, account), chart.OLM,
			strings.Count(all, chart.OLM))
	}
}

// TestFIPS140 wants a bundle to call the image compliant only where the module that it was built with has a certificate.
func TestFIPS140(t *testing.T) {
	for module, compliant := range map[string]string{"": "false", "off": "false", "certified": "true", "v1.26.0": "false"} {
		csv := csvOf(t, generate(t, bundle.Options{FIPS140: module}))
		if got := csv.Annotations["features.operators.openshift.io/fips-compliant"]; got != compliant ||
			strings.Contains(csv.Spec.Description, "certificate 5247") != (compliant == "true") {
			t.Errorf("GOFIPS140=%s: fips-compliant is %q, want %q and the certificate only with it:\n%s", module, got, compliant,
				csv.Spec.Description)
		}
	}
}

func TestGenerateRejects(t *testing.T) {
	_, err := bundle.Generate(t.Context(), helm, checkout, bundle.Options{Version: "1.2"})
	if err == nil || !strings.Contains(err.Error(), `"1.2" is no semantic version`) {
		t.Errorf("got %v", err)
	}
}
