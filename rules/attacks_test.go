package rules

import (
	"slices"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

type spec = policyv1beta2.OperatorPolicySpec

// nameless is a plan whose CSVs only have names: the plan does not contain packages, versions and catalogs.
func nameless(names ...string) *olm.InstallPlan {
	return &olm.InstallPlan{
		Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-x7"},
		Spec:     olm.InstallPlanSpec{CSVNames: names},
		Status:   olm.InstallPlanStatus{Phase: olm.PhaseRequiresApproval},
	}
}

// subscribed is a Subscription whose status names CSVs.
func subscribed(pkg, current, installed string) *olm.Subscription {
	s := subscriptionTo(pkg)
	s.Status = olm.SubscriptionStatus{CurrentCSV: current, InstalledCSV: installed}
	return s
}

func properties(pkg, version string) string {
	return `{"properties":[{"type":"olm.package","value":{"packageName":"` + pkg + `","version":"` + version + `"}}]}`
}

// anyCatalog removes the catalog of a policy.
func anyCatalog(s *spec) { s.Subscription.Source, s.Subscription.SourceNamespace = "", "" }

// TestPlansNamedAsAttacks judges plans in clusters that an attacker has prepared. It does not repeat the scenarios in
// e2e/scenarios.
func TestPlansNamedAsAttacks(t *testing.T) {
	type cluster = state.NamespaceContents
	planning := pendingPlan("etcd 0.9.2")
	planning.Status.Phase = "Planning"
	smuggled := pendingPlan("etcd 0.9.2", "vault 0.1.9")
	smuggled.Spec.CSVNames = smuggled.Spec.CSVNames[:1]
	twoStories := pendingPlan("etcd 0.9.2")
	twoStories.Status.Steps = []olm.Step{{Resource: olm.StepResource{Kind: "ClusterServiceVersion", Name: "etcd.v0.9.2",
		Manifest: olm.Manifest{Properties: properties("innocent", "0.9.2")}}}}
	twoVersions := pendingPlan("etcd 0.9.2")
	twoVersions.Status.Steps = []olm.Step{{Resource: olm.StepResource{Kind: "ClusterServiceVersion",
		Name: "etcd.v0.9.2", Manifest: olm.Manifest{Properties: properties("etcd", "0.9.4")}}}}
	garbled := pendingPlan("etcd 0.9.2")
	garbled.Status.Steps = []olm.Step{{Resource: olm.StepResource{Kind: "ClusterServiceVersion", Name: "etcd.v0.9.2",
		Manifest: olm.Manifest{Unreadable: true}}}}
	held := policyFor("etcd", func(s *spec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone })
	pinned := policyFor("etcd", versions("etcd.v0.9.2"))
	open := policyFor("etcd", anyCatalog)

	for name, c := range map[string]struct {
		plan    *olm.InstallPlan
		cluster cluster
		want    verdict.Decision
		says    string
	}{
		"approved while OLM is still planning": {planning, cluster{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold,
			"plan/phase"},
		"a plan that names nothing": {nameless(), cluster{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold,
			"plan/phase"},
		"a bundle that only a lookup names": {smuggled,
			cluster{Policies: []*operatorpolicy.Policy{policyFor("vault", versions("vault.v0.1.8"))}}, verdict.Deny,
			"vault.v0.1.9 is not allowed"},
		"two packages for one CSV": {twoStories, cluster{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold,
			"both package etcd 0.9.2 and package innocent 0.9.2"},
		"two versions for one CSV": {twoVersions, cluster{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold,
			"both package etcd 0.9.2 and package etcd 0.9.4"},
		"a manifest that does not decode": {garbled, cluster{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold,
			"manifest in the plan cannot be read"},
		"two Subscriptions claim one CSV": {nameless("x.v1"), cluster{Policies: []*operatorpolicy.Policy{open},
			Subscriptions: []*olm.Subscription{subscribed("etcd", "x.v1", ""), subscribed("innocent", "x.v1", "")}},
			verdict.Hold, "Subscriptions to different packages"},
		"a CSV known as installed only": {nameless("x.v1"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd",
				func(s *spec) { anyCatalog(s); s.Versions = []string{"x.v2"} })},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "", "x.v1")}}, verdict.Deny, "x.v1 is not allowed"},
		"forbidden wherever it comes from": {nameless("x.v1"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd",
				func(s *spec) { anyCatalog(s); s.ComplianceType = policyv1beta2.MustNotHave })},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "x.v1", "")}}, verdict.Deny, "bundle/mustnothave"},
		"forbidden from one catalog, which is not known": {nameless("x.v1"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd",
				func(s *spec) { s.ComplianceType = policyv1beta2.MustNotHave })},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "x.v1", "")}}, verdict.Hold,
			"version or catalog is not known"},
		"forbidden in a range, version not known": {nameless("x.v1"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd",
				func(s *spec) { s.ComplianceType, s.VersionRange = policyv1beta2.MustNotHave, "<1.0.0" })},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "x.v1", "")}}, verdict.Hold,
			"version or catalog is not known"},
		"a range and no version": {nameless("x.v1"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd",
				func(s *spec) { anyCatalog(s); s.VersionRange = ">=1.0.0" })},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "x.v1", "")}}, verdict.Hold,
			"the version of x.v1 is not known"},
		"outside the range, but the policy starts there": {pendingPlan("etcd 0.9.2"),
			cluster{Policies: []*operatorpolicy.Policy{policyFor("etcd", func(s *spec) {
				s.VersionRange,
					s.Subscription.StartingCSV = ">=1.0.0", "etcd.v0.9.2"
			})}}, verdict.Allow, ""},
		"an upgrade of a CSV without properties": {pendingPlan("etcd 0.9.4"), cluster{Policies: []*operatorpolicy.Policy{held},
			CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "old.v1"}}}, Subscriptions: []*olm.Subscription{subscribed("etcd", "etcd.v0.9.4",
				"old.v1")}}, verdict.Hold, "upgrade of old.v1 to etcd.v0.9.4"},
		"a plan for what is installed is no upgrade": {pendingPlan("etcd 0.9.2"),
			cluster{Policies: []*operatorpolicy.Policy{held},
				CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2"}}}}, verdict.Allow, ""},
		"an upgrade of another package": {pendingPlan("etcd 0.9.2"), cluster{Policies: []*operatorpolicy.Policy{held},
			CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "vault.v0.1.9", Package: "vault", Version: "0.1.9"}}}}, verdict.Allow, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgePlan(PlanInput{Plan: c.plan, Namespace: state.NewNamespace("shop", c.cluster)})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s: %s\nwant %s with %q", v.Decision, v.Refusal(), c.want, c.says)
			}
		})
	}
}

