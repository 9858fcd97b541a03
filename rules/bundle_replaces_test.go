package rules

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// replacing returns a ClusterServiceVersion of a package, in version 1.0.0, that replaces another.
func replacing(t *testing.T, pkg, replaces string) *olm.CSV {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": "shop", "name": pkg + ".v1.0.0",
		"annotations": map[string]string{metakey.Properties: properties(pkg, "1.0.0")}},
		"spec": map[string]any{"displayName": pkg, "replaces": replaces}})
	if err != nil {
		t.Fatal(err)
	}
	csv, err := olm.Decode[olm.CSV](raw)
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// TestC3Replaces writes ClusterServiceVersions that OLM would delete a governed one for (attacks-3, c3). Scenarios have
// plans, Constraints and users.
func TestC3Replaces(t *testing.T) {
	plan := func(csv *olm.CSV, edit func(*olm.InstallPlan)) *olm.InstallPlan {
		p := pendingPlan("vault 1.0.0")
		p.Spec.Approved, p.Status.Phase, p.Status.BundleLookups = true, olm.PhaseInstalling, nil
		p = withStep(p, "vault.v1.0.0", olm.Manifest{Spec: &csv.Spec, Properties: properties("vault", "1.0.0")})
		p.Status.Steps[0].Resource.CatalogNamespace, p.Status.Steps[0].Resource.CatalogName = "olm", "operatorhubio-catalog"
		edit(p)
		return p
	}
	evil, none := replacing(t, "vault", "etcd.v0.9.2"), func(*olm.InstallPlan) {}
	reason := func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" }
	for _, c := range []struct {
		name     string
		old, new *olm.CSV
		plans    []*olm.InstallPlan
		byOLM    bool
		want     verdict.Decision
	}{
		{name: "attack: a user creates it", new: evil, want: verdict.Deny},
		{name: "attack: a user adds it", old: replacing(t, "vault", ""), new: evil, want: verdict.Deny},
		{name: "attack: OLM writes it for a plan from before the rule", new: evil, byOLM: true,
			plans: []*olm.InstallPlan{plan(evil, none)}, want: verdict.Deny},
		{name: "control: OLM writes it for a plan with an override", new: evil, byOLM: true,
			plans: []*olm.InstallPlan{plan(evil, reason)}, want: verdict.Allow},
		{name: "control: another change where it was before", old: evil, new: func() *olm.CSV {
			changed := replacing(t, "vault", "etcd.v0.9.2")
			changed.Spec.Digest[0]++
			return changed
		}(), want: verdict.Allow},
		{name: "control: what is not installed", new: replacing(t, "vault", "etcd.v0.9.1"), want: verdict.Allow},
		{name: "control: what no policy governs", new: replacing(t, "vault", "grafana.v1.0.0"), want: verdict.Allow},
		{name: "control: a version of its own package", new: replacing(t, "etcd", "etcd.v0.9.2"), want: verdict.Allow},
	} {
		t.Run(c.name, func(t *testing.T) {
			grafana, _ := installedBy(replacing(t, "grafana", ""))
			ns := state.NewNamespace("shop", state.NamespaceContents{Plans: c.plans,
				Policies: []*operatorpolicy.Policy{policyFor("etcd", anyCatalog)},
				CSVs:     []state.Installed{storedEtcd(t, etcdSpec, "1"), grafana}})
			v := JudgeCSV(CSVInput{Old: c.old, New: c.new, Namespace: ns, ByOLM: c.byOLM})
			if v.Decision != c.want || c.want != verdict.Allow && !strings.Contains(v.Refusal(), "(bundle/replaces)") {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
			if c.byOLM {
				refused := len(RefusedSteps(c.plans[0], ns, time.Time{})) > 0
				if refused != (c.want != verdict.Allow) {
					t.Errorf("the step is foreseen to be refused: %t", refused)
				}
			}
		})
	}
}
