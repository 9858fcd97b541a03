package loop

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const migrating = "The operator is performing a migration."

// busyOperator installs an operator that then reports that it must not be upgraded, and returns its policy and the plan
// that waits.
func busyOperator(t *testing.T, e *harness.OLMEnv) (p, upgrade *unstructured.Unstructured) {
	t.Helper()
	namespace := e.NewNamespace(t)
	p = harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), harness.Etcd2, "spec",
		"subscription", "startingCSV")
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))
	setCondition(t, e, namespace, "conditions", "False")
	e.Eventually(t, "wait until OLM has observed the condition", func(ctx context.Context) error {
		conditions := e.Clients[cluster.Admin].Resource(harness.OperatorConditions).Namespace(namespace)
		got, err := conditions.Get(ctx, harness.Etcd2, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if observed, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions"); len(observed) == 0 {
			return errors.New("the status has no condition")
		}
		return nil
	})
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	upgrade = e.WaitForPlan(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
			harness.Etcd4+" cannot replace "+harness.Etcd2+" now and is held (bundle/not-upgradeable)",
			`Upgradeable is False, "`+migrating+`"`))
	e.WantApprovalRefused(t, cluster.Admin, upgrade, "(bundle/not-upgradeable)", migrating)
	return p, upgrade
}

// setCondition writes condition Upgradeable to a list in the spec of the OperatorCondition that OLM made.
func setCondition(t *testing.T, e *harness.OLMEnv, namespace, list, status string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{list: []any{map[string]any{
		"type": "Upgradeable", "status": status, "reason": "migration", "message": migrating,
		"lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorcondition", "-n", namespace, harness.Etcd2,
		"--type=merge", "--patch", string(patch))
}

// upgradeForced has an admin approve the plan by break-glass. OLM parks the new version, and the status names the one
// that runs.
func upgradeForced(t *testing.T, e *harness.OLMEnv) {
	p, upgrade := busyOperator(t, e)
	namespace := upgrade.GetNamespace()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", namespace, upgrade.GetName(),
		"--type=merge",
		"--patch", `{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	waitForPolicy(t, e, p, is(nonCompliant), has(harness.Etcd2),
		wantCondition("ClusterServiceVersionCompliant=False OperatorConditionNotUpgradeable", harness.Etcd4, migrating))
	setCondition(t, e, namespace, "conditions", "True")
	e.WaitForCSV(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
}
