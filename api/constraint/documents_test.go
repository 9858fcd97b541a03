package constraint_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
	"github.com/opgate/opgate/api/internal/crdtest"
)

// example is the Constraint of the proposal, word for word (R-CO-3).
func example(t *testing.T) map[string]any {
	t.Helper()
	return crdtest.Object(t, crdtest.Document(t, "seed-004-example.yaml"))
}

// throughTypes decodes an object into a type, back, and into the unstructured form. It fails on a field that the type
// does not have.
func throughTypes(t *testing.T, obj map[string]any, into runtime.Object) {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	crdtest.Decode(t, text, into)
	crdtest.CheckRoundTrip(t, into, obj)
}

// TestDesignDocument passes the example of the design through the types and the schema of both versions, unchanged.
func TestDesignDocument(t *testing.T) {
	c := loadCRD(t)
	for version, constraint := range map[string]runtime.Object{
		constraintv1.GroupVersion.String(): &constraintv1.Constraint{},
		constraintv2.GroupVersion.String(): &constraintv2.Constraint{},
	} {
		t.Run(version, func(t *testing.T) {
			obj := example(t)
			obj["apiVersion"] = version
			throughTypes(t, obj, constraint)
			stored := example(t)
			stored["apiVersion"] = version
			if pruned, errs := c.Admit(stored); len(pruned) > 0 || len(errs) > 0 {
				t.Errorf("pruned %v, refused %v", pruned, errs)
			}
			if !reflect.DeepEqual(stored, obj) {
				t.Errorf("stored:\n got %v\nwant %v", stored, obj)
			}
		})
	}
	if got := example(t)["apiVersion"]; got != constraintv2.GroupVersion.String() {
		t.Errorf("the example is of %v: it is not the one of the design", got)
	}
}

// TestSchemes registers both versions in one scheme, and creates objects of both.
func TestSchemes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{constraintv1.AddToScheme, constraintv2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []runtime.Object{
		&constraintv1.Constraint{}, &constraintv1.ConstraintList{}, &constraintv2.Constraint{},
		&constraintv2.ConstraintList{},
	} {
		kinds, _, err := scheme.ObjectKinds(want)
		if err != nil || len(kinds) != 1 {
			t.Fatalf("%T has kinds %v (%v)", want, kinds, err)
		}
		if got, err := scheme.New(kinds[0]); err != nil || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is a %T, want %T (%v)", kinds[0], got, want, err)
		}
	}
}
