package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// missingRegistry has no image that a node could pull.
const missingRegistry = "registry.invalid"

// withoutPods has all pods end, and upgrades to pods that do not start: what none of them can judge is refused.
func (s *Site) withoutPods(t *testing.T, namespace string) {
	s.Admin(t, "scale", "deployment", "-n", cluster.OpgateNamespace, "opgate", "--replicas=0")
	s.Admin(t, "delete", "pods", "-n", cluster.OpgateNamespace, "-l", "app.kubernetes.io/name=opgate", "--force",
		"--grace-period=0")
	s.wantOnlyOursLocked(t)
	s.wantUnverified(t, "the API server cannot call the gate: Internal error occurred: failed calling webhook")

	apply := func(args ...string) func() {
		return func() {
			harness.Kubectl(t, s.Cluster, cluster.Admin, s.Manifest(t), append([]string{"apply", "-f", "-"}, args...)...)
		}
	}
	ways := []func(){func() {
		s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--force-conflicts", "--set",
			"webhooks.timeoutSeconds=7,image.registry="+missingRegistry)
	}}
	if *harness.Long {
		ways = append(ways, apply("--server-side", "--force-conflicts"), apply(), apply())
	}
	for _, upgrade := range ways {
		upgrade()
		s.wantOnlyOursLocked(t)
		s.wantRules(t)
	}
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reset-values", "--force-conflicts", "--wait", "--set", Quick())
	s.WantGate(t, namespace)
}

// wantNothingLocked wants all kinds that Opgate judges to be writable. A webhook that was called would refuse them,
// since none answers.
func (s *Site) wantNothingLocked(t *testing.T) {
	t.Helper()
	if err := s.WaitForWebhooks(t.Context()); err != nil { // else the API server may not have seen them yet
		t.Fatal(err)
	}
	namespace := s.NewNamespace(t)
	for _, object := range []*unstructured.Unstructured{
		harness.Subscription(namespace, "good", harness.GoodCatalog, "Automatic"),
		harness.InstallPlan(namespace, "another", harness.ForbiddenVersion),
		harness.Object(`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: free, namespace: %s}}`, namespace),
	} {
		result, err := s.Kubectl(t.Context(), cluster.Admin, harness.AsJSON(t, object), "create", "-f", "-")
		if err != nil || result.ExitCode != 0 {
			t.Errorf("%s %s: %s (%v)", object.GetKind(), object.GetName(), result.Stderr, err)
		}
	}
}

// wantRules wants every entry of both webhook configurations to have the rules that it is shipped with.
func (s *Site) wantRules(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "every webhook has rules", func(context.Context) error {
		for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
			names := strings.Fields(s.Admin(t, "get", kind, "opgate", "-o", "jsonpath={.webhooks[*].name}"))
			rules := strings.Fields(s.Admin(t, "get", kind, "opgate", "-o",
				"jsonpath={.webhooks[*].rules[0].resources[0]}"))
			if len(names) == 0 || len(rules) != len(names) {
				return fmt.Errorf("%s: webhooks %q have rules for %q", kind, names, rules)
			}
		}
		return nil
	})
}

// wantOnlyOursLocked checks that with webhooks that do not answer, the API server accepts everything but what Opgate
// judges.
func (s *Site) wantOnlyOursLocked(t *testing.T) {
	t.Helper()
	namespace := s.NewNamespace(t)
	harness.Eventually(t, "what no replica judges is refused", func(ctx context.Context) error {
		err := s.Attempt(ctx, tries(namespace)[0])
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for _, object := range []*unstructured.Unstructured{
		harness.Object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: free, namespace: %s}}`, namespace),
		harness.Object(`{apiVersion: v1, kind: Secret, metadata: {name: free, namespace: kube-system}}`),
		harness.Object(`{apiVersion: v1, kind: Namespace, metadata: {name: free}}`),
		harness.Object(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: free, namespace: %s}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}`, namespace),
		harness.Object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: free}}`),
		harness.Object(`{apiVersion: operators.coreos.com/v2, kind: OperatorCondition, metadata: {name: free, namespace: %s}}`, namespace),
		// Ours, in the one namespace that is never judged.
		harness.Object(`{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {name: free, namespace: %s}, spec: {name: etcd, source: a, sourceNamespace: olm}}`, cluster.OpgateNamespace),
	} {
		if result, err := s.Kubectl(t.Context(), cluster.Admin, harness.AsJSON(t, object), "create", "--dry-run=server",
			"-f", "-"); err != nil || result.ExitCode != 0 {
			t.Errorf("%s %s: %s (%v)", object.GetKind(), object.GetName(), result.Stderr, err)
		}
	}
}
