package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	etcdSpec  = `{"displayName":"etcd","install":{"strategy":"deployment","spec":{"deployments":[{"name":"etcd","spec":{"replicas":1}}]}}}`
	otherSpec = `{"displayName":"etcd","install":{"strategy":"deployment","spec":{"deployments":[{"name":"evil","spec":{"replicas":1}}]}}}`
)

// written returns the ClusterServiceVersion of etcd 0.9.2 as a user writes it.
func written(t *testing.T, spec string) *olm.CSV {
	t.Helper()
	csv, err := olm.Decode[olm.CSV](
		[]byte(`{"metadata":{"name":"etcd.v0.9.2","namespace":"shop","annotations":{"operatorframework.io/properties":` +
			text.Quote(properties("etcd", "0.9.2")) + `}},"spec":` + spec + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// installing returns a plan for etcd 0.9.2 that OLM is running; it has the manifest unless spec is empty.
func installing(t *testing.T, spec string, edit ...func(*olm.InstallPlan)) *olm.InstallPlan {
	t.Helper()
	p := pendingPlan("etcd 0.9.2")
	p.Spec.Approval, p.Spec.Approved, p.Status.Phase = olm.ApprovalManual, true, olm.PhaseInstalling
	if spec != "" {
		p.Status.BundleLookups = nil
		p = withStep(p, "etcd.v0.9.2", olm.Manifest{Spec: &written(t, spec).Spec,
			Properties: properties("etcd", "0.9.2")})
		p.Status.Steps[0].Resource.CatalogNamespace, p.Status.Steps[0].Resource.CatalogName = "olm",
			"operatorhubio-catalog"
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

// TestA5PlanLendsItsName tries to pass as a step of a plan (threat O9). The live test of that name is in e2e.
func TestA5PlanLendsItsName(t *testing.T) {
	const account, tenant = "system:serviceaccount:shop:weak", "tenant"
	attenuated := func(p *olm.InstallPlan) {
		p.Status.ServiceAccount.Namespace, p.Status.ServiceAccount.Name = "shop", "weak"
	}
	noStatus := func(p *olm.InstallPlan) { p.Status = olm.InstallPlanStatus{} }
	named := func(name string) func(*olm.InstallPlan) { return func(p *olm.InstallPlan) { p.Metadata.Name = name } }
	phase := func(phase string) func(*olm.InstallPlan) { return func(p *olm.InstallPlan) { p.Status.Phase = phase } }
	unapproved := func(p *olm.InstallPlan) { p.Spec.Approved = false }
	reason := func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" }
	foreign := func(p *olm.InstallPlan) {
		for i := range p.Status.Steps {
			p.Status.Steps[i].Resource.CatalogName = "bargain-catalog"
		}
		for i := range p.Status.BundleLookups {
			p.Status.BundleLookups[i].Catalog.Name = "bargain-catalog"
		}
	}
	onlyInSpec := func(p *olm.InstallPlan) { p.Status.Steps, p.Status.BundleLookups = nil, nil }
	allowed, other := policyFor("etcd", versions("etcd.v0.9.2")), policyFor("etcd", versions("etcd.v0.9.4"))
	for _, c := range []struct {
		name   string
		user   string
		byOLM  bool
		spec   string
		policy *operatorpolicy.Policy
		plans  []*olm.InstallPlan
		want   verdict.Decision
		says   string
	}{
		{
			name: "OLM carries out an allowed plan", byOLM: true, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)}, want: verdict.Allow,
		},
		{
			name: "OLM carries out an allowed plan for an image", byOLM: true, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, "")}, want: verdict.Allow,
		},
		{
			name: "the snapshot does not show yet that the plan is approved", byOLM: true, spec: etcdSpec,
			policy: allowed,
			plans:  []*olm.InstallPlan{installing(t, etcdSpec, unapproved, phase(olm.PhaseRequiresApproval))},
			want:   verdict.Allow,
		},
		{
			name: "a plan from before the policy", byOLM: true, spec: etcdSpec, policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)}, want: verdict.Deny,
			says: "InstallPlan install-x7, which installs it, was approved all the same",
		},
		{
			name: "a plan from before the policy, from another catalog", byOLM: true, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, foreign)}, want: verdict.Deny,
			says: "from catalog olm/bargain-catalog is not allowed",
		},
		{
			name: "a plan that an override let through", byOLM: true, spec: etcdSpec, policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, reason)}, want: verdict.Allow,
		},
		{
			name: "OLM lags behind the plan that the snapshot shows", byOLM: true, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, phase(olm.PhaseComplete))}, want: verdict.Allow,
		},
		{
			name: "a plan that says nothing of the bundle", byOLM: true, spec: etcdSpec, policy: other,
			plans: []*olm.InstallPlan{installing(t, "",
				func(p *olm.InstallPlan) { p.Status.BundleLookups[0].Properties = "" })}, want: verdict.Deny,
			says: "allowed is etcd.v0.9.4",
		},
		{
			name: "OLM writes what no plan brings", byOLM: true, spec: etcdSpec, policy: allowed, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "beside an allowed plan for the same name a plan from another catalog runs", byOLM: true,
			spec: otherSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, ""), installing(t, "", foreign, named("zz"))}, want: verdict.Deny,
			says: "from catalog olm/bargain-catalog",
		},
		{
			name: "another plan waits beside the one that runs", byOLM: true, spec: otherSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, "", unapproved, phase(olm.PhaseRequiresApproval), named("aa")),
				installing(t, "", foreign)},
			want: verdict.Deny, says: "from catalog olm/bargain-catalog",
		},
		{
			name: "the contents show which of two plans it is", byOLM: true, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec), installing(t, otherSpec, foreign, named("aa"))},
			want:  verdict.Allow,
		},
		{
			name: "the name of a plan without a status", user: tenant, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, "", noStatus)}, want: verdict.Deny, says: "comes from no catalog",
		},
		{
			name: "the name of a plan that runs", user: tenant, spec: otherSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)}, want: verdict.Deny, says: "comes from no catalog",
		},
		{
			name: "the contents of a plan that runs", user: tenant, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated)}, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "the account of a plan", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated)}, want: verdict.Allow,
		},
		{
			name: "the account of a plan that names none", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)}, want: verdict.Deny, says: "comes from no catalog",
		},
		{
			name: "the account writes other contents", user: account, spec: otherSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated)}, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "an account of that name in another namespace", user: "system:serviceaccount:elsewhere:weak",
			spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated)}, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "the account, before the plan is approved", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated, unapproved)}, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "the account, before OLM starts the plan", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated, phase(olm.PhaseRequiresApproval))},
			want:  verdict.Deny, says: "comes from no catalog",
		},
		{
			name: "the account, after the plan", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated, phase(olm.PhaseComplete))},
			want:  verdict.Deny,
			says:  "comes from no catalog",
		},
		{
			name: "the account, for a name that only the spec lists", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated, onlyInSpec)}, want: verdict.Deny,
			says: "comes from no catalog",
		},
		{
			name: "the account of a plan for an image", user: account, spec: etcdSpec, policy: allowed,
			plans: []*olm.InstallPlan{installing(t, "", attenuated)}, want: verdict.Allow,
		},
		{
			name: "the account of a plan for an image from another catalog", user: account, spec: etcdSpec,
			policy: allowed,
			plans:  []*olm.InstallPlan{installing(t, "", attenuated, foreign)}, want: verdict.Deny,
			says: "from catalog olm/bargain-catalog",
		},
		{
			name: "the account of a plan from before the policy", user: account, spec: etcdSpec, policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, attenuated)}, want: verdict.Deny,
			says: "allowed is etcd.v0.9.4",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{c.policy}, Plans: c.plans})
			v := JudgeCSV(CSVInput{New: written(t, c.spec), Namespace: ns, ByOLM: c.byOLM, User: c.user})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s: %s\nwant %s with %q", v.Decision, v.Refusal(), c.want, c.says)
			}
		})
	}
}

