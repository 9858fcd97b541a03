package loop

import (
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// startsAllowed edits a policy as users who got it wrong at first do: each edit installs what the policy then lists,
// without a plan deleted by hand.
func startsAllowed(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	// A list without the newest version, and no startingCSV.
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
			"An upgrade to "+harness.Etcd4, "OLM goes from "+harness.Etcd2+" to "+harness.Etcd4+
				"; no allowed version is reachable"))
	harness.WantField(t, e.Get(t, harness.Subscriptions, namespace, "etcd"), `null`, "spec", "startingCSV")
}

// startIsCorrected corrects startingCSV, versions and channel while plans wait.
func startIsCorrected(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	// The Subscription is its user's, so that the policy sets no startingCSV on it.
	e.Subscribe(t, namespace, "etcd", "", "Manual")
	etcd := harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
	e.Apply(t, etcd)
	first := e.WaitForPlan(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, etcd, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"OLM plans "+harness.Etcd2+", which is allowed, if spec.startingCSV"))
	e.Edit(t, etcd, `{"spec":{"subscription":{"startingCSV":"`+harness.Etcd2+`"}}}`)
	e.WaitForCSV(t, namespace, harness.Etcd2)
	e.WaitForGone(t, harness.InstallPlans, namespace, first.GetName())
	waitForPolicy(t, e, etcd, is(compliant), has(harness.Etcd2))
	harness.WantTexts(t, harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "events", "-n", namespace,
		"--field-selector=reason=Stale"),
		first.GetName(), "deleted, so that OLM plans again: it installs "+harness.Etcd4+
			", and Subscription etcd starts with "+harness.Etcd2)

	// The channel is corrected as bundle/deprecated advises, and startingCSV goes from the Subscription with that of
	// the policy.
	other := e.NewNamespace(t)
	kafka := harness.WithField(harness.GroupedPolicy(other, "kafka"), "stable-1.0", "spec", "subscription", "channel")
	kafka = harness.WithField(kafka, "kafkaoperator.v1.0.0", "spec", "subscription", "startingCSV")
	kafka = harness.WithField(kafka, "Hold", "spec", "deprecated")
	e.Apply(t, kafka)
	waitForPolicy(t, e, kafka, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"kafkaoperator.v1.0.0 is held", "(bundle/deprecated)"))
	e.Edit(t, kafka, `{"spec":{"subscription":{"channel":"stable-1.1","startingCSV":null}}}`)
	waitForPolicy(t, e, kafka, is(compliant), has("kafkaoperator.v1.1.1"))
	harness.WantField(t, e.Get(t, harness.Subscriptions, other, "kafka"), `null`, "spec", "startingCSV")
}

// neighbourIsFreed deletes the Subscription that is in the way of another one.
func neighbourIsFreed(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.Subscribe(t, namespace, "nats", "", "Manual")
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd4)
	e.Apply(t, p) // it makes the OperatorGroup, so that OLM plans for both at once
	both := e.WaitForPlan(t, namespace, harness.Etcd4, "natsoperator.v2.0.0")
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"natsoperator.v2.0.0 is held"))
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", namespace, "nats")
	e.WaitForCSV(t, namespace, harness.Etcd4)
	e.WaitForGone(t, harness.InstallPlans, namespace, both.GetName())
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
}
