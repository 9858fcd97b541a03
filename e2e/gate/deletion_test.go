package gate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestDeletion: what `opgate compile` prints keeps what a policy protects, on a cluster where no Opgate runs, from
// every kind of request that deletes.
func TestDeletion(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	const namespace = cluster.ShopNamespace
	policy := e.Put(t, harness.WithField(harness.OperatorPolicy(namespace), "Confirm", "spec", "deletion"))
	harness.Kubectl(t, e.Cluster, cluster.Admin, compiled(t, e, policy), "apply", "--server-side", "-f", "-")
	subscription := harness.Subscription(namespace, "a-governed", harness.GoodCatalog, "Manual")
	e.Put(t, subscription.DeepCopy())
	other := harness.Subscription(namespace, "b-other", harness.GoodCatalog, "Manual")
	other.Object["spec"].(map[string]any)["name"] = "other"
	e.Put(t, other)
	t.Cleanup(func() { // no Opgate changes it with the policy
		binding := &unstructured.Unstructured{}
		binding.SetAPIVersion("admissionregistration.k8s.io/v1")
		binding.SetKind("ValidatingAdmissionPolicyBinding")
		binding.SetName("opgate-deletion")
		e.Remove(t, binding)
	})
	remove := func(args ...string) []string { return append([]string{"delete", "--wait=false"}, args...) }
	governed := remove("subscription", "a-governed", "-n", namespace)
	// The API server reads new policies within a second.
	harness.Eventually(t, "see the deletion refused", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", append(governed, "--dry-run=server")...)
		if err == nil && result.ExitCode == 0 {
			err = errors.New("it is admitted")
		}
		return err
	})
	const asks = "is not confirmed, as asked for by OperatorPolicy policies/" + namespace + " (deletion/unconfirmed): "

	t.Run("one object, by tenants and cluster admins", func(t *testing.T) {
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
			harness.WantRefused(t, e.Cluster, user, "", governed, "(Forbidden)",
				"subscription "+namespace+"/a-governed: deleting it "+asks)
		}
	})
	t.Run("its namespace", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", remove("namespace", namespace), "(Forbidden)",
			"namespace "+namespace+": deleting it "+asks)
	})
	t.Run("the namespace of the policy", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", remove("namespace", policy.GetNamespace()), "(Forbidden)",
			"deleting it "+asks)
	})
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run("the policy, as "+version, func(t *testing.T) {
			resource := "operatorpolicies." + version + ".policy.open-cluster-management.io"
			harness.WantRefused(t, e.Cluster, cluster.Admin, "",
				remove(resource, policy.GetName(), "-n", policy.GetNamespace()), "(Forbidden)", "deleting it "+asks)
		})
	}
	t.Run("a collection, of which the rest is deleted", func(t *testing.T) {
		answer, err := e.Clients[cluster.Admin].Send(t.Context(), harness.Request{Method: http.MethodDelete,
			Path: "/apis/operators.coreos.com/v1alpha1/namespaces/" + namespace + "/subscriptions"})
		if err != nil || answer.Code != http.StatusForbidden || !strings.Contains(answer.Message, asks) {
			t.Errorf("%v, %s", err, answer)
		}
		if e.Stored(t, subscription) == nil {
			t.Error("it is deleted")
		}
	})
	// Argo CD prunes in the foreground, or in the background as Flux does, of what it has read before.
	for _, propagation := range []string{"Foreground", "Background", "Orphan"} {
		t.Run("a prune, "+propagation, func(t *testing.T) {
			stored := e.Stored(t, subscription)
			answer, err := e.Clients[cluster.Admin].Send(t.Context(), harness.Request{Method: http.MethodDelete,
				Path:        harness.PathOf(harness.Subscriptions, namespace, subscription.GetName(), ""),
				ContentType: "application/json",
				Body: []byte(`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"` + propagation +
					`","preconditions":{"uid":"` + string(stored.GetUID()) + `"}}`)})
			if err != nil || answer.Code != http.StatusForbidden || !strings.Contains(answer.Message, asks) {
				t.Errorf("%v, %s", err, answer)
			}
			if now := e.Stored(t, subscription); now == nil || now.GetDeletionTimestamp() != nil {
				t.Error("it is deleted")
			}
		})
	}
	t.Run("one object after its confirmation", func(t *testing.T) {
		stored := e.Stored(t, subscription)
		confirm := func(value string) {
			t.Helper()
			harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "subscription", "a-governed", "-n", namespace,
				"--overwrite", "opgate.io/delete-confirmed="+value)
		}
		confirm("yes")
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", governed, "(Forbidden)", asks, string(stored.GetUID()))
		confirm(string(stored.GetUID()))
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", governed...)
		_, err := e.Clients[cluster.Admin].Of(stored).Create(t.Context(), subscription.DeepCopy(),
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// one of the same name has another UID
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", governed, "(Forbidden)", asks)
	})
	t.Run("the policy after it was edited to Allow", func(t *testing.T) {
		of := []string{"operatorpolicy", policy.GetName(), "-n", policy.GetNamespace()}
		harness.Kubectl(t, e.Cluster, cluster.Admin, "",
			append([]string{"patch", "--type=merge", "--patch", `{"spec":{"deletion":"Allow"}}`}, of...)...)
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", remove(of...)...)
	})
}
