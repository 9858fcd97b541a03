package operatorpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// TestB7NamesAreApart checks that the public registry counts policies, and another one names them.
func TestB7NamesAreApart(t *testing.T) {
	registry, named := prometheus.NewRegistry(), prometheus.NewRegistry()
	m := NewMetrics(registry, named)
	series := func(registry *prometheus.Registry, family string) string {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				text := ""
				for _, label := range metric.GetLabel() {
					text += label.GetValue() + " "
				}
				if registry != named && strings.Contains(text, "secret") {
					t.Errorf("%s names %s", f.GetName(), text)
				}
				if f.GetName() == family {
					got = append(got, fmt.Sprint(text, metric.GetGauge().GetValue()))
				}
			}
		}
		slices.Sort(got)
		return strings.Join(got, ", ")
	}
	policy := func(name string) *operatorpolicy.Policy {
		op := &policyv1beta2.OperatorPolicy{}
		op.Namespace, op.Name, op.Spec.Subscription.Name = "secret-project", "secret-"+name, name
		return rules.NewOperatorPolicy(op)
	}
	check := func(counts, names string) {
		t.Helper()
		if got := series(registry, "opgate_operatorpolicies"); got != counts {
			t.Errorf("counts are %q, want %q", got, counts)
		}
		if got := series(named, "cluster_policy_governance_info"); got != names {
			t.Errorf("series with names are %q, want %q", got, names)
		}
	}
	m.state(policy("a"), policyv1beta2.Compliant)
	m.state(policy("b"), "")
	check("Compliant 1, Unknown 1",
		"OperatorPolicy secret-a secret-project  0, OperatorPolicy secret-b secret-project  -1")
	m.state(policy("b"), policyv1beta2.NonCompliant)
	m.state(policy("b"), policyv1beta2.NonCompliant)
	check("Compliant 1, NonCompliant 1, Unknown 0",
		"OperatorPolicy secret-a secret-project  0, OperatorPolicy secret-b secret-project  1")
	m.state(operatorpolicy.Unreadable("secret-project", "secret-b", &policyv1beta2.OperatorPolicySpec{},
		errors.New("decode")), "")
	check("Compliant 1, NonCompliant 0, Unknown 0, Unreadable 1",
		"OperatorPolicy secret-a secret-project  0, OperatorPolicy secret-b secret-project  -1")
	m.state(policy("b"), policyv1beta2.NonCompliant)
	m.forget("secret-project", "secret-a")
	m.forget("secret-project", "secret-a")
	check("Compliant 0, NonCompliant 1, Unknown 0, Unreadable 0", "OperatorPolicy secret-b secret-project  1")
}

// TestExceptionEnd exports the first end of all exceptions of a kind, and nothing where none is in force.
func TestExceptionEnd(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry, prometheus.NewRegistry())
	check := func(want string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "opgate_exception_expiry_timestamp_seconds" {
					got += fmt.Sprint(metric.GetLabel()[0].GetValue(), " ", metric.GetGauge().GetValue(), ";")
				}
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	end := func(kind, name string, seconds int64) {
		at := time.Time{}
		if seconds > 0 {
			at = time.Unix(seconds, 0)
		}
		m.ExceptionEnd(kind, types.NamespacedName{Namespace: "policies", Name: name}, at)
	}
	check("")
	end(policyv1beta2.Kind, "a", 200)
	end(policyv1beta2.Kind, "b", 100)
	end("Constraint", "a", 300)
	check("Constraint 300;OperatorPolicy 100;")
	m.forget("policies", "b")
	end("Constraint", "a", 0)
	check("OperatorPolicy 200;")
}
