package snapshot

import (
	"slices"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const pendingEtcd = `{"metadata":{"name":"install-x7","namespace":"shop"},"spec":{"clusterServiceVersionNames":["etcd.v1"]},
	"status":{"phase":"RequiresApproval","bundleLookups":[{"identifier":"etcd.v1","catalogSourceRef":{"namespace":"olm","name":"curated"},
	"properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"}]}}`

// TestPackageChanged: a plan is judged again, and the controllers are notified, when the package becomes known, and
// nothing else is.
func TestPackageChanged(t *testing.T) {
	var known *catalog.Package
	b := Builder{Packages: func(string, string, olm.Catalog) *catalog.Package { return known }}
	op := policyIn("shop", "1", 1).value.(*storedPolicy).object
	op.Spec.UpgradeApproval, op.Spec.Deprecated = policyv1beta2.UpgradeApprovalAutomatic, policyv1beta2.DeprecatedHold
	b.Put(time.Time{}, read(Namespaces, `{"metadata":{"name":"shop"}}`),
		read(Namespaces, `{"metadata":{"name":"other"}}`),
		encode(OperatorPolicies, op), read(InstallPlans, pendingEtcd))
	known = &catalog.Package{Name: "etcd",
		Channels: []catalog.Channel{{Name: "stable", Entries: []catalog.Entry{{Name: "etcd.v1"}}}}}
	for _, step := range []struct {
		name, pkg string
		want      verdict.Decision
		changed   []string
	}{
		{name: "another package", pkg: "vault", want: verdict.Hold},
		{name: "the package", pkg: "etcd", want: verdict.Allow, changed: []string{"shop"}},
	} {
		next, change := b.build(time.Time{}, []event{{pkg: step.pkg}})
		ns := next.Namespace("shop")
		if v := rules.JudgePlan(rules.PlanInput{Plan: ns.Plans()[0], Namespace: ns}); v.Decision != step.want {
			t.Errorf("%s: %s, want %s: %s", step.name, v.Decision, step.want, v.Refusal())
		}
		if !slices.Equal(change.Namespaces, step.changed) {
			t.Errorf("%s: changed are %q, want %q", step.name, change.Namespaces, step.changed)
		}
	}
}
