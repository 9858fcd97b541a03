package v1beta2_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/api/internal/crdtest"
	"github.com/opgate/opgate/api/policy/v1beta2"
)

func loadCRD(t *testing.T) *crdtest.CRD {
	t.Helper()
	return crdtest.Load(t, "../../..", "policy.open-cluster-management.io_operatorpolicies.yaml", v1beta2.Version)
}

func TestCRDIsAccepted(t *testing.T) { loadCRD(t).CheckAccepted(t) }

func TestCRDIdentity(t *testing.T) {
	c := loadCRD(t)
	spec := c.V1.Spec
	if spec.Group != v1beta2.Group || spec.Names.Kind != v1beta2.Kind || spec.Names.Plural != v1beta2.Resource {
		t.Errorf("CRD is %s %s.%s, the constants say %s %s.%s", spec.Names.Kind, spec.Names.Plural, spec.Group,
			v1beta2.Kind, v1beta2.Resource, v1beta2.Group)
	}
	if spec.Scope != apiextensionsv1.NamespaceScoped {
		t.Errorf("scope is %s", spec.Scope)
	}
	if want := []string{"oppol"}; !reflect.DeepEqual(spec.Names.ShortNames, want) {
		t.Errorf("short names are %v, want %v", spec.Names.ShortNames, want)
	}
	// The policy framework finds the kinds it may distribute by this label.
	const label = "policy.open-cluster-management.io/policy-type"
	if got := c.V1.Labels[label]; got != "template" {
		t.Errorf("label %s is %q", label, got)
	}
	for _, v := range spec.Versions {
		if want := v.Name == v1beta2.Version; v.Storage != want {
			t.Errorf("version %s: storage is %t, want %t", v.Name, v.Storage, want)
		}
		if !v.Served {
			t.Errorf("version %s is not served", v.Name)
		}
	}
	if c.Version.Subresources == nil || c.Version.Subresources.Status == nil {
		t.Error("the status subresource is missing: anyone who may write the spec could write the status")
	}
}

func TestPrinterColumns(t *testing.T) {
	want := [][2]string{
		{"Compliance", ".status.compliant"},
		{"Action", ".spec.remediationAction"},
		{"Package", ".spec.subscription.name"},
		{"Installed", ".status.installedVersion"},
		{"State", `.status.conditions[?(@.type=="ClusterServiceVersionCompliant")].reason`},
		{"Waiting", ".status.waiting"},
		{"Age", ".metadata.creationTimestamp"},
		{"Upgrades", ".spec.upgradeApproval"},
		{"Approves", ".spec.planApproval"},
		{"Message", `.status.conditions[?(@.type=="InstallPlanCompliant")].message`},
	}
	var got [][2]string
	for _, column := range loadCRD(t).Version.AdditionalPrinterColumns {
		got = append(got, [2]string{column.Name, column.JSONPath})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("columns are %v, want %v", got, want)
	}
}

// Notes to readers of the Go code stand below three dashes, and must not leak into what users read.
var internalNote = regexp.MustCompile(`(?i)\bseed\b|^---|\n---`)

// TestEveryFieldIsExplained wants what kubectl explain prints for every field of the spec and of the status, in each
// version.
func TestEveryFieldIsExplained(t *testing.T) {
	fields := 0
	var walk func(path string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		fields++
		if strings.TrimSpace(s.Description) == "" {
			t.Errorf("%s has no description", path)
		}
		if internalNote.MatchString(s.Description) {
			t.Errorf("%s has a note that is not for users: %q", path, s.Description)
		}
		for name, property := range s.Properties {
			walk(path+"."+name, &property)
		}
		if s.Items != nil && len(s.Items.Schema.Properties) > 0 {
			walk(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			for name, property := range s.AdditionalProperties.Schema.Properties {
				walk(path+".*."+name, &property)
			}
		}
	}
	for _, version := range loadCRD(t).V1.Spec.Versions {
		fields = 0
		for _, name := range []string{"spec", "status"} {
			property := version.Schema.OpenAPIV3Schema.Properties[name]
			walk(version.Name+" "+name, &property)
		}
		if fields < 40 {
			t.Errorf("%s has no more than %d fields", version.Name, fields)
		}
	}
}

// The mutating webhook tells a field that was left out from one that was written, so that statusConfig
// can stand in for it. A schema default would take that away.
func TestComplianceConfigHasNoSchemaDefaults(t *testing.T) {
	spec := loadCRD(t).Schema.Properties["spec"]
	for _, name := range []string{"complianceConfig", "statusConfig"} {
		config := spec.Properties[name]
		if config.Default.Object != nil {
			t.Errorf("spec.%s has a default", name)
		}
		for property, s := range config.Properties {
			if s.Default.Object != nil {
				t.Errorf("spec.%s.%s has the default %v", name, property, s.Default.Object)
			}
		}
	}
}

// The examples in the description of versionRange must be ranges, and mean what the text says.
func TestVersionRangeExamples(t *testing.T) {
	description := loadCRD(t).Version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["versionRange"].Description
	examples := regexp.MustCompile(`(?m)^- "([^"]+)":`).FindAllStringSubmatch(description, -1)
	in := [][]string{{"1.2.0", "1.9.9", "2.0.0-rc.1"}, {"1.4.0", "1.4.77"}, {"1.2.0", "2.1.0", "7.0.0"}}
	out := [][]string{{"1.1.9", "2.0.0"}, {"1.3.9", "1.5.0"}, {"1.3.1", "2.0.5"}}
	if len(examples) != len(in) {
		t.Fatalf("found %d examples in the description, want %d:\n%s", len(examples), len(in), description)
	}
	for i, example := range examples {
		contains, err := semver.ParseRange(example[1])
		if err != nil {
			t.Errorf("example %q: %v", example[1], err)
			continue
		}
		for _, v := range in[i] {
			if !contains(semver.MustParse(v)) {
				t.Errorf("example %q does not contain %s", example[1], v)
			}
		}
		for _, v := range out[i] {
			if contains(semver.MustParse(v)) {
				t.Errorf("example %q contains %s", example[1], v)
			}
		}
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1beta2.Kind, v1beta2.Kind + "List"} {
		if !scheme.Recognizes(v1beta2.GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
	if !scheme.Recognizes(v1beta2.GroupVersion.WithKind("ListOptions")) {
		t.Error("ListOptions is not registered: clients could not list or watch")
	}
}
