package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// releasedAs returns the properties of etcd 0.9.2 in a release; "" for none.
func releasedAs(release string) string {
	if release == "" {
		return properties("etcd", "0.9.2")
	}
	return `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2","release":"` + release +
		`"}}]}`
}

// releasedIn returns a spec with a release; "" for none.
func releasedIn(release string) string {
	if release == "" {
		return noRights
	}
	return `{"release":"` + release + `",` + strings.TrimPrefix(noRights, "{")
}

// writtenAs is written with a release in its properties and one in its spec.
func writtenAs(t *testing.T, property, spec string) *olm.CSV {
	t.Helper()
	csv := written(t, releasedIn(spec))
	csv.Metadata.Annotations.Properties = releasedAs(property)
	return csv
}

// TestReleaseTwice: a bundle that states two releases is held, whatever brings it: else it would be consented to as
// one and installed as the other.
func TestReleaseTwice(t *testing.T) {
	const disagree = "(its property olm.package says release 1 and spec.release of its ClusterServiceVersion says 2)"
	for name, c := range map[string]struct {
		// lookup, step and spec are the releases in the bundle lookup, in the properties of the step, and in the spec.
		// Without a step the bundle is one by reference.
		lookup, step, spec string
		inline             bool
		want               verdict.Decision
		says               string
	}{
		"property and spec":  {step: "1", spec: "2", inline: true, want: verdict.Hold, says: disagree},
		"one release":        {step: "2", spec: "2", inline: true},
		"the spec alone":     {spec: "2", inline: true},
		"the property alone": {step: "2", inline: true},
		"a spec that is none": {spec: "02", inline: true, want: verdict.Hold,
			says: `release "02" is not a release`},
		"two in the plan": {lookup: "1", step: "2", inline: true, want: verdict.Hold,
			says: "the plan names both package etcd 0.9.2 release 1 and package etcd 0.9.2 release 2"},
		"property, and spec in a ConfigMap": {lookup: "1", spec: "2", want: verdict.Hold, says: disagree},
		"one, by reference":                 {lookup: "2", spec: "2"},
		"in a ConfigMap alone":              {spec: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, plan := 0, pendingPlan("etcd 0.9.2")
			plan.Status.BundleLookups[0].Properties = releasedAs(c.lookup)
			if c.inline {
				if c.lookup == "" {
					plan.Status.BundleLookups = nil
				}
				plan = withStep(plan, "etcd.v0.9.2",
					olm.Manifest{Spec: &written(t, releasedIn(c.spec)).Spec, Properties: releasedAs(c.step)})
			}
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(ruleOf("read", `release != "none"`, "", constraint.Require)),
				Policies:    []*operatorpolicy.Policy{NewOperatorPolicy(operatorPolicy("etcd", anyCatalog))},
				Plans:       []*olm.InstallPlan{plan}}), nil, unpackedAs(bundleWith(t, releasedIn(c.spec)), &asked))
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
			if c.want == verdict.Allow && v.CSVs[0].Release != "2" {
				t.Errorf("release %q", v.CSVs[0].Release)
			}
		})
	}
}

// TestReleaseWritten: what a plan had only by reference is compared when the object is written, by OLM or by the account
// that the plan names.
func TestReleaseWritten(t *testing.T) {
	for name, c := range map[string]struct {
		plan, property, spec string
		byOLM                bool
		want                 verdict.Decision
	}{
		"by OLM": {"1", "1", "1", true, verdict.Allow},
		"by OLM, as an older API server stores it":  {"1", "1", "", true, verdict.Allow},
		"by OLM, another release than the plan has": {"1", "1", "2", true, verdict.Hold},
		"by its account":                    {"1", "1", "1", false, verdict.Allow},
		"by its account, in the spec alone": {"", "", "2", false, verdict.Allow},
		"by its account, two releases":      {"1", "1", "2", false, verdict.Hold},
	} {
		t.Run(name, func(t *testing.T) {
			plan := installing(t, "")
			plan.Status.ServiceAccount.Namespace, plan.Status.ServiceAccount.Name = "shop", "weak"
			plan.Status.BundleLookups[0].Properties = releasedAs(c.plan)
			plan.Status.Steps = []olm.Step{stepOf(t, "etcd.v0.9.2", "ClusterServiceVersion", "etcd.v0.9.2",
				`{"kind":"ConfigMap","name":"a","namespace":"olm","catalogSourceName":"c","catalogSourceNamespace":"olm"}`)}
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Policies: []*operatorpolicy.Policy{NewOperatorPolicy(operatorPolicy("etcd", anyCatalog))},
				Plans:    []*olm.InstallPlan{plan}})
			v := JudgeCSV(CSVInput{New: writtenAs(t, c.property, c.spec), ByOLM: c.byOLM,
				User: "system:serviceaccount:shop:weak", Namespace: ns})
			if v.Decision != c.want || c.want == verdict.Hold && !strings.Contains(v.Refusal(), "says release 1 and") {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}

// TestReleaseInstalled: what is installed and states two releases is reported.
func TestReleaseInstalled(t *testing.T) {
	for spec, want := range map[string]verdict.Decision{"1": verdict.Allow, "2": verdict.Hold} {
		installed, _ := installedBy(writtenAs(t, "1", spec))
		ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes, CSVs: []state.Installed{installed},
			Policies: []*operatorpolicy.Policy{NewOperatorPolicy(operatorPolicy("etcd", anyCatalog))}})
		if v, _ := bundle.JudgeInstalled(ns, "etcd.v0.9.2", time.Time{}); v.Decision != want {
			t.Errorf("release 1 in the property and %s in the spec is judged %s: %s", spec, v.Decision, v.Refusal())
		}
	}
}

