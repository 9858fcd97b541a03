package loop

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	compliant    = policyv1beta2.Compliant
	nonCompliant = policyv1beta2.NonCompliant
)

// strangersInstallation is about an operator from no catalog, which a tenant made for all namespaces: OLM copies it to
// each. An admin acts as any user who may create ClusterServiceVersions in that one namespace.
func strangersInstallation(t *testing.T, e *harness.OLMEnv) {
	const wanted, forged = "consuloperator.v1.0.0", "consuloperator.v1.1.0"
	playground, other, same := e.NewNamespace(t), e.NewNamespace(t), e.NewNamespace(t)
	begun := harness.WithField(harness.WithField(harness.GroupedPolicy(other, "consul", wanted), wanted, "spec",
		"subscription", "startingCSV"), "inform", "spec", "remediationAction")
	// Else OLM would take the copy for the upgrade that is pending. It is for its own namespace, so that OLM does not
	// copy it.
	harness.WithField(begun, "without-upgrade", "spec", "subscription", "channel")
	e.Apply(t, harness.Object(
		"apiVersion: operators.coreos.com/v1\nkind: OperatorGroup\nmetadata: {name: global, namespace: %s}\nspec: {}",
		playground))
	e.Apply(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"consul","version":"1.1.0"}}]}'}
spec:
  displayName: Consul
  version: 1.1.0
  installModes:
    - {type: OwnNamespace, supported: true}
    - {type: SingleNamespace, supported: true}
    - {type: MultiNamespace, supported: true}
    - {type: AllNamespaces, supported: true}
  install:
    strategy: deployment
    spec:
      deployments:
        - name: consul-operator
          spec:
            replicas: 1
            selector: {matchLabels: {app: stranger}}
            template: {metadata: {labels: {app: stranger}}, spec: {containers: [{name: operator, image: "evil.example/x:1"}]}}
`, forged, playground))
	for _, namespace := range []string{other, same} {
		e.Eventually(t, "wait for OLM's copy", func(ctx context.Context) error {
			_, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(namespace).Get(ctx,
				forged, metav1.GetOptions{})
			return err
		})
	}

	// Of another name than what the policy allows, it is in no one's way.
	e.Apply(t, begun)
	waitForPolicy(t, e, begun, is(nonCompliant),
		wantCondition("ClusterServiceVersionCompliant=False ClusterServiceVersionMissing",
			forged+" is installed elsewhere, from another catalog", playground))
	e.Edit(t, begun, `{"spec":{"remediationAction":"enforce"}}`)
	waitForPolicy(t, e, begun, is(compliant), has(wanted),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"))
	e.WantNames(t, harness.Subscriptions, other, "consul")
	e.WantNames(t, harness.ClusterServiceVersions, other, wanted)

	// Of the same name, it keeps OLM from installing the other. The policy is not Compliant for that.
	blocked := harness.GroupedPolicy(same, "consul", forged)
	unstructured.RemoveNestedField(blocked.Object, "spec", "operatorGroup")
	e.Apply(t, blocked)
	waitForPolicy(t, e, blocked, is(nonCompliant),
		wantCondition("ClusterServiceVersionCompliant=False ClusterServiceVersionMissing",
			"from another catalog", "OLM cannot install "+forged+" here while the copy of that name from namespace "+
				playground))
	e.WantNames(t, harness.Subscriptions, same, "consul")
	if groups, err := e.Names(t.Context(), harness.OperatorGroups, same); err != nil || len(groups) != 1 {
		t.Errorf("the OperatorGroups are %v, %v, want the one that the policy has made", groups, err)
	}
}

// deprecationsAndChannels are what the catalog warns of.
func deprecationsAndChannels(t *testing.T, e *harness.OLMEnv) {
	old, behind := e.NewNamespace(t), e.NewNamespace(t)
	mysql, kafka := harness.GroupedPolicy(old, "mysql"),
		harness.WithField(harness.GroupedPolicy(behind, "kafka"), "stable-1.0", "spec", "subscription", "channel")
	e.Apply(t, mysql, kafka)
	waitForPolicy(t, e, mysql, is(compliant), has("mysqloperator.v8.0.0"),
		wantCondition("NoDeprecations=False PackageDeprecated", "package mysql is no longer maintained, use another one"))
	e.Edit(t, mysql, `{"spec":{"complianceConfig":{"deprecationsPresent":"NonCompliant"}}}`)
	waitForPolicy(t, e, mysql, is(nonCompliant), wantCondition("Compliant=False NonCompliant",
		"package mysql is no longer maintained"))

	waitForPolicy(t, e, kafka, is(compliant), has("kafkaoperator.v1.0.1"),
		wantCondition("NoDeprecations=False ChannelDeprecated", "channel stable-1.0 gets no more fixes"),
		wantCondition("MinorChannelUpgradeAvailable=True UpgradeAvailable", "stable-1.1"))
	e.Edit(t, kafka, `{"spec":{"complianceConfig":{"minorChannelUpgradeAvailable":"NonCompliant"}}}`)
	waitForPolicy(t, e, kafka, is(nonCompliant), wantCondition("MinorChannelUpgradeAvailable=False UpgradeAvailable"))
	e.Edit(t, kafka, `{"spec":{"subscription":{"channel":"stable-1.1"}}}`)
	waitForPolicy(t, e, kafka, is(compliant), has("kafkaoperator.v1.1.1"),
		wantCondition("NoDeprecations=True Recommended"),
		wantCondition("MinorChannelUpgradeAvailable=True Recommended"))
}
