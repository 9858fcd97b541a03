package e2e

import (
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
)

// pinnedAndFree has operators with and without a policy in one namespace. That one is Manual makes OLM ask about all.
func pinnedAndFree(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.subscribe(t, namespace, "prometheus", "", "Automatic") // OLM does nothing without an OperatorGroup
	p := with(loopPolicy(namespace, "etcd", etcd2), etcd2, "spec", "subscription", "startingCSV")
	e.apply(t, p)
	e.waitForCSV(t, namespace, etcd2)
	e.waitForCSV(t, namespace, "prometheusoperator.v0.47.0")
	e.waitForPolicy(t, p, is(compliant), has(etcd2), says("InstallPlanCompliant=True InstallPlanRequiresApproval", etcd4, "(plan/version)"))

	// OLM puts what comes next into one plan with the upgrade that waits: the newcomer has to wait as well.
	e.subscribe(t, namespace, "nats", "", "Automatic")
	mixed := e.waitForPlan(t, namespace, etcd4, "natsoperator.v2.0.0")
	e.wantApprovalRefused(t, cluster.Tenant, mixed, etcd4+" is not allowed", "(plan/version)", "allowed is "+etcd2)
	e.edit(t, p, `{"spec":{"versions":["`+etcd2+`","`+etcd4+`"]}}`)
	e.waitForCSV(t, namespace, etcd4)
	e.waitForCSV(t, namespace, "natsoperator.v2.0.0")
	e.waitForPolicy(t, p, is(compliant), has(etcd4))
	wantField(t, e.get(t, subscriptions, namespace, "nats"), `"Automatic"`, "spec", "installPlanApproval")
}

// freeAreHeld is the same where people want to decide about operators without a policy.
func freeAreHeld(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "namespace", namespace, "opgate.io/ungoverned=hold")
	e.subscribe(t, namespace, "prometheus", "", "Automatic")
	e.subscribe(t, namespace, "etcd", etcd2, "Manual")
	p := loopPolicy(namespace, "etcd", etcd2)
	e.apply(t, p) // it makes the OperatorGroup, so that OLM plans for both at once
	both := e.waitForPlan(t, namespace, etcd2, "prometheusoperator.v0.47.0")
	e.waitForPolicy(t, p, is(nonCompliant), says("InstallPlanCompliant=True InstallPlanRequiresApproval",
		"prometheusoperator.v0.47.0 is held: no policy governs package prometheus", "ungoverned: hold"))
	wantField(t, e.get(t, installPlans, namespace, both.GetName()), `false`, "spec", "approved")

	kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "--overwrite", "namespace", namespace, "opgate.io/ungoverned=approve")
	e.waitForCSV(t, namespace, etcd2)
	e.waitForCSV(t, namespace, "prometheusoperator.v0.47.0")
	e.waitForPolicy(t, p, is(compliant), has(etcd2))
}

// dependencyComesAlong has OLM add what an operator requires, of which no policy says anything.
func dependencyComesAlong(t *testing.T, e *olmEnv) {
	inline, image := e.newNamespace(t), e.newNamespace(t)
	vault, storefront := loopPolicy(inline, "vault", "vaultoperator.v1.0.0"), loopPolicy(image, "storefront", "storefrontoperator.v2.0.0")
	e.apply(t, vault, storefront)
	e.waitForCSV(t, inline, etcd4)
	e.waitForPolicy(t, vault, is(compliant), has("vaultoperator.v1.0.0"))
	e.waitForCSV(t, image, "redisoperator.v1.1.0")
	e.waitForPolicy(t, storefront, is(compliant), has("storefrontoperator.v2.0.0"))
}

// dependencyIsHeld has OLM add a version of what an operator requires that another policy does not allow.
func dependencyIsHeld(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.subscribe(t, namespace, "redis", "", "Manual")
	storefront := loopPolicy(namespace, "storefront", "storefrontoperator.v2.0.0")
	redis := loopPolicy(namespace, "redis", "redisoperator.v1.0.0")
	e.apply(t, redis, storefront)
	for _, p := range []struct{ pkg, csv string }{{"storefront", "storefrontoperator.v2.0.0"}, {"redis", "redisoperator.v1.1.0"}} {
		e.waitForPolicy(t, loopPolicy(namespace, p.pkg), is(nonCompliant), says("InstallPlanCompliant=True InstallPlanRequiresApproval",
			"An installation of "+p.csv, "redisoperator.v1.1.0 is not allowed", "(plan/version)", "allowed is redisoperator.v1.0.0"))
	}
	e.edit(t, redis, `{"spec":{"versions":["redisoperator.v1.1.0"]}}`)
	e.waitForPolicy(t, redis, is(compliant), has("redisoperator.v1.1.0"))
	e.waitForPolicy(t, storefront, is(compliant), has("storefrontoperator.v2.0.0"))
}
