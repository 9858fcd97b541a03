package gate

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestOLMv1 follows a ClusterExtension with OLM v1's own definitions: one that is older than the policy stays until its
// source is changed, why returns what the gate answers, and it can always be deleted (threat O61).
func TestOLMv1(t *testing.T) {
	e := harness.Shared(t)
	if err := e.InstallOLMv1(t.Context()); err != nil {
		t.Fatal(err)
	}
	namespace := e.NewNamespace(t)
	name := namespace // the kind is cluster-scoped
	manifest := fmt.Sprintf(`{"apiVersion":"olm.operatorframework.io/v1","kind":"ClusterExtension","metadata":{"name":%q},
		"spec":{"namespace":%q,"source":{"sourceType":"Catalog","catalog":{"packageName":"etcd","version":">=0.9.0"}}}}`, name, namespace)
	create := []string{"create", "-f", "-"}
	patch := func(text string) []string {
		return []string{"patch", "clusterextension", name, "--type=merge", "--patch", text}
	}
	version := func(text string) []string {
		return patch(fmt.Sprintf(`{"spec":{"source":{"catalog":{"version":%q}}}}`, text))
	}
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		harness.Kubectl(t, e.Cluster, cluster.Admin, stdin, args...)
	}
	kubectl(manifest, create...)
	t.Cleanup(func() { e.Remove(t, harness.Object("%s", manifest)) })

	policy := harness.OperatorPolicy(namespace)
	unstructured.RemoveNestedField(policy.Object, "spec", "versions")
	if err := unstructured.SetNestedField(policy.Object, ">=0.9.0 <1.0.0", "spec", "versionRange"); err != nil {
		t.Fatal(err)
	}
	e.Put(t, policy)
	e.Sync(t)

	const refused, allowed = "(clusterextension/version)", `allowed is one version in versionRange ">=0.9.0 <1.0.0"`
	harness.WantTexts(t, opgate(t, e, "", 1, "why", "clusterextension", name).Stdout, "Deny clusterextension "+name,
		refused, allowed)
	kubectl("", patch(`{"metadata":{"labels":{"team":"a"},"finalizers":["example.com/wait"]}}`)...)
	kubectl("", patch(`{"metadata":{"finalizers":null},"spec":{"install":{"preflight":{"crdUpgradeSafety":{"enforcement":"None"}}}}}`)...)
	for _, asked := range []string{">=0.9.1", "0.9", "1.0.0", "0.9.4 || 1.0.0", "*"} {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", version(asked), refused)
	}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(`{"spec":{"source":{"catalog":{"version":null}}}}`),
		refused)
	kubectl("", version("0.9.4")...)
	opgate(t, e, "", 0, "why", "clusterextension", name)
	kubectl("", "delete", "clusterextension", name)
	harness.WantRefused(t, e.Cluster, cluster.Admin, manifest, create, refused)
	opgate(t, e, "", 2, "why", "clusterextension", name)
}
