package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// operatorPolicy returns an enforcing policy for a package in namespace shop; edit changes it further.
func operatorPolicy(pkg string, edit func(*policyv1beta2.OperatorPolicySpec)) *policyv1beta2.OperatorPolicy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", pkg
	op.Spec = policyv1beta2.OperatorPolicySpec{
		RemediationAction: policyv1beta2.Enforce,
		ComplianceType:    policyv1beta2.MustHave,
		UpgradeApproval:   policyv1beta2.UpgradeApprovalAutomatic,
		Subscription: policyv1beta2.SubscriptionTemplate{Name: pkg, Namespace: "shop",
			Source: "operatorhubio-catalog", SourceNamespace: "olm"},
	}
	if edit != nil {
		edit(&op.Spec)
	}
	return op
}

func policyFor(pkg string, edit func(*policyv1beta2.OperatorPolicySpec)) *operatorpolicy.Policy {
	return NewOperatorPolicy(operatorPolicy(pkg, edit))
}

// pendingPlan waits for approval; each CSV is "package version", named package.vversion, with what it requires after
// that.
func pendingPlan(csvs ...string) *olm.InstallPlan {
	plan := &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-x7"},
		Status: olm.InstallPlanStatus{Phase: olm.PhaseRequiresApproval}}
	for _, csv := range csvs {
		words := strings.Fields(csv)
		name := words[0] + ".v" + words[1]
		properties := fmt.Sprintf(`{"type":"olm.package","value":{"packageName":%q,"version":%q}}`, words[0], words[1])
		for _, required := range words[2:] {
			properties += fmt.Sprintf(
				`,{"type":"olm.package.required","value":{"packageName":%q,"versionRange":">=0.0.1"}}`, required)
		}
		plan.Spec.CSVNames = append(plan.Spec.CSVNames, name)
		plan.Status.BundleLookups = append(plan.Status.BundleLookups, olm.BundleLookup{
			Identifier: name, Catalog: olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"},
			Properties: `{"properties":[` + properties + `]}`,
		})
	}
	return plan
}

func versions(names ...string) func(*policyv1beta2.OperatorPolicySpec) {
	return func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = names }
}

func judged(plan *olm.InstallPlan, policies ...*operatorpolicy.Policy) verdict.Verdict {
	return JudgePlan(PlanInput{Plan: plan, Namespace: state.NewNamespace("shop", state.NamespaceContents{Policies: policies})})
}

// TestStandings checks the disposition of each CSV of a plan, dependencies and cycles included.
func TestStandings(t *testing.T) {
	vault := policyFor("vault", versions("vault.v0.1.9"))
	for name, c := range map[string]struct {
		plan     *olm.InstallPlan
		policies []*operatorpolicy.Policy
		want     string
	}{
		"allowed and a neighbour": {pendingPlan("vault 0.1.9", "prometheus 0.56.0"), []*operatorpolicy.Policy{vault},
			"vault allowed, prometheus ungoverned"},
		"a chain of requirements": {pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4 prometheus", "prometheus 0.56.0"),
			[]*operatorpolicy.Policy{vault}, "vault allowed, etcd required, prometheus required"},
		"a cycle": {pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4 vault etcd"),
			[]*operatorpolicy.Policy{vault}, "vault allowed, etcd required"},
		"a diamond": {pendingPlan("vault 0.1.9 a b", "a 1.0.0 c", "b 1.0.0 c", "c 1.0.0"),
			[]*operatorpolicy.Policy{vault}, "vault allowed, a required, b required, c required"},
		"what requires an allowed one": {pendingPlan("vault 0.1.9", "etcd 0.9.4 vault"), []*operatorpolicy.Policy{vault},
			"vault allowed, etcd ungoverned"},
		"a cycle among the ungoverned": {pendingPlan("vault 0.1.9", "a 1.0.0 b", "b 1.0.0 a"),
			[]*operatorpolicy.Policy{vault}, "vault allowed, a ungoverned, b ungoverned"},
		"required but denied": {pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4"),
			[]*operatorpolicy.Policy{vault, policyFor("etcd", versions("etcd.v0.9.2"))}, "vault allowed, etcd denied"},
		"denied by one of two policies": {pendingPlan("vault 0.2.0"), []*operatorpolicy.Policy{vault, policyFor("vault", nil)},
			"vault denied"},
		"only not forbidden": {pendingPlan("etcd 0.9.4"),
			[]*operatorpolicy.Policy{policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
				s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, []string{"etcd.v0.9.2"}
			})}, "etcd ungoverned"},
	} {
		t.Run(name, func(t *testing.T) {
			v := judged(c.plan, c.policies...)
			var got []string
			for _, csv := range v.CSVs {
				got = append(got, csv.Package+" "+csv.Disposition.String())
			}
			if have := strings.Join(got, ", "); have != c.want {
				t.Errorf("standings are %q, want %q", have, c.want)
			}
		})
	}
}

