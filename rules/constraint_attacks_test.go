package rules

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// kubernetes is the cluster version in these tests.
const kubernetes = "1.36.3"

// ruleOf returns a Constraint with one CEL rule, in the syntax of the proposal (R-CO-4).
func ruleOf(name, rule, message string, action constraint.Action) *constraint.Definition {
	value := map[string]any{"rule": rule, "message": message, "action": map[string]any{"id": action}}
	text, err := json.Marshal([]any{map[string]any{"type": "olm.constraint", "value": value}})
	if err != nil {
		panic(err)
	}
	return constraint.Define(constraint.Meta{Name: name}, &constraintv1.ConstraintSpec{Constraints: string(text)})
}

// aroundKubernetes are the facts about a cluster of which the version is known.
var aroundKubernetes = &facts.Cluster{Version: kubernetes}

func under(definitions ...*constraint.Definition) *constraint.Set {
	return constraint.NewSet(definitions, *aroundKubernetes)
}

var (
	certified = ruleOf("certified", `properties.exists(p, p.type == "certified")`, "only certified operators",
		constraint.Require)
	curated = ruleOf("curated", `!("tenant" in namespaceObject.metadata.labels) || catalog.name == "curated"`,
		"tenants use the curated catalog", constraint.Require)
)

// withProperties adds properties to all bundles of a plan.
func withProperties(p *olm.InstallPlan, properties string) *olm.InstallPlan {
	for i := range p.Status.BundleLookups {
		l := &p.Status.BundleLookups[i]
		l.Properties = strings.TrimSuffix(l.Properties, `]}`) + `,` + properties + `]}`
	}
	return p
}

// withStep adds the ClusterServiceVersion of an inline bundle as a step.
func withStep(p *olm.InstallPlan, csv string, m olm.Manifest) *olm.InstallPlan {
	p.Status.Steps = append(p.Status.Steps,
		olm.Step{Resource: olm.StepResource{Kind: "ClusterServiceVersion", Name: csv, Manifest: m}})
	return p
}

// TestConstraintsNamedAsAttacks judges plans under Constraints in namespaces without a policy.
func TestConstraintsNamedAsAttacks(t *testing.T) {
	faulty := constraint.Define(constraint.Meta{Name: "faulty"}, &constraintv1.ConstraintSpec{Constraints: `[{"type":`})
	erring := ruleOf("erring", `properties.exists_one(p, p.value.certified == true)`, "", constraint.Require)
	warning := ruleOf("warning", `packageName != "etcd"`, "etcd goes", constraint.Warn)
	const yes = `{"type":"certified","value":true}`
	twoLists := withStep(withProperties(pendingPlan("etcd 0.9.2"), yes), "etcd.v0.9.2",
		olm.Manifest{Properties: properties("etcd", "0.9.2")})
	for name, c := range map[string]struct {
		plan     *olm.InstallPlan
		contents state.NamespaceContents
		want     verdict.Decision
		says     string
	}{
		"satisfied": {withProperties(pendingPlan("etcd 0.9.2"), yes),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Allow, ""},
		"violated": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(certified)}, verdict.Deny, "only certified operators"},
		"one certified carries one that is not": {mixed(yes), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(certified)}, verdict.Deny, "vault.v0.1.9 is not allowed by Constraint certified"},
		"properties that nothing tells": {nameless("etcd.v0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(certified)}, verdict.Hold, "(bundle/constraint)"},
		"properties told twice and differently": {twoLists, state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(certified)}, verdict.Hold, "(bundle/constraint)"},
		"a Constraint that cannot be read": {withProperties(pendingPlan("etcd 0.9.2"), yes),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(faulty)}, verdict.Hold, "Constraint faulty"},
		"one cannot be read, another refuses": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(faulty, certified)}, verdict.Deny, "only certified operators"},
		"an error at run time": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(erring)}, verdict.Hold, "Constraint erring"},
		"an error at run time beside others": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(erring, certified)}, verdict.Deny, "only certified operators"},
		"a warning refuses nothing": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(warning)}, verdict.Allow, ""},
		"labels that are not known yet": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Facts: aroundKubernetes,
			Constraints: under(curated)}, verdict.Hold, "Constraint curated"},
		"a namespace without labels": {pendingPlan("etcd 0.9.2"), state.NamespaceContents{Exists: true,
			Facts: aroundKubernetes, Constraints: under(curated)}, verdict.Allow, ""},
		"a tenant, from elsewhere": {pendingPlan("etcd 0.9.2"),
			state.NamespaceContents{Exists: true, Labels: map[string]string{"tenant": "a"}, Facts: aroundKubernetes,
				Constraints: under(curated)}, verdict.Deny, "tenants use the curated catalog"},
		"two catalogs for one bundle": {fromCatalog(withStep(pendingPlan("etcd 0.9.2"), "etcd.v0.9.2", olm.Manifest{}),
			"curated"),
			state.NamespaceContents{Exists: true, Labels: map[string]string{"tenant": "a"}, Facts: aroundKubernetes,
				Constraints: under(curated)}, verdict.Hold, "Constraint curated"},
		"a newer Kubernetes is needed": {withStep(withProperties(pendingPlan("etcd 0.9.2"), yes), "etcd.v0.9.2",
			inline("1.40.0")),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Hold,
			"needs Kubernetes 1.40.0 or newer"},
		"a newer Kubernetes is needed, and nothing may refuse": {withStep(pendingPlan("etcd 0.9.2"), "etcd.v0.9.2",
			inline("1.40.0")),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under()}, verdict.Allow, ""},
		"an older Kubernetes would do": {withStep(withProperties(pendingPlan("etcd 0.9.2"), yes), "etcd.v0.9.2",
			inline("v1.36")),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Allow, ""},
		"a version that is none": {withStep(withProperties(pendingPlan("etcd 0.9.2"), yes), "etcd.v0.9.2",
			inline("soon")),
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Hold,
			"(bundle/kube-version)"},
	} {
		t.Run(name, func(t *testing.T) {
			carrier.PreparePlan(c.plan)
			v := JudgePlan(PlanInput{Plan: c.plan, Namespace: state.NewNamespace("shop", c.contents)})
			if v.Decision != c.want {
				t.Errorf("decision is %s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("refusal has no %q: %s", c.says, v.Refusal())
			}
		})
	}
}

