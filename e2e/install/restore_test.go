package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// restored are objects of each kind that users write, with fields by which policies differ.
const restored = `
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: restored-range, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: mayhave
  subscription: {name: ranged, namespace: NAMESPACE}
  versionRange: ">=1.0.0 <2.0.0"
  deletion: Confirm
  consent: {permissions: Hold, accepted: [sha256:daa67261c70d4e3663972cea1b0b5c08fb3f3523a4572d29aee43dee27cf4846]}
  freezes: [{start: "2030-12-15T00:00:00Z", end: "2031-01-04T00:00:00Z", reason: end of year}]
  upgradeApproval: None
---
apiVersion: policy.open-cluster-management.io/v1beta1
kind: OperatorPolicy
metadata: {name: restored-earlier, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: earlier, namespace: NAMESPACE, source: some, sourceNamespace: olm, channel: stable, installPlanApproval: Manual}
---
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: restored-order, namespace: policies}
spec:
  policy-templates:
    - objectDefinition:
        apiVersion: policy.open-cluster-management.io/v1beta2
        kind: OperatorPolicy
        metadata: {name: restored-template}
        spec:
          remediationAction: enforce
          complianceType: mustnothave
          subscription: {name: forbidden, namespace: NAMESPACE}
          upgradeApproval: None
---
apiVersion: policy.open-cluster-management.io/v1beta1
kind: PolicySet
metadata: {name: restored-set, namespace: policies}
spec: {policies: [restored-order]}
---
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: restored}
spec:
  constraints: |
    [{"type": "olm.constraint", "value": {"rule": "packageName != 'unwanted'", "message": "is unwanted"}},
     {"type": "olm.constraint", "value": {"on": "catalogSource", "rule": "source.digest != ''", "message": "name a digest"}}]
`

// restoredTries are writes that the objects judge, each with the rule that refuses it.
func restoredTries(namespace string) map[string]string {
	subscription := func(pkg, channel string) string {
		return fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":%q,"namespace":%q},`+
			`"spec":{"name":%q,"source":"some","sourceNamespace":"olm","channel":%q,"installPlanApproval":"Manual"}}`,
			pkg, namespace, pkg, channel)
	}
	return map[string]string{
		subscription("forbidden", "stable"): "(subscription/mustnothave)",
		subscription("earlier", "other"):    "(subscription/channel)",
		subscription("unwanted", "stable"):  "(subscription/constraint)",
		`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"CatalogSource","metadata":{"name":"any","namespace":"` +
			namespace + `"},` +
			`"spec":{"sourceType":"grpc","image":"registry.example/any:latest"}}`: "(catalogsource/constraint)",
	}
}

// wantRestoredVerdicts wants each of the writes to be refused by its rule, and returns the refusals.
func (s *Site) wantRestoredVerdicts(t *testing.T, namespace string) map[string]string {
	t.Helper()
	refusals := map[string]string{}
	for object, rule := range restoredTries(namespace) {
		harness.Eventually(t, rule, func(ctx context.Context) error {
			result, err := s.Kubectl(ctx, cluster.Admin, object, "create", "--dry-run=server", "-f", "-")
			if err == nil && !strings.Contains(result.Stderr, rule) {
				err = fmt.Errorf("it says %s%s", result.Stdout, result.Stderr)
			}
			refusals[object] = result.Stderr
			return err
		})
	}
	return refusals
}

// TestRestore dumps the policies of one cluster and restores them into another, by the commands of docs/backup.md: both
// give the same verdicts, the Policy is not verified again, and what it had made is its own again. Both clusters are its
// own.
func TestRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := strings.NewReplacer("policies.yaml", dir+"/policies.yaml", "constraints.yaml", dir+"/constraints.yaml",
		"marks.yaml", dir+"/marks.yaml")
	policy := []string{"get", "policies.policy.open-cluster-management.io", "-n", cluster.PolicyNamespace,
		"restored-order", "-o"}
	mark := append(slices.Clone(policy), `jsonpath={.metadata.annotations.opgate\.io/verified}`)
	var namespace, signed string
	var want map[string]string

	ok := t.Run("dump", func(t *testing.T) { // the cluster ends with it
		from := Start(t)
		from.install(t)
		namespace = from.Govern(t)
		from.WantGate(t, namespace)
		objects := strings.ReplaceAll(restored, "NAMESPACE", namespace)
		harness.Kubectl(t, from.Cluster, cluster.Admin, objects, "apply", "-f", "-")
		want = from.wantRestoredVerdicts(t, namespace)
		if signed = from.Admin(t, mark...); signed == "" {
			t.Fatal("the Policy has no mark")
		}
		from.Shell(t, files.Replace(ShellSteps(t, "../../docs/backup.md", "> marks.yaml")[0]))
	})
	if !ok {
		return
	}
	t.Run("restore", func(t *testing.T) {
		to := Start(t)
		harness.Kubectl(t, to.Cluster, cluster.Admin, "", "create", "namespace", namespace)
		to.Shell(t, files.Replace(ShellSteps(t, "../../docs/backup.md", "apply -f marks.yaml")[0]))
		for object, got := range to.wantRestoredVerdicts(t, namespace) {
			if got != want[object] {
				t.Errorf("after the restore it says\n%s\nbefore it said\n%s", got, want[object])
			}
		}
		if got := to.Admin(t, mark...); got != signed {
			t.Errorf("the mark of the Policy is %s after the restore, it was %s", got, signed)
		}
		harness.Eventually(t, "the Policy has its templates", func(context.Context) error {
			details := to.Admin(t, append(slices.Clone(policy), "jsonpath={.status.details}")...)
			uid := to.Admin(t, append(slices.Clone(policy), "jsonpath={.metadata.uid}")...)
			owner := to.Admin(t, "get", "operatorpolicies", "-n", cluster.PolicyNamespace, "restored-template",
				"--ignore-not-found", "-o", "jsonpath={.metadata.ownerReferences[*].uid}")
			if details == "" || strings.Contains(details, "verified") || owner != uid {
				return fmt.Errorf("its status is %s, its OperatorPolicy is owned by %s, want %s", details, owner, uid)
			}
			return nil
		})
	})
}
