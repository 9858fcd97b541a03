package rules

import (
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// TestRepairByHand: what a user does where Opgate repairs nothing.
func TestRepairByHand(t *testing.T) {
	const patch = "kubectl patch subscriptions.operators.coreos.com etcd --namespace shop --subresource=status --type=merge --patch "
	failed := []olm.SubscriptionCondition{{Type: resolutionFailed, Status: "True", Reason: "ConstraintsNotSatisfiable",
		Message: "constraints not satisfiable: clusterserviceversion etcd.v1 exists and is not referenced by a subscription, subscription etcd exists"}}
	waiting := olm.SubscriptionStatus{State: olm.StateUpgradePending, CurrentCSV: "etcd.v1"}
	waiting.InstallPlan.Name = "install-1"
	for name, c := range map[string]struct {
		status olm.SubscriptionStatus
		csv    olm.CSV
		want   string
	}{
		"a Subscription that was created again beside its operator": {olm.SubscriptionStatus{Conditions: failed},
			olm.CSV{Bundle: olm.Bundle{Package: "etcd"}},
			"it lost track of its ClusterServiceVersion etcd.v1, which an enforced policy links again; without one: " +
				patch + `'{"status":{"currentCSV":"etcd.v1"}}'`},
		"another operator": {status: olm.SubscriptionStatus{Conditions: failed}, csv: olm.CSV{Bundle: olm.Bundle{Package: "vault"}}},
		"one that is linked": {status: olm.SubscriptionStatus{Conditions: failed, CurrentCSV: "etcd.v1"},
			csv: olm.CSV{Bundle: olm.Bundle{Package: "etcd"}}},
		"a plan that is gone": {waiting, olm.CSV{},
			"OLM waits for InstallPlan install-1, which is gone, and an enforced policy makes it plan again; without one: " +
				patch + `'{"status":{"installPlanRef":null,"installplan":null,"currentCSV":null,"state":null}}'`},
		"all is well": {status: olm.SubscriptionStatus{State: "AtLatestKnown", CurrentCSV: "etcd.v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"}, Spec: olm.SubscriptionSpec{Package: "etcd"},
				Status: c.status}
			c.csv.Metadata.Namespace, c.csv.Metadata.Name = "shop", "etcd.v1"
			ns := state.NewNamespace("shop", state.NamespaceContents{Stored: []*olm.CSV{&c.csv}})
			if got := RepairByHand(s, ns); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}
