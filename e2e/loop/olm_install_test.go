package loop

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

const (
	compliant    = policyv1beta2.Compliant
	nonCompliant = policyv1beta2.NonCompliant

	strimzi0 = "strimzi-cluster-operator.v0.35.0"
	strimzi1 = "strimzi-cluster-operator.v0.35.1"
)

// storiesPinned are stories 1, 3 and 2 of the OperatorPolicy proposal, in the order in which an operator lives through
// them.
func storiesPinned(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	owner := harness.Object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}}`, namespace,
		cluster.PolicyNamespace)
	e.Apply(t, owner)
	owner = e.Get(t, schema.GroupVersionResource{
		Version:  "v1",
		Resource: "configmaps",
	}, owner.GetNamespace(), owner.GetName())
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata:
  name: %[1]s
  namespace: %[2]s
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %[1]s, uid: %[3]s}]
spec:
  remediationAction: enforce
  severity: medium
  complianceType: musthave
  subscription:
    channel: stable
    name: strimzi-kafka-operator
    namespace: %[1]s
    source: %[4]s
    sourceNamespace: %[5]s
    startingCSV: strimzi-cluster-operator.v0.35.0
  upgradeApproval: None
  versions:
    - strimzi-cluster-operator.v0.35.0
`, namespace, cluster.PolicyNamespace, owner.GetUID(), olm.Catalog, cluster.OLMNamespace)

	e.Apply(t, p)
	e.WaitForCSV(t, namespace, strimzi0)
	op := waitForPolicy(t, e, p, is(compliant), has(strimzi0),
		wantCondition("OperatorGroupCompliant=True OperatorGroupMatches"),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"),
		wantCondition("ClusterServiceVersionCompliant=True InstallSucceeded", strimzi0),
		wantCondition("DeploymentCompliant=True DeploymentsAvailable"),
		wantCondition("CatalogSourcesUnhealthy=False CatalogSourcesFound"),
		relates("Deployment", compliant, "Deployment Available"))
	for _, r := range op.Status.RelatedObjects {
		if made := r.Properties != nil && r.Properties.CreatedByPolicy != nil && *r.Properties.CreatedByPolicy; made !=
			(r.Object.Kind == "OperatorGroup" || r.Object.Kind == "Subscription") {
			t.Errorf("related object %s %s is marked as created by the policy: %t", r.Object.Kind,
				r.Object.Metadata.Name, made)
		}
	}
	harness.WantField(t, e.Get(t, harness.Subscriptions, namespace, "strimzi-kafka-operator"), `"Manual"`, "spec",
		"installPlanApproval")
	group, err := e.Clients[cluster.Admin].Resource(harness.OperatorGroups).Namespace(namespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil || len(group.Items) != 1 {
		t.Fatalf("there are %d OperatorGroups, %v", len(group.Items), err)
	}
	harness.WantField(t, &group.Items[0], `[""]`, "status", "namespaces") // all
	waitForEvent(t, e, owner, "Warning", `^NonCompliant; .*the required ClusterServiceVersion was not found`)
	waitForEvent(t, e, owner, "Normal", `^Compliant; .*All operator Deployments have their minimum availability`)

	// Story 3: an available upgrade is reported, and is NonCompliant if the policy asks for that.
	waitForPolicy(t, e, p, is(compliant), has(strimzi0),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval"))
	e.Edit(t, p, `{"spec":{"complianceConfig":{"upgradesAvailable":"NonCompliant"}}}`)
	const available = "An upgrade to strimzi-cluster-operator.v0.35.1 is available on the stable channel"
	waitForPolicy(t, e, p, is(nonCompliant), has(strimzi0),
		wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval", available),
		wantCondition("Compliant=False NonCompliant", available),
		relates("InstallPlan", nonCompliant, "The InstallPlan is RequiresApproval"))
	waitForEvent(t, e, owner, "Warning", `^NonCompliant; `+regexp.QuoteMeta(available))
	upgrade := e.WaitForPlan(t, namespace, strimzi1)
	e.WantApprovalRefused(t, cluster.Admin, upgrade, strimzi1, "(bundle/version)")

	// Story 2: only when it is verified, the policy is edited, and the operator goes on to it. No step of OLM makes the
	// policy NonCompliant.
	e.Edit(t, p, `{"spec":{"complianceConfig":null}}`)
	waitForPolicy(t, e, p, is(compliant), has(strimzi0))
	faults := recordFaults(t, e, p)
	e.Edit(t, p, `{"spec":{"upgradeApproval":"Automatic","versions":["strimzi-cluster-operator.v0.35.0","strimzi-cluster-operator.v0.35.1"]}}`)
	e.WaitForCSV(t, namespace, strimzi1)
	waitForPolicy(t, e, p, is(compliant), has(strimzi1),
		wantCondition("InstallPlanCompliant=True NoInstallPlansRequiringApproval"))
	e.WaitForGone(t, harness.ClusterServiceVersions, namespace, strimzi0)
	for _, message := range faults() {
		t.Errorf("the upgrade made the policy NonCompliant: %s", message)
	}
}

// recordFaults records the messages with which a policy is not Compliant, until they are asked for.
func recordFaults(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured) (faults func() []string) {
	t.Helper()
	policies := e.Clients[cluster.Admin].Resource(harness.OperatorPolicies).Namespace(p.GetNamespace())
	seen, err := policies.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(seen.Stop)
	recorded := make(chan []string)
	go func() {
		var messages []string
		for event := range seen.ResultChan() {
			op := &policyv1beta2.OperatorPolicy{}
			u, _ := event.Object.(*unstructured.Unstructured)
			if u == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, op) != nil {
				continue
			}
			if op.Status.Compliant != compliant {
				messages = append(messages, fmt.Sprintf("%s:\n%s", op.Status.Compliant, scripttest.Conditions(op)))
			}
		}
		recorded <- messages
	}()
	return func() []string {
		seen.Stop()
		return <-recorded
	}
}

