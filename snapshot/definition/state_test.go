package definition

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/crdschema"
)

// all are the fields of v1beta2.
var all = crdschema.Own(schema.GroupVersionKind{Group: "policy.open-cluster-management.io", Version: "v1beta2",
	Kind: "OperatorPolicy"}).SpecFields()

// fields is a schema of the spec with all that v1beta2 has.
var fields = `{complianceType: {enum: [mayhave]}, ` +
	strings.Join(slices.DeleteFunc(slices.Clone(all), func(f string) bool { return f == "complianceType" }), ": {}, ") +
	`: {}}`

func version(name, served, properties string) string {
	return "{name: " + name + ", served: " + served + ", schema: {openAPIV3Schema: {properties: {spec: {properties: " +
		properties + "}}}}}"
}

func TestRead(t *testing.T) {
	old := `{complianceType: {enum: [musthave, mustnothave]}, versions: {}}`
	var lacking []string
	for _, f := range all {
		if f != "complianceType" && f != "versions" {
			lacking = append(lacking, "spec."+f)
		}
	}
	var everything []string
	for _, f := range all {
		everything = append(everything, "spec."+f)
	}
	for name, test := range map[string]struct {
		versions string
		absent   bool
		last     string
		want     State
		says     string
	}{
		"not installed, so no policies": {
			absent: true,
			last:   "v1beta1",
			says:   "OperatorPolicy is defined by another program, which has not installed its definition: there are no policies",
		},
		"v1beta1 alone": {
			versions: version("v1beta1", "true", old),
			want:     State{Version: "v1beta1", Served: []string{"v1beta1"}, Missing: lacking, WithoutMayhave: true},
			says: "OperatorPolicy is defined by another program, as v1beta1: " + strings.Join(lacking, ", ") +
				" are read from annotation opgate.io/conversion; complianceType mayhave is not available",
		},
		"both": {
			versions: version("v1beta2", "true", fields) + ", " + version("v1beta1", "true", old),
			want:     State{Version: "v1beta2", Served: []string{"v1beta1", "v1beta2"}},
			says:     "OperatorPolicy is defined by another program, as v1beta2",
		},
		"v1beta2 that is not served": {
			versions: version("v1beta2", "false", fields) + ", " + version("v1beta1", "true", fields),
			want:     State{Version: "v1beta1", Served: []string{"v1beta1"}},
			says:     "OperatorPolicy is defined by another program, as v1beta1",
		},
		"a version of the future, after v1beta2": {
			versions: version("v1", "true", fields),
			last:     "v1beta2",
			want:     State{Version: "v1beta2", Served: []string{"v1"}, Missing: everything, WithoutMayhave: true},
			says:     "OperatorPolicy is defined by another program, and not served as v1beta1 or v1beta2: policies cannot be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var u *unstructured.Unstructured
			if !test.absent {
				u = &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte("spec: {versions: ["+test.versions+"]}"), &u.Object); err != nil {
					t.Fatal(err)
				}
			}
			got := read(u, test.last)
			if !reflect.DeepEqual(got, test.want) || got.text() != test.says {
				t.Errorf("got %+v\nwant %+v\nit says %q", got, test.want, got.text())
			}
		})
	}
}
