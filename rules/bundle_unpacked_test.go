package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// unpackedAs returns a Changes for plans whose ClusterServiceVersions all refer to one bundle; asked counts the calls.
func unpackedAs(bundle *olm.Bundle, asked *int) state.Changes {
	return func(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
		*asked++
		known := &state.PlanChanges{Plan: plan.ContentsDigest(), Replacements: replacements, ByCSV: map[string]*change.Set{},
			Bundles: map[string]*olm.Bundle{}}
		for _, r := range replacements {
			known.Bundles[r.CSV] = bundle
		}
		return known
	}
}

// bundleWith returns an unpacked bundle whose ClusterServiceVersion has a spec.
func bundleWith(t *testing.T, spec string, grants ...*olm.Grants) *olm.Bundle {
	t.Helper()
	csv := written(t, spec)
	csv.Spec.KeepDigest()
	return &olm.Bundle{Spec: &csv.Spec, Grants: grants}
}

const (
	allRights = `{"install":{"spec":{"clusterPermissions":[{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]}}}`
	noRights  = `{"install":{"spec":{"clusterPermissions":[{"rules":[{"apiGroups":["apps"],"resources":["*"],"verbs":["*"]}]}]}}}`
)

// TestP4ContentsBeforeApproval: a plan of a bundle image is judged by its unpacked contents when it is approved, and
// held while they are not known. When OLM writes the ClusterServiceVersion, failurePolicy Ignore stores what an
// overloaded gate does not review.
func TestP4ContentsBeforeApproval(t *testing.T) {
	noAdmins := ruleOf("no-admins",
		`!clusterPermissions.exists(r, "*" in r.apiGroups && "*" in r.resources && "*" in r.verbs)`,
		"no cluster admins", constraint.Require)
	warned := ruleOf("no-admins", `!clusterPermissions.exists(r, "*" in r.apiGroups)`, "no cluster admins",
		constraint.Warn)
	tenants := ruleOf("tenants", `!('tenant' in namespaceObject.metadata.labels) || clusterPermissions.size() == 0`,
		"tenants have no rights", constraint.Require)
	noted := ruleOf("noted", `!annotations.exists(a, a == 'forbidden')`, "not with this annotation", constraint.Require)
	binding := olm.ReadGrants("ClusterRoleBinding", "all",
		[]byte(`{"kind":"ClusterRoleBinding","RoleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`))
	for _, c := range []struct {
		name string
		// by is the Constraint that applies.
		by *constraint.Definition
		// unread leaves it unknown what the plan changes.
		unread bool
		bundle *olm.Bundle
		edit   func(*olm.InstallPlan)
		want   verdict.Decision
		says   string
		// asked is set if the contents are read.
		asked bool
	}{
		{name: "all rights", by: noAdmins, bundle: bundleWith(t, allRights), want: verdict.Deny,
			says: "etcd.v0.9.2 is not allowed by Constraint no-admins (bundle/constraint)", asked: true},
		{name: "few rights", by: noAdmins, bundle: bundleWith(t, noRights), asked: true},
		{name: "all rights by a binding beside it", by: noAdmins, bundle: bundleWith(t, noRights, binding),
			want: verdict.Deny, says: "no cluster admins", asked: true},
		{name: "not read yet", by: noAdmins, unread: true, want: verdict.Hold,
			says:  "since the contents of the ClusterServiceVersion are not known (its contents are not read yet)",
			asked: true},
		{name: "the ConfigMap is gone", by: noAdmins, bundle: &olm.Bundle{Fault: "ConfigMap olm/b does not exist"},
			want: verdict.Hold, says: "(ConfigMap olm/b does not exist)", asked: true},
		{name: "of another package than is known", by: noAdmins, bundle: bundleWith(t, allRights), want: verdict.Deny,
			asked: true,
			edit:  func(p *olm.InstallPlan) { p.Status.BundleLookups[0].Properties = "" }},
		{name: "annotations", by: noted, unread: true, want: verdict.Hold,
			says:  "since the annotations of the ClusterServiceVersion are not known (its contents are not read yet)",
			asked: true},
		{name: "only a warning", by: warned, bundle: bundleWith(t, allRights), asked: true},
		{name: "only a warning, not read", by: warned, unread: true, asked: true},
		{name: "the Constraint is not about this namespace", by: tenants, unread: true},
		{name: "the Constraint does not read contents",
			by: ruleOf("etcd", `packageName == 'etcd'`, "etcd", constraint.Require), unread: true},
		{name: "the plan contains the manifests", by: noAdmins, unread: true,
			edit: func(p *olm.InstallPlan) {
				*p = *withStep(p, "etcd.v0.9.2", olm.Manifest{Spec: &written(t, noRights).Spec})
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, plan := 0, pendingPlan("etcd 0.9.2")
			if c.edit != nil {
				c.edit(plan)
			}
			changes := unpackedAs(c.bundle, &asked)
			if c.unread {
				changes = func(*olm.InstallPlan, []state.Replacement) *state.PlanChanges { asked++; return nil }
			}
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(c.by), Plans: []*olm.InstallPlan{plan}}), nil, changes)
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
			if (asked > 0) != c.asked {
				t.Errorf("the contents were asked for %d times, want %v", asked, c.asked)
			}
		})
	}
}