// waitForEvent waits for a compliance event about an object.
func waitForEvent(t *testing.T, e *harness.OLMEnv, owner *unstructured.Unstructured, kind, message string) {
	t.Helper()
	pattern := regexp.MustCompile(message)
	e.Eventually(t, "wait for an event about "+owner.GetName(), func(ctx context.Context) error {
		list, err := e.Clients[cluster.Admin].Resource(schema.GroupVersionResource{
			Version:  "v1",
			Resource: "events",
		}).Namespace(owner.GetNamespace()).
			List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(owner.GetUID())})
		if err != nil {
			return err
		}
		var seen []string
		for _, event := range list.Items {
			text, _, _ := unstructured.NestedString(event.Object, "message")
			if is, _, _ := unstructured.NestedString(event.Object, "type"); is == kind && pattern.MatchString(text) {
				return nil
			}
			seen = append(seen, text)
		}
		return fmt.Errorf("no %s event matches %s, but there are\n%s", kind, message, strings.Join(seen, "\n"))
	})
}

// storyInform is story 4: a policy that only informs, about an operator that a user installed.
func storyInform(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: inform
  severity: medium
  complianceType: musthave
  subscription:
    channel: stable
    name: etcd
    namespace: %[1]s
    source: %[3]s
    sourceNamespace: %[4]s
  upgradeApproval: Automatic
  complianceConfig:
    catalogSourceUnhealthy: Compliant
    deploymentsUnavailable: NonCompliant
    upgradesAvailable: Compliant
`, namespace, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace)
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(nonCompliant),
		wantCondition("OperatorGroupCompliant=False OperatorGroupMissing",
			"will not be created, because the policy is not enforced"),
		wantCondition("SubscriptionCompliant=False SubscriptionMissing",
			"will not be created, because the policy is not enforced"))
	e.WantNames(t, harness.OperatorGroups, namespace)
	e.WantNames(t, harness.Subscriptions, namespace)

	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "etcd", harness.Etcd2, "Manual")
	install := e.WaitForPlan(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"An installation of "+harness.Etcd2))
	e.Approve(t, cluster.Tenant, install)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("OperatorGroupCompliant=True PreexistingOperatorGroupFound"),
		wantCondition("DeploymentCompliant=True DeploymentsAvailable"),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval", "An upgrade to "+harness.Etcd4),
		wantCondition("InstallPlanPending=True RequiresApproval")) // OLM's own condition of the Subscription

	available(t, e.Env, namespace, "etcd-operator", false)
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("DeploymentCompliant=False DeploymentsUnavailable",
		"etcd-operator"))
	available(t, e.Env, namespace, "etcd-operator", true)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))

	sub := e.Get(t, harness.Subscriptions, namespace, "etcd")
	if sub.GetAnnotations() != nil {
		t.Errorf("the Subscription has annotations %v, want none", sub.GetAnnotations())
	}
	harness.WantField(t, sub, `"Manual"`, "spec", "installPlanApproval")
	e.WaitForPlan(t, namespace, harness.Etcd4) // not approved
}

// available reports that a Deployment is available, or that it no longer is.
func available(t *testing.T, e *harness.Env, namespace, name string, available bool) {
	t.Helper()
	status, replicas, missing := "False", 0, 1
	if available {
		status, replicas, missing = "True", 1, 0
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "deployment", "-n", namespace, name,
		"--subresource=status", "--type=merge", "--patch",
		fmt.Sprintf(`{"status":{"readyReplicas":%[2]d,"availableReplicas":%[2]d,"unavailableReplicas":%[3]d,"conditions":[{"type":"Available","status":%[1]q},{"type":"Progressing","status":"True"}]}}`,
			status, replicas, missing))
}

// storyNamespace is story 5: an operator for one namespace, with all upgrades.
func storyNamespace(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  severity: medium
  complianceType: musthave
  operatorGroup:
    name: og-prometheus
    namespace: %[1]s
    target:
      namespaces:
        - %[1]s
  subscription:
    channel: stable
    name: prometheus
    namespace: %[1]s
    source: %[3]s
    sourceNamespace: %[4]s
    startingCSV: prometheusoperator.v0.46.0
  upgradeApproval: Automatic
`, namespace, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace)
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, "prometheusoperator.v0.47.0")
	waitForPolicy(t, e, p, is(compliant), has("prometheusoperator.v0.47.0"),
		wantCondition("DeploymentCompliant=True DeploymentsAvailable"))
	harness.WantField(t, e.Get(t, harness.OperatorGroups, namespace, "og-prometheus"), `["`+namespace+`"]`, "spec",
		"targetNamespaces")
	harness.WantField(t, e.Get(t, harness.Subscriptions, namespace, "prometheus"), `"Automatic"`, "spec",
		"installPlanApproval")
}