// TestBornApproved judges by names only: the policies of its package judge a CSV that a Subscription starts with, not
// those of other packages that may have slipped through.
func TestBornApproved(t *testing.T) {
	automatic := func(pkg, start string) *olm.Subscription {
		s := subscriptionTo(pkg)
		s.Spec.InstallPlanApproval, s.Spec.StartingCSV = olm.ApprovalAutomatic, start
		return s
	}
	list := func(names ...string) func(*spec) {
		return func(s *spec) { anyCatalog(s); s.Versions = names }
	}
	ns := state.NewNamespace("shop", state.NamespaceContents{
		Policies: []*operatorpolicy.Policy{policyFor("etcd", list("etcd.v0.9.2")), policyFor("vault", list("vault.v0.1.9"))},
		Subscriptions: []*olm.Subscription{automatic("etcd", "etcd.v0.9.2"), automatic("vault", "vault.v0.1.9"),
			automatic("another", "vault.v0.3.0"), automatic("vault", "vault.v0.3.0")},
	})
	switched := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", list("etcd.v0.9.2"))},
			Subscriptions: []*olm.Subscription{subscriptionTo("etcd")}})
	plan := &olm.InstallPlanHead{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-x7"},
		Spec: olm.InstallPlanSpec{CSVNames: []string{"etcd.v0.9.4"}, Approved: true}}
	if v := JudgePlanCreate(PlanCreateInput{New: plan, Namespace: switched, ByOLM: true}); v.Decision != verdict.Hold {
		t.Errorf("a plan that was made before the Subscription was switched to Manual: %s, want Hold", v.Decision)
	}
	for names, want := range map[string]verdict.Decision{
		"vault.v0.1.9":             verdict.Allow,
		"etcd.v0.9.2 vault.v0.1.9": verdict.Allow,
		"vault.v0.2.0":             verdict.Hold, // its package is unknown, and may be etcd or vault
		"vault.v0.3.0":             verdict.Hold, // a Subscription to vault asks for it, whatever others do
	} {
		plan := &olm.InstallPlanHead{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-x7"},
			Spec: olm.InstallPlanSpec{CSVNames: strings.Fields(names), Approved: true}}
		if v := JudgePlanCreate(PlanCreateInput{New: plan, Namespace: ns, ByOLM: true}); v.Decision != want {
			t.Errorf("%s: %s, want %s (%s)", names, v.Decision, want, v.Refusal())
		}
	}
}