// TestP4ContentsOfTheStep: what OLM writes is judged again, as the second line. An override of the plan reaches exactly
// the contents that its approver was shown.
func TestP4ContentsOfTheStep(t *testing.T) {
	noAdmins := ruleOf("no-admins",
		`!clusterPermissions.exists(r, "*" in r.apiGroups && "*" in r.resources && "*" in r.verbs)`,
		"no cluster admins", constraint.Require)
	binding := olm.ReadGrants("ClusterRoleBinding", "all",
		[]byte(`{"kind":"ClusterRoleBinding","roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`))
	overridden := func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" }
	reference := stepOf(t, "etcd.v0.9.2", "ClusterRole", "a",
		`{"kind":"ConfigMap","name":"a","namespace":"olm","catalogSourceName":"c","catalogSourceNamespace":"olm"}`)
	for _, c := range []struct {
		name    string
		bundle  *olm.Bundle
		writes  string
		edit    func(*olm.InstallPlan)
		want    verdict.Decision
		refused bool // as the status of the plan shows it, before OLM writes
	}{
		{name: "what was read", bundle: bundleWith(t, noRights), writes: noRights},
		{name: "what was read and is not allowed", bundle: bundleWith(t, allRights), writes: allRights,
			want:    verdict.Deny,
			refused: true},
		{name: "other contents", bundle: bundleWith(t, noRights), writes: allRights, want: verdict.Deny},
		{name: "a binding comes along", bundle: bundleWith(t, noRights, binding), writes: noRights, want: verdict.Deny,
			refused: true},
		{name: "what comes along is not known", bundle: &olm.Bundle{Fault: "gone"}, writes: noRights,
			want: verdict.Hold},
		{name: "what was read, overridden", bundle: bundleWith(t, allRights), writes: allRights, edit: overridden},
		{name: "other contents, overridden", bundle: bundleWith(t, noRights), writes: allRights, edit: overridden,
			want: verdict.Deny},
		{name: "not read, overridden", bundle: &olm.Bundle{Fault: "gone"}, writes: allRights, edit: overridden,
			want: verdict.Deny},
		{name: "not read, overridden, few rights", bundle: &olm.Bundle{Fault: "gone"}, writes: noRights,
			edit: overridden},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, plan := 0, installing(t, "")
			plan.Status.Steps = []olm.Step{reference}
			if c.edit != nil {
				c.edit(plan)
			}
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(noAdmins), Plans: []*olm.InstallPlan{plan}}), nil, unpackedAs(c.bundle, &asked))
			v := JudgeCSV(CSVInput{New: written(t, c.writes), ByOLM: true, Namespace: ns})
			if v.Decision != c.want {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if refused := RefusedSteps(plan, ns, time.Time{}); (len(refused) > 0) != c.refused {
				t.Errorf("refused steps: %v, want %v", refused, c.refused)
			}
		})
	}
}