// notComingUp is about operators whose pods never are available.
func notComingUp(t *testing.T, e *harness.OLMEnv) {
	waiting, failing := e.NewNamespace(t), e.NewNamespace(t)
	stuck, failed := harness.GroupedPolicy(waiting, "rabbitmq"), harness.GroupedPolicy(failing, "mongodb")
	e.Apply(t, stuck, failed)
	waitForPolicy(t, e, stuck, is(nonCompliant), has("rabbitmqoperator.v3.0.0"),
		wantCondition("ClusterServiceVersionCompliant=False InstallWaiting",
			"waiting for deployment rabbitmq-operator to become ready"),
		wantCondition("DeploymentCompliant=False DeploymentsUnavailable", "rabbitmq-operator"))
	waitForPolicy(t, e, failed, is(nonCompliant),
		wantCondition("ClusterServiceVersionCompliant=False InstallCheckFailed",
			"install failed: deployment mongodb-operator not ready before timeout"))

	e.Edit(t, stuck, `{"spec":{"complianceConfig":{"deploymentsUnavailable":"Compliant"}}}`)
	waitForPolicy(t, e, stuck, is(compliant), wantCondition("ClusterServiceVersionCompliant=True InstallWaiting",
		"policy compliance is not impacted"))
	e.Edit(t, stuck, `{"spec":{"complianceConfig":{"deploymentsUnavailable":"NonCompliant"}}}`)
	waitForPolicy(t, e, stuck, is(nonCompliant))
	available(t, e.Env, waiting, "rabbitmq-operator", true)
	waitForPolicy(t, e, stuck, is(compliant), has("rabbitmqoperator.v3.0.0"))
}

// editedWhilePending changes what a policy wants while OLM's plan waits for it.
func editedWhilePending(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	// the catalog does not have it, so that OLM goes for the newest
	p := harness.GroupedPolicy(namespace, "etcd", "etcdoperator.v0.0.1")
	e.Apply(t, p)
	waiting := e.WaitForPlan(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(nonCompliant),
		wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval", "An installation of "+harness.Etcd4,
			"(bundle/version)", "allowed is etcdoperator.v0.0.1"))
	e.Edit(t, p, `{"spec":{"versions":null,"versionRange":"<0.0.2"}}`)
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"(bundle/version-range)"))
	e.Edit(t, p, `{"spec":{"remediationAction":"inform","versionRange":"<1.0.0"}}`)
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval"))
	harness.WantField(t, e.Get(t, harness.InstallPlans, namespace, waiting.GetName()), `false`, "spec", "approved")
	e.Edit(t, p, `{"spec":{"remediationAction":"enforce"}}`)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
	harness.WantField(t, e.Get(t, harness.InstallPlans, namespace, waiting.GetName()), `true`, "spec", "approved")
}

