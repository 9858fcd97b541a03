package loop

import (
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// pinnedAndFree has operators with and without a policy in one namespace. That one is Manual makes OLM ask about all.
func pinnedAndFree(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.Subscribe(t, namespace, "prometheus", "", "Automatic") // OLM does nothing without an OperatorGroup
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), harness.Etcd2, "spec",
		"subscription", "startingCSV")
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, harness.Etcd2)
	e.WaitForCSV(t, namespace, "prometheusoperator.v0.47.0")
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval", harness.Etcd4, "(bundle/version)"))

	// OLM puts what comes next into one plan with the upgrade that waits: the newcomer has to wait as well.
	e.Subscribe(t, namespace, "nats", "", "Automatic")
	mixed := e.WaitForPlan(t, namespace, harness.Etcd4, "natsoperator.v2.0.0")
	e.WantApprovalRefused(t, cluster.Tenant, mixed, harness.Etcd4+" is not allowed", "(bundle/version)",
		"allowed is "+harness.Etcd2)
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	e.WaitForCSV(t, namespace, harness.Etcd4)
	e.WaitForCSV(t, namespace, "natsoperator.v2.0.0")
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
	nats := e.Get(t, harness.Subscriptions, namespace, "nats")
	harness.WantField(t, nats, `"Manual"`, "spec", "installPlanApproval")
	harness.WantField(t, nats, `"Automatic"`, "metadata", "annotations", metakey.RequestedApproval)
}

// freeAreHeld is the same where people want to decide about operators without a policy.
func freeAreHeld(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "namespace", namespace, "opgate.io/ungoverned=hold")
	e.Subscribe(t, namespace, "prometheus", "", "Automatic")
	e.Subscribe(t, namespace, "etcd", harness.Etcd2, "Manual")
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
	e.Apply(t, p) // it makes the OperatorGroup, so that OLM plans for both at once
	both := e.WaitForPlan(t, namespace, harness.Etcd2, "prometheusoperator.v0.47.0")
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"prometheusoperator.v0.47.0 is held: no policy governs package prometheus", "ungoverned: hold"))
	harness.WantField(t, e.Get(t, harness.InstallPlans, namespace, both.GetName()), `false`, "spec", "approved")

	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "--overwrite", "namespace", namespace,
		"opgate.io/ungoverned=approve")
	e.WaitForCSV(t, namespace, harness.Etcd2)
	e.WaitForCSV(t, namespace, "prometheusoperator.v0.47.0")
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))
}

// dependencyComesAlong has OLM add what an operator requires, of which no policy states anything.
func dependencyComesAlong(t *testing.T, e *harness.OLMEnv) {
	inline, image := e.NewNamespace(t), e.NewNamespace(t)
	vault, storefront := harness.GroupedPolicy(inline, "vault", "vaultoperator.v1.0.0"),
		harness.GroupedPolicy(image, "storefront", "storefrontoperator.v2.0.0")
	e.Apply(t, vault, storefront)
	e.WaitForCSV(t, inline, harness.Etcd4)
	waitForPolicy(t, e, vault, is(compliant), has("vaultoperator.v1.0.0"))
	e.WaitForCSV(t, image, "redisoperator.v1.1.0")
	waitForPolicy(t, e, storefront, is(compliant), has("storefrontoperator.v2.0.0"))
}

// dependencyIsHeld has OLM add a version of what an operator requires that another policy does not allow.
func dependencyIsHeld(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.Subscribe(t, namespace, "redis", "", "Manual")
	storefront := harness.GroupedPolicy(namespace, "storefront", "storefrontoperator.v2.0.0")
	redis := harness.GroupedPolicy(namespace, "redis", "redisoperator.v1.0.0")
	e.Apply(t, redis, storefront)
	for _, p := range []struct{ pkg, csv string }{{
		pkg: "storefront",
		csv: "storefrontoperator.v2.0.0",
	}, {
		pkg: "redis",
		csv: "redisoperator.v1.1.0",
	}} {
		waitForPolicy(t, e, harness.GroupedPolicy(namespace, p.pkg), is(nonCompliant),
			wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
				"An installation of "+p.csv, "redisoperator.v1.1.0 is not allowed", "(bundle/version)",
				"allowed is redisoperator.v1.0.0"))
	}
	e.Edit(t, redis, `{"spec":{"versions":["redisoperator.v1.1.0"]}}`)
	waitForPolicy(t, e, redis, is(compliant), has("redisoperator.v1.1.0"))
	waitForPolicy(t, e, storefront, is(compliant), has("storefrontoperator.v2.0.0"))
}