// inline is the manifest of a bundle that the catalog contains.
func inline(minKubeVersion string) olm.Manifest {
	return olm.Manifest{Spec: &olm.CSVSpec{MinKubeVersion: minKubeVersion}}
}

// mixed is a plan in which only the first bundle has a property.
func mixed(property string) *olm.InstallPlan {
	plan := withProperties(pendingPlan("etcd 0.9.2"), property)
	other := pendingPlan("vault 0.1.9")
	plan.Spec.CSVNames = append(plan.Spec.CSVNames, other.Spec.CSVNames...)
	plan.Status.BundleLookups = append(plan.Status.BundleLookups, other.Status.BundleLookups...)
	return plan
}

// fromCatalog sets a catalog for the last step.
func fromCatalog(p *olm.InstallPlan, catalog string) *olm.InstallPlan {
	last := &p.Status.Steps[len(p.Status.Steps)-1].Resource
	last.CatalogNamespace, last.CatalogName = "olm", catalog
	return p
}

// TestOwnConstraints judges the constraints of bundles.
func TestOwnConstraints(t *testing.T) {
	const needs = `{"type":"olm.constraint","value":{"failureMessage":"needs a secured cluster","cel":{"rule":"properties.exists(p, p.type == \"olm.label\" && p.value.label == \"secured\")"}}}`
	secured := constraint.Define(constraint.Meta{Name: "offers"},
		&constraintv1.ConstraintSpec{Properties: `[{"type":"olm.label","value":{"label":"secured"}}]`})
	const label = `{"type":"olm.label","value":{"label":"secured"}}`
	installed := func(pkg string) []state.Installed {
		csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: pkg + ".v1.0.0", Annotations: olm.Annotations{
			Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"` + pkg +
				`","version":"1.0.0"}},` + label + `]}`}}}
		i, _ := installedBy(csv)
		return []state.Installed{i}
	}
	source := policyFor("etcd", nil)
	for name, c := range map[string]struct {
		contents state.NamespaceContents
		want     verdict.Decision
		warnings int
	}{
		"nothing offers it": {state.NamespaceContents{Policies: []*operatorpolicy.Policy{source},
			Facts: aroundKubernetes, Constraints: under()}, verdict.Hold, 0},
		"nothing offers it, and nothing may refuse": {state.NamespaceContents{Facts: aroundKubernetes, Constraints: under()},
			verdict.Allow, 1},
		"the cluster offers it": {state.NamespaceContents{Policies: []*operatorpolicy.Policy{source},
			Facts: aroundKubernetes, Constraints: under(secured)}, verdict.Allow, 0},
		"what is installed offers it": {state.NamespaceContents{Policies: []*operatorpolicy.Policy{source},
			Facts: aroundKubernetes, Constraints: under(), CSVs: installed("vault")}, verdict.Allow, 0},
		"only what it replaces offers it": {state.NamespaceContents{Policies: []*operatorpolicy.Policy{source},
			Facts: aroundKubernetes, Constraints: under(), CSVs: installed("etcd")}, verdict.Hold, 0},
	} {
		t.Run(name, func(t *testing.T) {
			plan := withProperties(pendingPlan("etcd 0.9.2"), needs)
			carrier.PreparePlan(plan)
			v := JudgePlan(PlanInput{Plan: plan, Namespace: state.NewNamespace("shop", c.contents)})
			if v.Decision != c.want || len(v.Warnings) != c.warnings {
				t.Errorf("decision is %s with %d warnings, want %s with %d: %s %v", v.Decision, len(v.Warnings), c.want,
					c.warnings, v.Refusal(), v.WarningTexts())
			}
			if v.Decision == verdict.Hold && !strings.Contains(v.Refusal(), "needs a secured cluster") {
				t.Errorf("the refusal does not say why: %s", v.Refusal())
			}
		})
	}
}

