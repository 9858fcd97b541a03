package plugin

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestWhyStale: what keeps a plan that is not wanted any more from being approved is no reason to edit a policy.
func TestWhyStale(t *testing.T) {
	const plan = "install-x7k2p"
	field := func(u *unstructured.Unstructured, value any, path ...string) {
		if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name      string
		edit      func(subscription *unstructured.Unstructured)
		says      string
		wantsEdit bool
	}{
		{
			name: "outdated", edit: func(*unstructured.Unstructured) {}, wantsEdit: true,
			says: "it is outdated: no Subscription names it as its current plan, and approving it would bring an earlier version; delete it",
		}, {
			name: "current", wantsEdit: true,
			edit: func(s *unstructured.Unstructured) {
				field(s, map[string]any{"name": plan}, "status",
					"installPlanRef")
			},
			says: "(bundle/version)",
		}, {
			name: "stale",
			edit: func(s *unstructured.Unstructured) {
				field(s, map[string]any{"name": plan}, "status", "installPlanRef")
				field(s, "etcdoperator.v0.9.2", "spec", "startingCSV")
			},
			says: "the InstallPlan install-x7k2p is stale: it installs etcdoperator.v0.9.4, and Subscription etcd starts with etcdoperator.v0.9.2; " +
				"delete it (kubectl delete installplan install-x7k2p -n bundle-version-deny), and OLM creates a new one",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := documents(t, "../../../manifests/samples/bundle-version-deny.yaml")
			for _, o := range objects {
				if o.GetKind() == "Subscription" {
					tc.edit(o)
				}
			}
			out, _ := run(t, command("why"), "installplan", "bundle-version-deny/"+plan, "--kubeconfig",
				start(t, &server{objects: objects}))
			if !strings.Contains(out, tc.says) || strings.Contains(out, "an edit of") != tc.wantsEdit {
				t.Errorf("want %q, with an edit: %t\n%s", tc.says, tc.wantsEdit, out)
			}
		})
	}
}