// TestStartingAnApprovedPlan is the one phase transition that users other than OLM may write.
func TestStartingAnApprovedPlan(t *testing.T) {
	old := pendingPlan("etcd 0.9.2")
	old.Spec.Approved = true
	started := *old
	started.Status.Phase = olm.PhaseInstalling
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))}})
	if v := JudgePlanStatusUpdate(PlanStatusInput{New: &started, Old: old,
		Namespace: ns}); v.Decision != verdict.Allow {
		t.Errorf("refused: %s", v.Refusal())
	}
}

// TestRepeatingAnInterruptedPlan is the one phase transition that Opgate alone may write. Each case differs from it in
// one thing.
func TestRepeatingAnInterruptedPlan(t *testing.T) {
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))}})
	for _, c := range []struct {
		name   string
		byUser bool
		before func(*olm.InstallPlan)
		after  func(*olm.InstallPlan)
		want   verdict.Decision
	}{
		{name: "as it is", want: verdict.Allow},
		{name: "a step was a Subscription", want: verdict.Allow, before: func(p *olm.InstallPlan) {
			p.Status.Message = `error creating subscription etcd: Internal error occurred: failed calling webhook "subscriptions.opgate.io": failed to call webhook`
		}},
		{name: "by a user", byUser: true, want: verdict.Deny},
		{name: "not approved", want: verdict.Deny, before: func(p *olm.InstallPlan) { p.Spec.Approved = false }},
		{name: "OLM writes the steps itself", want: verdict.Deny,
			before: func(p *olm.InstallPlan) { p.Status.ServiceAccount.Name = "" }},
		{name: "it failed for another reason", want: verdict.Deny,
			before: func(p *olm.InstallPlan) { p.Status.Message = "api-server resource not found" }},
		{name: "a webhook of others failed", want: verdict.Deny, before: func(p *olm.InstallPlan) {
			p.Status.Message = `Internal error occurred: failed calling webhook "clusterserviceversions.example.org": failed to call webhook`
		}},
		{name: "it is complete", want: verdict.Deny,
			before: func(p *olm.InstallPlan) { p.Status.Phase = olm.PhaseComplete }},
		{name: "with other contents", want: verdict.Deny,
			after: func(p *olm.InstallPlan) { p.Status.BundleLookups = nil }},
		{name: "as another account", want: verdict.Deny,
			after: func(p *olm.InstallPlan) { p.Status.ServiceAccount.Name = "strong" }},
	} {
		old := pendingPlan("etcd 0.9.2")
		old.Spec.Approved, old.Status.Phase, old.Status.ServiceAccount.Name = true, olm.PhaseFailed, "weak"
		old.Status.Message = `error creating csv etcd.v0.9.2: Internal error occurred: failed calling webhook "clusterserviceversions.opgate.io": failed to call webhook`
		if c.before != nil {
			c.before(old)
		}
		repeated := *old
		repeated.Status.Phase = olm.PhaseInstalling
		if c.after != nil {
			c.after(&repeated)
		}
		v := JudgePlanStatusUpdate(PlanStatusInput{New: &repeated, Old: old, Namespace: ns, ByOpgate: !c.byUser})
		if v.Decision != c.want {
			t.Errorf("%s: %s, want %s (%s)", c.name, v.Decision, c.want, v.Refusal())
		}
	}
}