// TestBinding shows which Subscriptions Constraints change to Manual, and that they are restored to what they
// requested.
func TestBinding(t *testing.T) {
	tenant := state.NamespaceContents{Exists: true, Labels: map[string]string{"tenant": "a"}, Facts: aroundKubernetes,
		Constraints: under(curated)}
	nobody := state.NamespaceContents{Exists: true, Facts: aroundKubernetes, Constraints: under(curated)}
	sub := func(approval, requested string) *olm.Subscription {
		s := subscriptionTo("etcd")
		s.Spec.InstallPlanApproval = approval
		s.Metadata.Annotations = olm.Annotations{RequestedApproval: requested, Present: requested != ""}
		return s
	}
	governed := tenant
	governed.Policies = []*operatorpolicy.Policy{policyFor("etcd", nil)}
	for name, c := range map[string]struct {
		contents state.NamespaceContents
		sub      *olm.Subscription
		want     string // the JSON patch
	}{
		"Automatic waits": {tenant, sub("Automatic", ""),
			`[{"op":"add","path":"/spec/installPlanApproval","value":"Manual"},{"op":"add","path":"/metadata/annotations","value":{"opgate.io/requested-approval":"Automatic"}}]`},
		"nothing said waits": {tenant, sub("", "Automatic"),
			`[{"op":"add","path":"/spec/installPlanApproval","value":"Manual"},{"op":"add","path":"/metadata/annotations/opgate.io~1requested-approval","value":"Automatic"}]`},
		"Manual by hand stays": {tenant, sub("Manual", ""), `[]`},
		"waiting goes on":      {tenant, sub("Manual", "Automatic"), `[]`},
		"where nothing binds":  {nobody, sub("Automatic", ""), `[]`},
		"given back": {nobody, sub("Manual", "Automatic"),
			`[{"op":"add","path":"/spec/installPlanApproval","value":"Automatic"},{"op":"remove","path":"/metadata/annotations/opgate.io~1requested-approval"}]`},
		"a namespace that is not known yet": {state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)},
			sub("Automatic", ""), `[]`},
		"a cluster that is not known yet": {state.NamespaceContents{Exists: true,
			Constraints: constraint.NewSet([]*constraint.Definition{certified}, facts.Cluster{})}, sub("Automatic", ""),
			`[]`},
		"not while a plan waits": {state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
			Constraints: under(curated), Plans: []*olm.InstallPlan{pendingPlan("etcd 0.9.2")}}, sub("Manual",
			"Automatic"), `[]`},
		"by hand is not given back": {nobody, sub("Manual", ""), `[]`},
		"a neighbour's user approves the plan": {state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
			Constraints: under(curated), Plans: []*olm.InstallPlan{pendingPlan("etcd 0.9.2")},
			Subscriptions: []*olm.Subscription{sub("Manual", "")}}, sub("Manual", "Automatic"),
			`[{"op":"add","path":"/spec/installPlanApproval","value":"Automatic"},{"op":"remove","path":"/metadata/annotations/opgate.io~1requested-approval"}]`},
		"a policy decides": {governed, sub("Automatic", ""), `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := json.Marshal(verdict.Patch(ApprovalChanges(c.sub, state.NewNamespace("shop", c.contents))))
			if err != nil {
				t.Fatal(err)
			}
			if string(patch) != c.want {
				t.Errorf("patch is\n%s\nwant\n%s", patch, c.want)
			}
		})
	}
	if mode, because := state.NewNamespace("shop", governed).Approval(governed.Policies[0]); mode != olm.ApprovalManual ||
		!strings.Contains(because, "Constraint curated") {
		t.Errorf("under a Constraint the policy wants %s, since %s", mode, because)
	}
}

// TestLoopUnderConstraints shows which plans the loop approves if no policy governs anything.
func TestLoopUnderConstraints(t *testing.T) {
	const yes = `{"type":"certified","value":true}`
	following := func(pkg, approval, requested string) *olm.Subscription {
		s := subscribed(pkg, pkg+".v0.9.2", "")
		s.Spec.InstallPlanApproval = approval
		s.Status.InstallPlan.Name = "install-x7"
		s.Metadata.Name = pkg
		s.Metadata.Annotations.RequestedApproval = requested
		return s
	}
	for name, c := range map[string]struct {
		subscriptions []*olm.Subscription
		plan          *olm.InstallPlan
		mode          UngovernedMode
		waits, should bool
	}{
		"asked for Automatic": {[]*olm.Subscription{following("etcd", "Manual", "Automatic")},
			withProperties(pendingPlan("etcd 0.9.2"), yes), ApproveUngoverned, true, true},
		"violates": {[]*olm.Subscription{following("etcd", "Manual", "Automatic")},
			pendingPlan("etcd 0.9.2"), ApproveUngoverned, true, false},
		"a person wants to approve": {[]*olm.Subscription{following("etcd", "Manual", "")},
			withProperties(pendingPlan("etcd 0.9.2"), yes), ApproveUngoverned, false, false},
		"a neighbour's person does": {[]*olm.Subscription{following("etcd", "Manual", "Automatic"),
			following("vault", "Manual", "")}, withProperties(pendingPlan("etcd 0.9.2"), yes), ApproveUngoverned, false,
			false},
		"held by the namespace": {[]*olm.Subscription{following("etcd", "Manual", "Automatic")},
			withProperties(pendingPlan("etcd 0.9.2"), yes), HoldUngoverned, true, false},
		"a dependency without a Subscription": {[]*olm.Subscription{following("etcd", "Manual", "Automatic")},
			withProperties(pendingPlan("etcd 0.9.2", "vault 0.1.9"), yes), ApproveUngoverned, true, false},
		"a dependency that is required": {[]*olm.Subscription{following("etcd", "Manual", "Automatic")},
			withProperties(pendingPlan("etcd 0.9.2 vault", "vault 0.1.9"), yes), ApproveUngoverned, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Subscriptions: c.subscriptions,
				Plans: []*olm.InstallPlan{c.plan}, Facts: aroundKubernetes, Constraints: under(certified)})
			a := JudgeApproval(ApprovalInput{Plan: c.plan, Namespace: ns, Ungoverned: c.mode})
			if a.IsCandidate != c.waits || a.Should() != c.should {
				t.Errorf("waits %v, should %v; want %v, %v (%s; %v)", a.IsCandidate, a.Should(), c.waits, c.should,
					a.Verdict.Refusal(), a.Blockers)
			}
		})
	}
}

// TestCSVNamedAsAttacks judges ClusterServiceVersions that a user writes without OLM, or in its name.
func TestCSVNamedAsAttacks(t *testing.T) {
	csv := func(name, props string, edit ...func(*olm.CSV)) *olm.CSV {
		c := &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: name,
			Annotations: olm.Annotations{Properties: props, Present: true}}}
		for _, e := range edit {
			e(c)
		}
		return c
	}
	fake := func(c *olm.CSV) { c.Metadata.Labels.VirtualOperator = new("offers") }
	copied := func(c *olm.CSV) { c.Metadata.Labels.CopiedFrom = "elsewhere" }
	const etcd = `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}},{"type":"certified","value":true}]}`
	running := func(approval string, phase string) *olm.InstallPlan {
		p := pendingPlan("etcd 0.9.2")
		p.Spec.Approval, p.Spec.Approved, p.Status.Phase = approval, true, phase
		return p
	}
	unapproved := running(olm.ApprovalManual, olm.PhaseRequiresApproval)
	unapproved.Spec.Approved = false
	pinned := policyFor("etcd", versions("etcd.v0.9.4"))
	for name, c := range map[string]struct {
		in       CSVInput
		contents state.NamespaceContents
		want     verdict.Decision
		says     string
	}{
		"past OLM, by its own properties": {CSVInput{New: csv("etcd.v0.9.2", etcd)},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Hold,
			"states of itself"},
		"past OLM, violated": {CSVInput{New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"))},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Deny,
			"(bundle/constraint)"},
		"past OLM, from no catalog": {CSVInput{New: csv("etcd.v0.9.2", etcd)}, state.NamespaceContents{Exists: true,
			Labels: map[string]string{"tenant": "a"}, Facts: aroundKubernetes, Constraints: under(curated)},
			verdict.Deny,
			"(bundle/constraint)"},
		"past OLM, against a policy": {CSVInput{New: csv("etcd.v0.9.2", etcd)},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Deny, "(bundle/version)"},
		"past OLM, says nothing of itself": {CSVInput{New: csv("etcd.v0.9.2", "")},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Hold, "(bundle/unknown)"},
		"a copy that is none": {CSVInput{New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"), copied)},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Deny,
			"(bundle/constraint)"},
		"a copy by OLM": {CSVInput{New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"), copied),
			ByOLM: true}, state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Allow, ""},
		"a step of a plan that was approved before the Constraint": {CSVInput{New: csv("etcd.v0.9.2", ""), ByOLM: true},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				Plans: []*olm.InstallPlan{running("Manual", olm.PhaseInstalling)}}, verdict.Deny,
			"(bundle/constraint)"},
		"a step of a plan that was approved from the start": {CSVInput{New: csv("etcd.v0.9.2", ""), ByOLM: true},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				Plans: []*olm.InstallPlan{running("Automatic", olm.PhaseInstalling)}}, verdict.Deny,
			"(bundle/constraint)"},
		"a step that OLM repeats": {CSVInput{New: csv("etcd.v0.9.2", properties("etcd", "0.9.2")), ByOLM: true},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				CSVs:  []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.2", Spec: &olm.CSVSpec{}}}},
				Plans: []*olm.InstallPlan{running("Automatic", olm.PhaseInstalling)}}, verdict.Allow, ""},
		"past OLM, of the name of one that is there": {CSVInput{New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"))},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.2", Spec: &olm.CSVSpec{}}}}}, verdict.Deny, "(bundle/constraint)"},
		"the name of a plan that is not approved": {CSVInput{New: csv("etcd.v0.9.2", "")},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				Plans: []*olm.InstallPlan{unapproved}},
			verdict.Deny, "(bundle/constraint)"},
		"by OLM, before its plan is seen": {CSVInput{New: csv("etcd.v0.9.2", etcd), ByOLM: true},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Deny, "(bundle/version)"},
		"the name of a plan that is done": {CSVInput{New: csv("etcd.v0.9.2", "")},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified),
				Plans: []*olm.InstallPlan{running("Manual", olm.PhaseComplete)}}, verdict.Deny, "(bundle/constraint)"},
		"a forged virtual operator": {CSVInput{New: csv("etcd.v0.9.2", etcd, fake)}, state.NamespaceContents{}, verdict.Deny,
			"(csv/virtual-operator)"},
		"by OLM's identity as well": {CSVInput{New: csv("etcd.v0.9.2", etcd, fake), ByOLM: true}, state.NamespaceContents{},
			verdict.Deny, "(csv/virtual-operator)"},
		"by Opgate": {CSVInput{New: csv("etcd.v0.9.2", etcd, fake), ByOpgate: true},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Allow, ""},
		"other properties": {CSVInput{Old: csv("v", etcd, fake), New: csv("v", properties("etcd", "0.9.2"), fake)},
			state.NamespaceContents{}, verdict.Deny, "(csv/virtual-operator)"},
		"the label taken off": {CSVInput{Old: csv("v", etcd, fake), New: csv("v", etcd)}, state.NamespaceContents{},
			verdict.Deny, "(csv/virtual-operator)"},
		"OLM's own annotations": {CSVInput{Old: csv("v", etcd, fake), New: csv("v", etcd, fake), ByOLM: true},
			state.NamespaceContents{}, verdict.Allow, ""},
		"properties edited afterwards": {CSVInput{Old: csv("etcd.v0.9.2", etcd),
			New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"))},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Deny,
			"(bundle/constraint)"},
		"an edit of one that violated it before": {CSVInput{Old: csv("etcd.v0.9.2", properties("etcd", "0.9.2")),
			New: csv("etcd.v0.9.2", properties("etcd", "0.9.2"), func(c *olm.CSV) { c.Spec.Digest[0]++ })},
			state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)}, verdict.Allow, ""},
		"an edit of one that a policy does not allow any more": {CSVInput{Old: csv("etcd.v0.9.2", etcd),
			New: csv("etcd.v0.9.2", etcd, func(c *olm.CSV) { c.Spec.Digest[0]++ })},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Deny, "(csv/frozen)"},
		"another version by an edit": {CSVInput{Old: csv("etcd.v0.9.4", properties("etcd", "0.9.4")),
			New: csv("etcd.v0.9.4", properties("vault", "0.1.9"))},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("vault", versions("vault.v0.1.8"))}}, verdict.Deny,
			"(bundle/version)"},
		"a governed package by an edit of its name": {CSVInput{Old: csv("etcd.v0.9.4", properties("etcd", "0.9.4")),
			New: csv("etcd.v0.9.4", properties("innocent", "0.9.4"))},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Deny, "something else than package etcd"},
		"a governed package that plays a copy": {CSVInput{Old: csv("etcd.v0.9.4", properties("etcd", "0.9.4")),
			New: csv("etcd.v0.9.4", properties("etcd", "0.9.4"), copied)},
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{pinned}}, verdict.Deny, "something else than package etcd"},
		"nothing is judged here": {CSVInput{New: csv("etcd.v0.9.2", "")}, state.NamespaceContents{}, verdict.Allow, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Namespace = state.NewNamespace("shop", c.contents)
			v := JudgeCSV(c.in)
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("decision is %s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
		})
	}
}

// TestContents judges by the contents of a ClusterServiceVersion, which a plan has only for bundles that the catalog
// contains (threat O13).
func TestContents(t *testing.T) {
	set := under(
		ruleOf("no-admins", `!clusterPermissions.exists(r, "*" in r.apiGroups && "*" in r.resources && "*" in r.verbs)`,
			"no cluster admins", constraint.Require),
		ruleOf("no-webhooks", `!webhooks.exists(w, sets.intersects(w.apiGroups, ["*", "policy.open-cluster-management.io"]))`, "no webhooks on policies", constraint.Require),
	)
	contents := func(spec string) olm.CSVSpec {
		csv, err := olm.Decode[olm.CSV]([]byte(`{"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return csv.Spec
	}
	plain := contents(`{"install":{"spec":{"clusterPermissions":[{"rules":[{"apiGroups":["apps"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["/metrics"],"verbs":["get"]}]}]}},
		"webhookdefinitions":[{"type":"ConversionWebhook"},{"type":"ValidatingAdmissionWebhook","rules":[{"apiGroups":["etcd.example.com"],"resources":["*"]}]}]}`)
	admin := contents(`{"install":{"spec":{"clusterPermissions":[{"rules":[{"apiGroups":["apps"],"resources":["*"],"verbs":["*"]}]},{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","*"]}]}]}}}`)
	hook := contents(`{"webhookdefinitions":[{"type":"MutatingAdmissionWebhook","rules":[{"apiGroups":["apps"]},{"apiGroups":["policy.open-cluster-management.io"]}]}]}`)
	for name, c := range map[string]struct {
		spec olm.CSVSpec
		want verdict.Decision
		says string
	}{
		"plain":    {plain, verdict.Allow, ""},
		"admin":    {admin, verdict.Deny, "no cluster admins"},
		"webhooks": {hook, verdict.Deny, "no webhooks on policies"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Facts: aroundKubernetes, Constraints: set})
			inCatalog := JudgePlan(PlanInput{Namespace: ns,
				Plan: withStep(pendingPlan("etcd 0.9.2"), "etcd.v0.9.2", olm.Manifest{Spec: &c.spec})})
			byImage := JudgePlan(PlanInput{Namespace: ns, Plan: pendingPlan("etcd 0.9.2")})
			running := pendingPlan("etcd 0.9.2")
			running.Spec.Approval, running.Spec.Approved, running.Status.Phase = olm.ApprovalManual, true,
				olm.PhaseInstalling
			step := JudgeCSV(CSVInput{ByOLM: true,
				New: &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd.v0.9.2"}, Spec: c.spec},
				Namespace: state.NewNamespace("shop", state.NamespaceContents{Constraints: set,
					Plans: []*olm.InstallPlan{running}})})
			if byImage.Decision != verdict.Hold || len(byImage.Reasons) != 2 {
				t.Errorf("by image, of which nothing is read, the plan is judged %s with %d reasons, want Hold with two: %s",
					byImage.Decision, len(byImage.Reasons), byImage.Refusal())
			}
			for what, v := range map[string]verdict.Verdict{"in a plan": inCatalog, "as a step": step} {
				if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
					t.Errorf("%s it is %s, want %s with %q: %s", what, v.Decision, c.want, c.says, v.Refusal())
				}
			}
		})
	}
}