// TestA5ImageSaysAnother: the account of a plan for an image writes a ClusterServiceVersion that contradicts the plan.
func TestA5ImageSaysAnother(t *testing.T) {
	plan := installing(t, "", func(p *olm.InstallPlan) { p.Status.ServiceAccount.Name = "weak" })
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))},
			Plans: []*olm.InstallPlan{plan}})
	csv := written(t, etcdSpec)
	csv.Metadata.Annotations.Properties = properties("vault", "0.1.9")
	v := JudgeCSV(CSVInput{New: csv, Namespace: ns, User: "system:serviceaccount:shop:weak"})
	if v.Decision != verdict.Hold || !strings.Contains(v.Refusal(), "both package etcd 0.9.2 and package vault 0.1.9") {
		t.Errorf("%s: %s", v.Decision, v.Refusal())
	}
}

// TestA6ContentsExchanged replaces contents that a policy has allowed; docs/rules.md, csv/frozen. Live in e2e.
func TestA6ContentsExchanged(t *testing.T) {
	done := installing(t, etcdSpec,
		func(p *olm.InstallPlan) { p.Status.Phase, p.Status.Steps[0].Status = olm.PhaseComplete, "Created" })
	ns := func(spec string) *state.Namespace {
		installed, _ := installedBy(written(t, spec))
		return state.NewNamespace("shop",
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2", "etcd.v0.9.4"))},
				Plans: []*olm.InstallPlan{done}, CSVs: []state.Installed{installed},
				Subscriptions: []*olm.Subscription{subscribed("etcd", "etcd.v0.9.4", "etcd.v0.9.2")}})
	}
	for _, c := range []struct {
		name     string
		old, new string
		byOLM    bool
		byOpgate bool
		want     verdict.Decision
	}{
		{name: "another Deployment", old: etcdSpec, new: otherSpec, want: verdict.Deny},
		{name: "another Deployment by OLM", old: etcdSpec, new: otherSpec, byOLM: true, want: verdict.Allow},
		{name: "another Deployment by Opgate", old: etcdSpec, new: otherSpec, byOpgate: true, want: verdict.Allow},
		{name: "the contents of the plan written back", old: otherSpec, new: etcdSpec, want: verdict.Deny},
		// TestP1PlantedPlan has those of the record
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgeCSV(CSVInput{Old: written(t, c.old), New: written(t, c.new), Namespace: ns(c.old), ByOLM: c.byOLM,
				ByOpgate: c.byOpgate})
			if v.Decision != c.want || c.want != verdict.Allow && !strings.Contains(v.Refusal(), "(csv/frozen)") {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
		})
	}
	if ns(etcdSpec).Drifted("etcd.v0.9.2") || !ns(otherSpec).Drifted("etcd.v0.9.2") ||
		ns(otherSpec).Drifted("etcd.v0.9.4") {
		t.Error("contents drift where they are not those of the plan, and only there")
	}
	upgrade := pendingPlan("etcd 0.9.4")
	upgrade.Metadata.Name = "install-next"
	for spec, want := range map[string]bool{etcdSpec: true, otherSpec: false} {
		n := ns(spec)
		n.Subscriptions()[0].Status.InstallPlan.Name = upgrade.Metadata.Name
		a := JudgeApproval(ApprovalInput{Plan: upgrade, Namespace: n})
		if a.Should() != want {
			t.Errorf("the loop approves an upgrade: %v, want %v (%v)", a.Should(), want, a.Blockers)
		}
	}
}

