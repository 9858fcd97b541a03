package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules/state"
)

// TestP2AccountBeforeInstallation: before anything is installed, a plan and the OperatorGroup whose account it names are
// deleted, and the group is created again without the account (threat O55). Nothing but the record shows the account.
func TestP2AccountBeforeInstallation(t *testing.T) {
	t.Parallel()
	e := harness.StartWithoutGate(t)
	e.StartGate(t, cluster.GateOptions{Loop: true})
	for _, account := range []string{"weak", ""} {
		namespace := e.NewNamespace(t)
		// Such a policy has Opgate create neither Subscriptions nor groups.
		e.Put(t, harness.WithField(harness.OperatorPolicy(namespace), "mayhave", "spec", "complianceType"))
		group := func(account string) *unstructured.Unstructured {
			return harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s], serviceAccountName: %[2]q}`, namespace, account)
		}
		e.Put(t, group(account))
		plan := harness.InstallPlan(namespace, "waiting", harness.AllowedVersion)
		if account != "" {
			plan = harness.WithField(plan, account, "status", "attenuatedServiceAccountRef", "name")
		}
		e.Put(t, plan)
		harness.Eventually(t, "see the namespace recorded", func(ctx context.Context) error {
			record, err := find(ctx, e, harness.Named("ConfigMap", cluster.OpgateNamespace, state.RecordName(namespace)))
			if err != nil || record == nil {
				return fmt.Errorf("the record is %v: %w", record, err)
			}
			text, _, _ := unstructured.NestedString(record.Object, "data", state.RecordKey)
			if has := strings.Contains(text, `"serviceAccountName":"weak"`); has != (account != "") {
				return fmt.Errorf("the record is %s", text)
			}
			return nil
		})
		for _, kind := range []string{"installplan", "operatorgroup"} {
			harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", kind, "-n", namespace, "--all")
		}
		e.SyncGate(t)
		without, create := harness.AsJSON(t, group("")), []string{"create", "-f", "-"}
		if account == "" { // the control: there was none
			harness.Kubectl(t, e.Cluster, cluster.Admin, without, create...)
			continue
		}
		harness.WantRefused(t, e.Cluster, cluster.Admin, without, create, "allowed is weak", "(operatorgroup/service-account)")
		harness.Kubectl(t, e.Cluster, cluster.Admin, harness.AsJSON(t, group(account)), create...)
	}
}