// TestPlansBornApprovedUnderConstraints holds plans that OLM would run at once.
func TestPlansBornApprovedUnderConstraints(t *testing.T) {
	plan := &olm.InstallPlanHead{Metadata: olm.ObjectMeta{Namespace: "shop", GenerateName: "install-"},
		Spec: olm.InstallPlanSpec{CSVNames: []string{"etcd.v0.9.2"}, Approved: true}}
	for name, c := range map[string]struct {
		contents state.NamespaceContents
		byOLM    bool
		want     verdict.Decision
	}{
		"by OLM, where a Constraint binds": {state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)},
			true, verdict.Hold},
		"by OLM, where none does": {state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
			Constraints: under(curated)}, true, verdict.Allow},
		"by hand, where a Constraint binds": {state.NamespaceContents{Facts: aroundKubernetes, Constraints: under(certified)},
			false, verdict.Deny},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgePlanCreate(PlanCreateInput{New: plan, Namespace: state.NewNamespace("shop", c.contents),
				ByOLM: c.byOLM})
			if v.Decision != c.want {
				t.Errorf("decision is %s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}

// TestOverrideOfConstraints checks what an approver needs to set a Constraint aside.
func TestOverrideOfConstraints(t *testing.T) {
	plan := withStep(pendingPlan("etcd 0.9.2"), "etcd.v0.9.2", inline("1.99.0"))
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.4"))},
			Facts: aroundKubernetes, Constraints: under(certified)})
	v := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
	needs, ok := OverrideNeeds(&v, ns)
	want := []verdict.PolicyRef{{Kind: verdict.KindConstraint, Name: "certified"}, {Kind: verdict.KindOperatorPolicy,
		Namespace: "policies", Name: "etcd"}}
	slices.SortFunc(needs, func(a, b verdict.PolicyRef) int { return strings.Compare(a.String(), b.String()) })
	if !ok || !slices.Equal(needs, want) {
		t.Errorf("needs %v, %v; want %v", needs, ok, want)
	}
}