// TestA10CopyMadeReal removes or changes the label of a copy. Live in e2e.
func TestA10CopyMadeReal(t *testing.T) {
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.4"))}})
	copied := func(from string) *olm.CSV {
		csv := written(t, etcdSpec)
		csv.Metadata.Labels.CopiedFrom = from
		return csv
	}
	for to, want := range map[string]verdict.Decision{"": verdict.Deny, "another": verdict.Deny,
		"elsewhere": verdict.Allow} {
		v := JudgeCSV(CSVInput{Old: copied("elsewhere"), New: copied(to), Namespace: ns})
		if v.Decision != want || want != verdict.Allow && !strings.Contains(v.Refusal(), "(bundle/version)") {
			t.Errorf("to %q: %s: %s", to, v.Decision, v.Refusal())
		}
		if v := JudgeCSV(CSVInput{Old: copied("elsewhere"), New: copied(to), Namespace: ns,
			ByOLM: true}); v.Decision != verdict.Allow {
			t.Errorf("to %q by OLM: %s", to, v.Refusal())
		}
	}
}

// TestStepAccounts: OLM writes as the accounts of OperatorGroups, and of plans that run from before the group was
// changed.
func TestStepAccounts(t *testing.T) {
	group, err := olm.Decode[olm.OperatorGroup]([]byte(`{"metadata":{"name":"g"},"spec":{"serviceAccountName":"installer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	running, waiting := pendingPlan("etcd 0.9.2"), pendingPlan("etcd 0.9.4")
	running.Spec.Approved, running.Status.Phase, running.Status.ServiceAccount.Name = true, olm.PhaseInstalling,
		"earlier"
	waiting.Status.ServiceAccount.Name = "waiting"
	ns := state.NewNamespace("shop", state.NamespaceContents{Groups: []*olm.OperatorGroup{group},
		Plans: []*olm.InstallPlan{running, waiting}})
	if got := ns.StepAccounts(); !slices.Equal(got, []string{"earlier", "installer"}) {
		t.Errorf("accounts are %v", got)
	}
	if got := (*state.Namespace)(nil).StepAccounts(); len(got) > 0 {
		t.Errorf("accounts of no namespace are %v", got)
	}
}