// TestOverrideNeeds requires the verb on each policy that refuses, and on all of the namespace if the refusal has no
// single source. A blank reason counts as none.
func TestOverrideNeeds(t *testing.T) {
	policies := []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2")), policyFor("vault", nil)}
	ns := state.NewNamespace("shop", state.NamespaceContents{Policies: policies})
	for _, c := range []struct {
		plan *olm.InstallPlan
		want []string
	}{
		{pendingPlan("etcd 0.9.4", "vault 0.1.9"), []string{"etcd"}},
		{nameless("x.v1"), []string{"etcd", "vault"}},
	} {
		v := JudgePlan(PlanInput{Plan: c.plan, Namespace: ns})
		needs, ok := OverrideNeeds(&v, ns)
		var names []string
		for _, n := range needs {
			names = append(names, n.Name)
		}
		if !ok || !slices.Equal(names, c.want) {
			t.Errorf("%s: needs %q (%v), want %q", v.Refusal(), names, ok, c.want)
		}
	}
	if _, ok := OverrideNeeds((&verdict.Verdict{}), ns); ok {
		t.Error("nothing refused, and yet something to override")
	}
	head := func(reason string, approved bool) *olm.InstallPlanHead {
		h := &olm.InstallPlanHead{Spec: olm.InstallPlanSpec{Approved: approved}}
		h.Metadata.Annotations.OverrideReason = reason
		return h
	}
	for reason, want := range map[string]string{" \t\n": "", " because ": "because", "": ""} {
		in := PlanUpdateInput{New: head(reason, true), Old: pendingPlan("etcd 0.9.4")}
		if got := in.OverrideAsked().Reason; got != want {
			t.Errorf("reason %q is read as %q, want %q", reason, got, want)
		}
	}
	if in := (PlanUpdateInput{New: head("later", false),
		Old: pendingPlan("etcd 0.9.4")}); in.OverrideAsked().Reason != "" {
		t.Error("a reason without an approval asks for an override")
	}
}

// TestStricterApprovalWins: two policies for one package; the order of their names must not matter.
func TestStricterApprovalWins(t *testing.T) {
	free, pinned := operatorPolicy("etcd", nil), operatorPolicy("etcd", versions("etcd.v0.9.2"))
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		free.Name, pinned.Name = names[0], names[1]
		ns := state.NewNamespace("shop",
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{NewOperatorPolicy(free), NewOperatorPolicy(pinned)}})
		sub := subscriptionTo("etcd")
		sub.Spec.InstallPlanApproval = olm.ApprovalAutomatic
		v := JudgeSubscription(SubscriptionInput{New: sub, Namespace: ns, Mode: MutateApproval})
		if len(v.Changes) != 2 || v.Changes[0].Value != olm.ApprovalManual {
			t.Errorf("policies %q: changes %+v", names, v.Changes)
		}
	}
}

// TestMustNotHaveFromAnotherCatalog: a package is forbidden from one catalog only.
func TestMustNotHaveFromAnotherCatalog(t *testing.T) {
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd",
			func(s *spec) { s.ComplianceType = policyv1beta2.MustNotHave })}})
	for source, want := range map[string]verdict.Decision{"operatorhubio-catalog": verdict.Deny,
		"curated-catalog": verdict.Allow} {
		sub := subscriptionTo("etcd")
		sub.Spec.Source = source
		if v := JudgeSubscription(SubscriptionInput{New: sub, Namespace: ns,
			Mode: DenyApproval}); v.Decision != want {
			t.Errorf("from %s: %s, want %s", source, v.Decision, want)
		}
	}
}