// TestStartingCSVCountsOnce: an update ignores the first version.
func TestStartingCSVCountsOnce(t *testing.T) {
	banned := ruleOf("banned", `csv != "etcd.v0.9.2"`, "", constraint.Require)
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes, Constraints: under(banned)})
	sub, old := subscriptionTo("etcd"), subscriptionTo("etcd")
	sub.Spec.StartingCSV, sub.Spec.InstallPlanApproval = "etcd.v0.9.2", olm.ApprovalManual
	old.Spec, old.Spec.Channel = sub.Spec, "another"
	if v := JudgeSubscription(SubscriptionInput{New: sub, Namespace: ns}); v.Decision != verdict.Deny {
		t.Errorf("a new Subscription is judged %s: %s", v.Decision, v.Refusal())
	}
	if v := JudgeSubscription(SubscriptionInput{New: sub, Old: old,
		Namespace: ns}); v.Decision != verdict.Allow {
		t.Errorf("an update is judged %s: %s", v.Decision, v.Refusal())
	}
}

// TestNewestVersionIsWarnedOf warns of the newest version once, and not if it is refused already.
func TestNewestVersionIsWarnedOf(t *testing.T) {
	offered := &catalog.Package{Channels: []catalog.Channel{{
		Name:           "stable",
		MinKubeVersion: "1.99.0",
		Entries: []catalog.Entry{{Name: "etcd.v1.2.0", Version: "1.2.0"},
			{Name: "etcd.v0.9.2", Version: "0.9.2"}},
	}}}
	old := ruleOf("old", `version == "" || semver_compare(version, "1.0.0") < 0`, "", constraint.Require)
	gone := ruleOf("gone", `packageName != "etcd"`, "", constraint.Require)
	for name, c := range map[string]struct {
		set      *constraint.Set
		refusals int
		warnings int
	}{
		"the newest violates, and needs a newer Kubernetes": {under(old), 0, 2},
		"the package is refused anyway":                     {under(gone), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sub := subscriptionTo("etcd")
			sub.Spec.InstallPlanApproval = olm.ApprovalManual
			v := JudgeSubscription(SubscriptionInput{New: sub, Offered: offered,
				Namespace: state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
					Constraints: c.set})})
			if len(v.Reasons) != c.refusals || len(v.Warnings) != c.warnings {
				t.Errorf("%d refusals and %d warnings, want %d and %d: %s %q", len(v.Reasons), len(v.Warnings),
					c.refusals, c.warnings, v.Refusal(), v.WarningTexts())
			}
		})
	}
}

