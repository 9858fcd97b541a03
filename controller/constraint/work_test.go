package constraint

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestMetrics exports what is violated, and the first end of all exceptions of a kind: nothing where none is in force.
func TestMetrics(t *testing.T) {
	registry, named := prometheus.NewRegistry(), prometheus.NewRegistry()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	var current *snapshot.Snapshot
	RegisterMetrics(registry, named, func() *snapshot.Snapshot { return current }, func() time.Time { return now })
	expect := func(counts, series string) {
		t.Helper()
		for what, check := range map[string]struct {
			registry *prometheus.Registry
			want     string
		}{"registry": {registry, counts}, "named": {named, series}} {
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
	var b snapshot.Builder
	put := func(kind *snapshot.Kind, raw string) {
		current = b.Put(time.Time{}, (&snapshot.Reader{}).Read(kind, []byte(raw)))
	}
	exceptions := func(rules string, seconds ...int) string {
		var all []string
		for _, s := range seconds {
			all = append(all, fmt.Sprintf(`{%s"versions":["etcd.v1.0.0"],"reason":"r","expires":%q}`,
				rules, now.Add(time.Duration(s)*time.Second).Format(time.RFC3339)))
		}
		return `"exceptions":[` + strings.Join(all, ",") + `]`
	}
	put(snapshot.Constraints, `{"metadata":{"name":"one"},"spec":{`+exceptions(``, 300)+`},"status":{"violating":1}}`)
	put(snapshot.Constraints, `{"metadata":{"name":"two"},"status":{"violating":0}}`)
	put(snapshot.OperatorPolicies, `{"metadata":{"name":"etcd","namespace":"policies"},"spec":{"complianceType":"musthave",
		"remediationAction":"enforce","upgradeApproval":"None","subscription":{"name":"etcd","namespace":"shop"},`+
		exceptions(`"rules":["bundle/version"],`, 200, 100)+`}}`)
	at := func(seconds int64) string { return fmt.Sprint(float64(now.Unix() + seconds)) }
	expect("Constraint="+at(300)+" OperatorPolicy="+at(100)+" 1", "one=1 two=0")
	now = now.Add(250 * time.Second)
	expect("Constraint="+at(50)+" 1", "one=1 two=0")
}