// TestPolicyPreview checks the warnings about the cluster for a policy's author.
func TestPolicyPreview(t *testing.T) {
	approved := pendingPlan("etcd 0.9.4")
	approved.Metadata.Name, approved.Spec.Approved = "install-approved", true
	other := pendingPlan("vault 0.1.9")
	other.Metadata.Name = "install-vault"
	ns := state.NewNamespace("shop", state.NamespaceContents{
		CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.0", Package: "etcd", Version: "0.9.0"}},
			{Bundle: olm.Bundle{Name: "vault.v0.1.9", Package: "vault", Version: "0.1.9"}}},
		Plans: []*olm.InstallPlan{approved, other},
	})
	for name, c := range map[string]struct {
		edit func(*spec)
		want string // of all warnings, empty for none
	}{
		"in the range": {func(s *spec) { s.VersionRange = ">=0.9.0" }, ""},
		"out of the range": {func(s *spec) { s.VersionRange = ">=0.9.2" },
			"etcd.v0.9.0 is installed in namespace shop and not covered"},
		"forbidden": {func(s *spec) { s.ComplianceType = policyv1beta2.MustNotHave },
			"etcd.v0.9.0 is installed in namespace shop and forbidden"},
		"informing":     {func(s *spec) { s.RemediationAction = policyv1beta2.Inform; s.Versions = []string{"etcd.v0.9.2"} }, "not covered"},
		"every version": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: policyFor("etcd", c.edit),
				Namespace: func(string) *state.Namespace { return ns }})
			warnings := strings.Join(v.WarningTexts(), "\n")
			if v.Decision != verdict.Allow || !strings.Contains(warnings, c.want) ||
				(c.want == "") != (warnings == "") {
				t.Errorf("%s with warnings\n%s\nwant %q", v.Decision, warnings, c.want)
			}
			if strings.Contains(warnings, "install-approved") || strings.Contains(warnings, "vault") {
				t.Errorf("warnings name what is not pending or not concerned:\n%s", warnings)
			}
		})
	}
}

// TestStoredPolicies: labels of a policy can be edited even if its spec is invalid by present rules; it is judged again
// when its spec, or how its spec is read, changes.
func TestStoredPolicies(t *testing.T) {
	judge := func(op, old *policyv1beta2.OperatorPolicy) verdict.Decision {
		in := OperatorPolicyInput{Policy: NewOperatorPolicy(op),
			Namespace: func(string) *state.Namespace { return nil }}
		if old != nil {
			in.Old = NewOperatorPolicy(old)
		}
		return JudgeOperatorPolicy(in).Decision
	}
	old := operatorPolicy("etcd", func(s *spec) { s.VersionRange = "no longer a range" })
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if judge(labelled, old) != verdict.Allow {
		t.Error("the labels of a stored policy cannot be edited")
	}
	templated := operatorPolicy("etcd", versions("{{ fromConfigMap }}"))
	switched := templated.DeepCopy()
	switched.Annotations = map[string]string{"policy.open-cluster-management.io/disable-templates": "true"}
	if judge(templated, nil) != verdict.Allow || judge(switched, templated) != verdict.Deny {
		t.Error("switching templates off makes text literal, and that is not judged")
	}
}

// TestDecodePolicy reports errors in the spec, and leaves metadata and status to the API server: fields there that a
// newer version adds must not make every policy invalid.
func TestDecodePolicy(t *testing.T) {
	op, strict, err := DecodeOperatorPolicy([]byte(`{"metadata":{"name":"etcd","newInTheNextRelease":{}},"extra":1,
		"spec":{"version":["a"],"subscription":{"name":"etcd","name":"vault"}},"status":{"newInTheNextRelease":true}}`))
	if err != nil || op.Spec.Subscription.Name != "vault" {
		t.Fatalf("read as %+v, error %v", op, err)
	}
	var got []string
	for _, problem := range strict {
		got = append(got, problem.Error())
	}
	slices.Sort(got)
	if want := []string{`duplicate field "spec.subscription.name"`, `unknown field "extra"`,
		`unknown field "spec.version"`}; !slices.Equal(got, want) {
		t.Errorf("problems are %q, want %q", got, want)
	}
}
