package chart_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/tools/chart"
)

// valueCase states what becomes of some values.
type valueCase struct {
	name   string
	values string // YAML
	check  func(t *testing.T, o objects)
}

// TestValues renders the chart with each value that it documents.
func TestValues(t *testing.T) {
	cases := allValueCases()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := mustRender(t, c.values)
			if reflect.DeepEqual(o, defaults) {
				t.Errorf("these values change nothing:\n%s", c.values)
			}
			c.check(t, o)
		})
	}
	t.Run("all have a case", func(t *testing.T) {
		values, err := chart.Values(checkout)
		if err != nil {
			t.Fatal(err)
		}
		tried := map[string]bool{}
		for _, c := range cases {
			var set map[string]any
			if err := yaml.UnmarshalStrict([]byte(c.values), &set); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			addPaths(tried, "", set)
		}
		for _, v := range values {
			if !tried[v.Path] {
				t.Errorf("no case sets %s", v.Path)
			}
		}
	})
}

// addPaths adds the path of everything that is set, maps included.
func addPaths(paths map[string]bool, prefix string, values map[string]any) {
	for key, value := range values {
		paths[prefix+key] = true
		if inner, ok := value.(map[string]any); ok {
			addPaths(paths, prefix+key+".", inner)
		}
	}
}

func allValueCases() []valueCase {
	var all []valueCase
	for _, cases := range [][]valueCase{serverCases(), orderingCases(), externalCases(), admissionCases(),
		certificateCases(), objectCases(), monitoringCases(), podCases(), testCases()} {
		all = append(all, cases...)
	}
	return all
}

// same wants two things to be equal.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// gone wants that there is no object of a type with the name.
func gone[T metav1.Object](t *testing.T, o objects, name string) {
	t.Helper()
	if object, ok := of[T](o)[name]; ok {
		t.Errorf("there is a %T %s", object, name)
	}
}