// existingInstallation is about an operator that serves a namespace from another one.
func existingInstallation(t *testing.T, e *harness.OLMEnv) {
	home, elsewhere := e.NewNamespace(t), e.NewNamespace(t)
	first := harness.GroupedPolicy(elsewhere, "jaeger", "jaeger-operator.v1.1.0")
	unstructured.RemoveNestedField(first.Object, "spec", "operatorGroup")
	e.Apply(t, first)
	waitForPolicy(t, e, first, is(compliant), has("jaeger-operator.v1.1.0"))

	second := harness.GroupedPolicy(home, "jaeger", "jaeger-operator.v1.1.0")
	unstructured.RemoveNestedField(second.Object, "spec", "operatorGroup")
	e.Eventually(t, "wait for OLM's copy", func(ctx context.Context) error {
		_, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(home).Get(ctx,
			"jaeger-operator.v1.1.0", metav1.GetOptions{})
		return err
	})
	e.Apply(t, second)
	waitForPolicy(t, e, second, is(compliant), has("jaeger-operator.v1.1.0"),
		wantCondition("SubscriptionCompliant=True ExistingInstallation", elsewhere),
		wantCondition("OperatorGroupCompliant=True ExistingInstallation", elsewhere))
	e.WantNames(t, harness.OperatorGroups, home)
	e.WantNames(t, harness.Subscriptions, home)

	// A version that this policy does not allow is reported, and not removed.
	e.Edit(t, second, `{"spec":{"versions":["jaeger-operator.v1.0.0"]}}`)
	waitForPolicy(t, e, second, is(nonCompliant),
		wantCondition("ClusterServiceVersionCompliant=False UnapprovedVersion", "jaeger-operator.v1.1.0"))
	e.WantNames(t, harness.Subscriptions, home)
}

// withoutCopies is existingInstallation where OLM makes no copies, by a setting for the whole cluster.
func withoutCopies(t *testing.T, e *harness.OLMEnv) {
	const csv = "prometheusoperator.v0.47.0"
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "olmconfig", "cluster", "--type=merge", "-p",
		`{"spec":{"features":{"disableCopiedCSVs":true}}}`)
	home, elsewhere := e.NewNamespace(t), e.NewNamespace(t)
	for _, namespace := range []string{elsewhere, home} {
		p := harness.GroupedPolicy(namespace, "prometheus", csv)
		unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
		e.Apply(t, p)
		wants := []want{is(compliant), has(csv)}
		if namespace == home {
			wants = append(wants, wantCondition("SubscriptionCompliant=True ExistingInstallation", elsewhere))
		}
		waitForPolicy(t, e, p, wants...)
	}
	e.WantNames(t, harness.ClusterServiceVersions, home)
	e.WantNames(t, harness.Subscriptions, home)
}

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

// ownNamespaceOnly is about an operator for which the usual OperatorGroup, for all namespaces, would not do.
func ownNamespaceOnly(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.GroupedPolicy(namespace, "minio")
	unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("miniooperator.v4.0.0"),
		wantCondition("OperatorGroupCompliant=True OperatorGroupMatches"))
}

// defaultsFromCatalog is the shortest policy there is.
func defaultsFromCatalog(t *testing.T, e *harness.OLMEnv) {
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: grafana, namespace: %s}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: grafana}
  upgradeApproval: Automatic
`, cluster.PolicyNamespace)
	const namespace = "grafana-system" // where the package suggests
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("grafanaoperator.v5.0.0"))
	sub := e.Get(t, harness.Subscriptions, namespace, "grafana")
	harness.WantField(t, sub, `"`+olm.Channel+`"`, "spec", "channel")
	harness.WantField(t, sub, `"`+olm.Catalog+`"`, "spec", "source")
	harness.WantField(t, sub, `"`+cluster.OLMNamespace+`"`, "spec", "sourceNamespace")
	harness.WantField(t, e.Get(t, harness.OperatorPolicies, p.GetNamespace(), p.GetName()), `{"name":"grafana"}`,
		"spec", "subscription")
}

// deprecationsAndChannels are what the catalog warns of.
func deprecationsAndChannels(t *testing.T, e *harness.OLMEnv) {
	old, behind := e.NewNamespace(t), e.NewNamespace(t)
	mysql, kafka := harness.GroupedPolicy(old, "mysql"),
		harness.WithField(harness.GroupedPolicy(behind, "kafka"), "stable-1.0", "spec", "subscription", "channel")
	e.Apply(t, mysql, kafka)
	waitForPolicy(t, e, mysql, is(compliant), has("mysqloperator.v8.0.0"),
		wantCondition("NoDeprecations=False PackageDeprecated", "package mysql is no longer maintained, use postgres"))
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
