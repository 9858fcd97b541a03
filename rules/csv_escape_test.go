package rules

import (
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// TestA4Escapes judges what was stored while no replica was available. The live test of that name is in e2e.
func TestA4Escapes(t *testing.T) {
	phase := func(phase string) func(*olm.InstallPlan) { return func(p *olm.InstallPlan) { p.Status.Phase = phase } }
	unapproved := func(p *olm.InstallPlan) { p.Spec.Approved = false }
	reason := func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" }
	onlyInSpec := func(p *olm.InstallPlan) { p.Status.Steps, p.Status.BundleLookups = nil, nil }
	inform := policyFor("etcd", func(spec *policyv1beta2.OperatorPolicySpec) {
		versions("etcd.v0.9.4")(spec)
		spec.RemediationAction = "inform"
	})
	allowed, other := policyFor("etcd", versions("etcd.v0.9.2")), policyFor("etcd", versions("etcd.v0.9.4"))
	other.Object.Generation = 3
	completed := other.Completed(other.Object, nil)
	for _, c := range []struct {
		name   string
		edit   func(*olm.CSV)
		policy *operatorpolicy.Policy
		plans  []*olm.InstallPlan
		// known and refused are the outcome, generation that of the first reason.
		known, refused bool
		generation     int64
	}{
		{
			name: "an allowed plan", policy: allowed, plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			known: true,
		},
		{
			name: "a forbidden plan that is still running", policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			known: true, refused: true, generation: 3,
		},
		{
			name: "a forbidden plan that OLM has finished", policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, phase(olm.PhaseComplete))},
			known: true, refused: true, generation: 3,
		},
		{
			name: "a forbidden plan for an image", policy: other,
			plans: []*olm.InstallPlan{installing(t, "", phase(olm.PhaseComplete))},
			known: true, refused: true, generation: 3,
		},
		{
			name: "a policy whose template text was resolved", policy: completed,
			plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			known: true, refused: true,
		},
		{
			name: "a policy that only informs", policy: inform, plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			known: true,
		},
		{
			name: "an override let the plan through", policy: other,
			plans: []*olm.InstallPlan{installing(t, etcdSpec, reason, phase(olm.PhaseComplete))},
			known: true,
		},
		{
			name: "attack: the plan, and any override, is deleted", policy: other, refused: true, generation: 3,
		},
		{
			name: "control: the plan is deleted, and the version is allowed", policy: allowed,
		},
		{
			name: "a plan that is not approved has its name", policy: other,
			plans:   []*olm.InstallPlan{installing(t, etcdSpec, unapproved)},
			refused: true, generation: 3,
		},
		{
			name: "a plan lists its name and brings nothing", policy: other,
			plans:   []*olm.InstallPlan{installing(t, etcdSpec, onlyInSpec)},
			refused: true, generation: 3,
		},
		{
			name: "a copy", policy: other, plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			edit: func(c *olm.CSV) { c.Metadata.Labels.CopiedFrom = "elsewhere" },
		},
		{
			name: "a virtual operator", policy: other, plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			edit: func(c *olm.CSV) { c.Metadata.Labels.VirtualOperator = new("curated") },
		},
		{
			name: "it is being deleted", policy: other, plans: []*olm.InstallPlan{installing(t, etcdSpec)},
			edit: func(c *olm.CSV) { c.Metadata.DeletionTimestamp = "2026-11-22T00:00:00Z" },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			csv := written(t, etcdSpec)
			if c.edit != nil {
				c.edit(csv)
			}
			installed, _ := installedBy(written(t, etcdSpec))
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Policies: []*operatorpolicy.Policy{c.policy},
				Plans: c.plans, CSVs: []state.Installed{installed}})
			reasons, known := JudgeEscape(csv, ns)
			if known != c.known || (len(reasons) > 0) != c.refused {
				t.Fatalf("known %t, %+v", known, reasons)
			}
			if !c.refused {
				return
			}
			if r := reasons[0]; strings.Contains(r.Message, "the InstallPlan that installed it was deleted") == known ||
				r.PolicyRef != c.policy.Ref() || r.Generation != c.generation ||
				!strings.Contains(r.Message, "(bundle/version)") {
				t.Errorf("reason is %+v", r)
			}
		})
	}
}
