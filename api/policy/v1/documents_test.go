package v1_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/api/internal/crdtest"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// decode reads an object into the types. It fails on a field that the types do not have.
func decode(t *testing.T, text []byte) *policyv1.Policy {
	t.Helper()
	var policy policyv1.Policy
	crdtest.Decode(t, text, &policy)
	return &policy
}

// TestDocuments passes the Policy of the design, which leaves out apiVersion and disabled, and one with all that the
// public API has through the schema and through the types. Only disabled is filled in.
func TestDocuments(t *testing.T) {
	c := loadCRD(t)
	for _, name := range []string{"seed-003.yaml", "public.yaml"} {
		t.Run(name, func(t *testing.T) {
			text := crdtest.Document(t, name)
			want := crdtest.Object(t, text)
			want["spec"].(map[string]any)["disabled"] = false

			crdtest.CheckRoundTrip(t, decode(t, text), want)

			stored := crdtest.Object(t, text)
			if pruned, errs := c.Admit(stored); len(pruned) > 0 || len(errs) > 0 {
				t.Errorf("pruned %v, refused %v", pruned, errs)
			}
			if !reflect.DeepEqual(stored, want) {
				t.Errorf("stored:\n got %v\nwant %v", stored, want)
			}
		})
	}
}

// TestDecoded looks at what the types make of the design's document: an apiVersion that is left out stays so, and the
// template is what was written, byte for byte.
func TestDecoded(t *testing.T) {
	spec := decode(t, crdtest.Document(t, "seed-003.yaml")).Spec
	if want := []policyv1.PolicyDependency{{Kind: "Policy", Name: "namespace-foo-setup-policy",
		Compliance: policyv1.Compliant}}; !reflect.DeepEqual(spec.Dependencies, want) {
		t.Errorf("dependencies are %+v, want %+v", spec.Dependencies, want)
	}
	if want := []policyv1.PolicyDependency{{Kind: "ConfigurationPolicy", Name: "bar",
		Compliance: policyv1.NonCompliant}}; !reflect.DeepEqual(spec.PolicyTemplates[0].ExtraDependencies, want) {
		t.Errorf("extra dependencies are %+v, want %+v", spec.PolicyTemplates[0].ExtraDependencies, want)
	}
	template := crdtest.Object(t, spec.PolicyTemplates[0].ObjectDefinition.Raw)
	if template["kind"] != "ConfigurationPolicy" || spec.Disabled {
		t.Errorf("the template is %v, and disabled is %t", template, spec.Disabled)
	}
}

// TestHistoryTimes reads what other writers put there: seconds, fractions of them, and nothing.
func TestHistoryTimes(t *testing.T) {
	for in, want := range map[string]string{
		`{"lastTimestamp":"2024-04-09T14:42:11Z","message":"m"}`:        `"2024-04-09T14:42:11Z"`,
		`{"lastTimestamp":"2024-04-09T14:42:11.123456Z","message":"m"}`: `"2024-04-09T14:42:11Z"`,
		`{"message":"m"}`: "",
	} {
		text := []byte(`{"spec":{"policy-templates":[]},"status":{"details":[{"history":[` + in + `]}]}}`)
		policy := decode(t, text)
		obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
		if err != nil {
			t.Fatal(err)
		}
		history := obj["status"].(map[string]any)["details"].([]any)[0].(map[string]any)["history"].([]any)[0].(map[string]any)
		if got, _ := history["lastTimestamp"].(string); want != "" && `"`+got+`"` != want {
			t.Errorf("%s is written as %q", in, got)
		}
		if _, ok := history["lastTimestamp"]; ok != (want != "") {
			t.Errorf("%s is written with a time: %t", in, ok)
		}
	}
}

func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := policyv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, want := range []runtime.Object{&policyv1.Policy{}, &policyv1.PolicyList{}} {
		kinds, _, err := scheme.ObjectKinds(want)
		if err != nil || len(kinds) != 1 || kinds[0].GroupVersion() != policyv1.GroupVersion {
			t.Fatalf("%T has kinds %v (%v)", want, kinds, err)
		}
		if got, err := scheme.New(kinds[0]); err != nil || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is a %T, want %T (%v)", kinds[0], got, want, err)
		}
	}
}
