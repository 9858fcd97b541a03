package constraint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/snapshot"
)

func TestWriteErrors(t *testing.T) {
	var all writeErrors
	set := func(constraint, namespace, reason string, changed bool) {
		t.Helper()
		if got := all.set(constraint, namespace, reason); got != changed {
			t.Errorf("%s in %s %q: changed %t, want %t", constraint, namespace, reason, got, changed)
		}
	}
	set("one", "shop", "", false)
	set("one", "shop", nameTaken, true)
	set("one", "shop", nameTaken, false)
	set("one", "bank", "Forbidden", true)
	set("one", "farm", "Forbidden", true)
	set("two", "shop", "Forbidden", true)
	if diff := cmp.Diff(map[string]int{nameTaken: 1, "Forbidden": 2}, all.of("one")); diff != "" {
		t.Error(diff)
	}
	set("one", "shop", "", true)
	set("one", "bank", nameTaken, true)
	all.forget(func(constraint string) bool { return constraint == "one" })
	if diff := cmp.Diff([]map[string]int{{nameTaken: 1, "Forbidden": 1}, {}},
		[]map[string]int{all.of("one"), all.of("two")}); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsEnqueuedBeforeLeading(t *testing.T) {
	c := &Controller{}
	c.Everything()
	c.changed(&snapshot.Change{Namespaces: []string{"", "shop"}, Constraints: true})
}

func TestMetrics(t *testing.T) {
	registry, named := prometheus.NewRegistry(), prometheus.NewRegistry()
	m := NewMetrics(registry, named)
	expect := func(violated, series string) {
		t.Helper()
		for what, check := range map[string]struct {
			registry *prometheus.Registry
			want     string
		}{"opgate_violated_constraints": {registry, violated}, "opgate_constraint_violations": {named, series}} {
			families, err := check.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					text := fmt.Sprint(metric.GetGauge().GetValue())
					for _, label := range metric.GetLabel() {
						text = label.GetValue() + "=" + text
					}
					got = append(got, text)
				}
			}
			if strings.Join(got, " ") != check.want {
				t.Errorf("%s: %q, want %q", what, got, check.want)
			}
		}
	}
	expect("", "")
	m.set("one", 1)
	m.set("two", 0)
	expect("1", "one=1 two=0")
	m.set("two", 3)
	expect("2", "one=1 two=3")
	m.forget("two")
	expect("1", "one=1")
}
