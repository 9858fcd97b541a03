package gate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestInvalidIsAdopted: objects that are not valid, and were stored while no gate ran, are taken into git and deleted, by
// client-side and by server-side apply; a changed spec has to be valid as a whole, although the API server itself passes
// over what is invalid in fields that stay as they are.
func TestInvalidIsAdopted(t *testing.T) {
	t.Parallel()
	e := harness.StartWithoutGate(t)
	const policies = cluster.PolicyNamespace
	invalid := map[string]*unstructured.Unstructured{
		"operatorpolicy": harness.WithField(harness.OperatorPolicy("shop"), "~4.16", "spec", "versionRange"),
		"constraint": harness.Object(`{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: invalid},
			spec: {rules: [{expression: "1 +"}]}}`),
		"policies.policy.open-cluster-management.io": harness.Object(`{apiVersion: policy.open-cluster-management.io/v1, kind: Policy,
			metadata: {name: invalid, namespace: %s}, spec: {disabled: true, policy-templates: [], dependencies: [
			{apiVersion: example.com, kind: A, name: a, compliance: Compliant}]}}`, policies),
	}
	for _, u := range invalid {
		e.EnsureNamespaces(t, []*unstructured.Unstructured{u})
		e.Put(t, u)
	}
	e.StartGate(t, cluster.GateOptions{})
	for kind, u := range invalid {
		run := func(stdin string, args ...string) {
			t.Helper()
			harness.Kubectl(t, e.Cluster, cluster.Admin, stdin, args...)
		}
		object := []string{kind, u.GetName()}
		if u.GetNamespace() != "" {
			object = append(object, "-n", u.GetNamespace())
		}
		run("", slices.Concat([]string{"label"}, object, []string{"a=b"})...)
		run("", slices.Concat([]string{"annotate"}, object, []string{"argocd.argoproj.io/tracking-id=a"})...)
		run(harness.AsJSON(t, u), "apply", "-f", "-")
		run(harness.AsJSON(t, u), "apply", "--server-side", "--force-conflicts", "-f", "-")
		if kind != "constraint" {
			patch := `{"spec":{"remediationAction":"inform"}}`
			harness.WantRefused(t, e.Cluster, cluster.Admin, "", append([]string{"patch", "--type=merge", "--patch", patch}, object...),
				"/field)")
		}
		run("", append([]string{"delete"}, object...)...)
	}
}