// TestConstraintAnnotations: the annotation that selects namespaces of virtual operators is judged like the spec.
func TestConstraintAnnotations(t *testing.T) {
	old := &constraintv1.Constraint{}
	old.Name, old.Spec.Properties = "acme", `[{"type":"acme","value":1}]`
	stored := under(ruleOf(old.Name, "cluster.properties.size() > 0", "", constraint.Require))
	if v := JudgeConstraint(ConstraintInput{Constraint: old, Constraints: stored}); len(v.Warnings) != 1 {
		t.Errorf("properties that only the rules read that it replaces: %q", v.WarningTexts())
	}
	changed := old.DeepCopy()
	changed.Annotations = map[string]string{metakey.VirtualOperatorNamespaces: "team is a"}
	if v := JudgeConstraint(ConstraintInput{Constraint: changed, Old: old}); v.Decision != verdict.Deny {
		t.Errorf("a selector that is none is judged %s", v.Decision)
	}
	changed.Spec.Properties = ""
	changed.Annotations[metakey.VirtualOperatorNamespaces] = "team=a"
	if v := JudgeConstraint(ConstraintInput{Constraint: changed, Old: old}); v.Decision != verdict.Allow ||
		!strings.Contains(strings.Join(v.WarningTexts(), "\n"), "creates no virtual operator") {
		t.Errorf("an annotation without properties is judged %s with %q", v.Decision, v.WarningTexts())
	}
}

// TestVirtualOperators: their names are short and distinct, and they install nothing.
func TestVirtualOperators(t *testing.T) {
	long := strings.Repeat("a", 100)
	names := []string{VirtualOperatorName(long), VirtualOperatorName(long + "b"), VirtualOperatorLabelValue(long),
		VirtualOperatorLabelValue(long + "b")}
	for i, name := range names {
		if len(name) > 63 || slices.Contains(names[:i], name) {
			t.Errorf("%q is too long, or not the only one", name)
		}
	}
	if got, want := VirtualOperatorName("hardware"), "opgate-properties-hardware"; got != want {
		t.Errorf("it is called %s, want %s", got, want)
	}
	csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: names[0], Labels: olm.Labels{VirtualOperator: &long}}}
	if _, here := installedBy(csv); here {
		t.Error("a virtual operator passes for one that is installed")
	}
}