// TestReleaseInConstraints: variable release is the release in the properties, else the one in the spec, which a plan
// may have only in a ConfigMap.
func TestReleaseInConstraints(t *testing.T) {
	withdrawn := ruleOf("withdrawn", `release != "1"`, "release 1 is withdrawn", constraint.Require)
	for name, c := range map[string]struct {
		property string
		bundle   *olm.Bundle
		want     verdict.Decision
		says     string
	}{
		"another release": {property: "2", bundle: bundleWith(t, noRights)},
		"the release": {property: "1", bundle: bundleWith(t, noRights), want: verdict.Deny,
			says: "release 1 is withdrawn"},
		"the release, of contents that are not known": {property: "1", bundle: &olm.Bundle{Fault: "gone"},
			want: verdict.Deny, says: "release 1 is withdrawn"},
		"the release, in the contents": {bundle: bundleWith(t, releasedIn("1")), want: verdict.Deny,
			says: "release 1 is withdrawn"},
		"none": {bundle: bundleWith(t, noRights)},
		"none, of contents that are not known": {bundle: &olm.Bundle{Fault: "gone"}, want: verdict.Hold,
			says: "the release is not known"},
		"two": {property: "2", bundle: bundleWith(t, releasedIn("3")), want: verdict.Hold, says: "release"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, plan := 0, pendingPlan("etcd 0.9.2")
			plan.Status.BundleLookups[0].Properties = releasedAs(c.property)
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
				Constraints: under(withdrawn), Plans: []*olm.InstallPlan{plan}}), nil, unpackedAs(c.bundle, &asked))
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s with %q: %s", v.Decision, c.want, c.says, v.Refusal())
			}
		})
	}
}

// TestReleaseConstraintsOnWrites: a user who writes past OLM is judged by the release that he states, and by none if
// he states two. A violation excuses no other one (threat O34).
func TestReleaseConstraintsOnWrites(t *testing.T) {
	only := ruleOf("only", `release == "2"`, "", constraint.Require)
	for name, c := range map[string]struct {
		old, new *olm.CSV
		want     verdict.Decision
	}{
		"the property":               {nil, writtenAs(t, "2", ""), verdict.Allow},
		"the spec":                   {nil, writtenAs(t, "", "2"), verdict.Allow},
		"another one":                {nil, writtenAs(t, "1", ""), verdict.Deny},
		"two":                        {nil, writtenAs(t, "2", "1"), verdict.Hold},
		"changed to another one":     {writtenAs(t, "1", "1"), writtenAs(t, "3", "3"), verdict.Deny},
		"as before, and another one": {writtenAs(t, "1", ""), writtenAs(t, "1", "1"), verdict.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes, Constraints: under(only)})
			if v := JudgeCSV(CSVInput{New: c.new, Old: c.old, User: "tenant", Namespace: ns}); v.Decision != c.want {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}

// TestReleaseInRanges: ranges are about versions, so that all releases of one are in a range or none; the message has
// it.
func TestReleaseInRanges(t *testing.T) {
	p := NewOperatorPolicy(operatorPolicy("etcd", func(s *spec) { s.VersionRange = ">=1.0.0" }))
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes, Policies: []*operatorpolicy.Policy{p}})
	plan := pendingPlan("etcd 0.9.2")
	plan.Status.BundleLookups[0].Properties = releasedAs("2")
	v := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
	if !strings.Contains(v.Refusal(), "etcd.v0.9.2 (version 0.9.2 release 2) is not allowed") {
		t.Error(v.Refusal())
	}
}