// TestAddingNeverAllows checks on all pairs and triples of CSVs that adding one to a plan never allows a plan that was
// refused without it (threat O7).
func TestAddingNeverAllows(t *testing.T) {
	all := []string{"vault 0.1.9 etcd", "vault 0.2.0", "etcd 0.9.4 vault", "etcd 0.9.2", "prometheus 0.56.0 etcd",
		"grafana nonsense"}
	policies := []*operatorpolicy.Policy{
		policyFor("vault", versions("vault.v0.1.9")),
		policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) { s.VersionRange = "<0.9.4" }),
		policyFor("grafana", func(s *policyv1beta2.OperatorPolicySpec) { s.VersionRange = ">=1.0.0" }),
	}
	held := 0
	for _, a := range all {
		for _, b := range all {
			if a == b {
				continue
			}
			small, large := judged(pendingPlan(a), policies...), judged(pendingPlan(a, b), policies...)
			if large.Decision < small.Decision {
				t.Errorf("%q alone is %s, with %q it is %s", a, small.Decision, b, large.Decision)
			}
			if small.Decision != verdict.Allow {
				held++
			}
		}
	}
	if held == 0 {
		t.Error("no plan was refused, so nothing was tested")
	}
}

// TestVerdictIsStable judges the same input many times with its parts in different orders.
func TestVerdictIsStable(t *testing.T) {
	policies := []*operatorpolicy.Policy{policyFor("a", versions("a.v1.0.0")), policyFor("b", versions("b.v1.0.0")),
		policyFor("c", nil)}
	csvs := []string{"a 2.0.0", "b 2.0.0", "c 2.0.0"}
	first := judged(pendingPlan(csvs...), policies...)
	if len(first.Reasons) != 2 {
		t.Fatalf("%d reasons, want 2", len(first.Reasons))
	}
	for range 6 {
		slices.Reverse(policies)
		csvs = append(csvs[1:], csvs[0])
		if next := judged(pendingPlan(csvs...), policies...); next.Refusal() != first.Refusal() {
			t.Errorf("refusal is %q, was %q", next.Refusal(), first.Refusal())
		}
	}
}

// TestTenThousandCSVs: the refusal of a huge plan stays readable, and judging it linear.
func TestTenThousandCSVs(t *testing.T) {
	plan := &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "huge"},
		Status: olm.InstallPlanStatus{Phase: olm.PhaseRequiresApproval}}
	for i := range 10_000 {
		plan.Spec.CSVNames = append(plan.Spec.CSVNames, fmt.Sprintf("csv-%d", i))
	}
	v := judged(plan, policyFor("etcd", nil))
	if v.Decision != verdict.Hold || len(v.Reasons) != 10_000 {
		t.Fatalf("%s with %d reasons", v.Decision, len(v.Reasons))
	}
	if refusal := v.Refusal(); len(refusal) > 8_000 || !strings.HasSuffix(refusal, "and 9980 more") {
		t.Errorf("refusal has %d bytes and ends with %q", len(refusal), refusal[len(refusal)-40:])
	}
}

// TestB5PackageByStatus: the status of a Subscription, which a user may have the right to write, names a version that
// states no package itself (threat O83).
func TestB5PackageByStatus(t *testing.T) {
	const csv = "etcd.v0.9.4"
	pinned := []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))}
	lax := []*operatorpolicy.Policy{policyFor("innocent", anyCatalog)}
	both := append(lax[:1:1], pinned...)
	for name, test := range map[string]struct {
		plan     *olm.InstallPlan
		policies []*operatorpolicy.Policy
		claims   string
		want     verdict.Decision
		names    string
	}{
		"control: as OLM writes it":                 {nameless(csv), pinned, "etcd", verdict.Deny, "(bundle/version)"},
		"attack: a package without a policy":        {nameless(csv), pinned, "innocent", verdict.Hold, "(bundle/unknown)"},
		"attack: one whose policy allows more":      {nameless(csv), both, "innocent", verdict.Hold, "(bundle/unknown)"},
		"control: no policy for another":            {nameless(csv), lax, "innocent", verdict.Allow, ""},
		"control: its properties state the package": {pendingPlan("innocent 0.9.4"), both, "innocent", verdict.Allow, ""},
	} {
		v := JudgePlan(PlanInput{Plan: test.plan, Namespace: state.NewNamespace("shop", state.NamespaceContents{
			Policies: test.policies, Subscriptions: []*olm.Subscription{subscribed(test.claims, test.plan.Spec.CSVNames[0], "")}})})
		if v.Decision != test.want || !strings.Contains(v.Refusal(), test.names) {
			t.Errorf("%s: %v, %s; want %v, %s", name, v.Decision, v.Refusal(), test.want, test.names)
		}
	}
}
