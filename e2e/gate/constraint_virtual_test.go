package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
)

// gpuProperties are those of a Constraint that offers GPUs to namespaces with a label.
func gpuConstraint(name string, memory int) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata:
  name: %[1]s
  annotations: {opgate.io/virtual-operator-namespaces: "gpu in (%[1]s)"}
spec:
  properties: '[{"type":"acme.gpu","value":{"memory":%[2]d}},{"type":"acme.text","value":"<ü>"}]'
`, name, memory)
}

// virtualOperatorIn is that of a Constraint in a namespace, with its name and nothing else.
func virtualOperatorIn(namespace, constraint string) *unstructured.Unstructured {
	return harness.Object(`{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: %s, namespace: %s}}`,
		rules.VirtualOperatorName(constraint), namespace)
}

// waitForVirtualOperator waits until one exists and satisfies check.
func waitForVirtualOperator(
	t *testing.T, e *harness.OLMEnv, u *unstructured.Unstructured, check func(*unstructured.Unstructured) error,
) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	e.Eventually(t, "wait for "+u.GetName()+" in "+u.GetNamespace(), func(ctx context.Context) (err error) {
		if got, err = find(ctx, e.Env, u); err != nil {
			return err
		}
		if got == nil {
			return errors.New("it is not there")
		}
		return check(got)
	})
	return got
}

// provides wants the properties of a virtual operator to be these, by type and written as JSON.
func provides(want map[string]string) func(*unstructured.Unstructured) error {
	return func(u *unstructured.Unstructured) error {
		var list struct {
			Properties []struct {
				Type  string
				Value json.RawMessage
			}
		}
		text := u.GetAnnotations()["operatorframework.io/properties"]
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		missing := len(want)
		for _, p := range list.Properties {
			if want[p.Type] != string(p.Value) {
				return fmt.Errorf("its properties are %s, want %s to be %s", text, p.Type, want[p.Type])
			}
			missing--
		}
		if missing != 0 {
			return fmt.Errorf("its properties are %s, want %v", text, want)
		}
		return nil
	}
}

// virtualOperator has OLM resolve, in an unmodified resolver, what needs a property of the cluster.
func virtualOperator(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	kubernetes := fmt.Sprintf(`{"version":%q}`, kubernetesVersion(t, e.Env))
	e.OperatorGroup(t, namespace)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", "namespace", namespace, "gpu="+namespace)
	e.Subscribe(t, namespace, "trainer", "", "Automatic")
	waitForUnresolved(t, e, namespace, "trainer")

	// A GPU that is too small is one that OLM sees and that does not do.
	u := gpuConstraint(namespace, 16)
	constrain(t, e.Env, u)
	virtual := virtualOperatorIn(namespace, namespace)
	waitForVirtualOperator(t, e, virtual, provides(map[string]string{
		"acme.gpu": `{"memory":16}`, "acme.text": `"<ü>"`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes,
	}))
	waitForUnresolved(t, e, namespace, "trainer")
	since := time.Now()
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.AsJSON(t, gpuConstraint(namespace, 80)), "apply", "-f", "-")
	e.Eventually(t, "see the plan", func(ctx context.Context) error {
		if plans, err := e.Names(ctx, harness.InstallPlans, namespace); err != nil || len(plans) == 0 {
			return errors.Join(errors.New("there is none"), err)
		}
		return nil
	})
	t.Logf("there is a plan %s after the cluster offered what it needs", time.Since(since).Round(100*time.Millisecond))
	e.WaitForCSV(t, namespace, trainer1)

	made := waitForVirtualOperator(t, e, virtual, provides(map[string]string{
		"acme.gpu": `{"memory":80}`, "acme.text": `"<ü>"`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes,
	}))
	harness.WantField(t, made, `"`+namespace+`"`, "metadata", "labels", metakey.VirtualOperator)
	owner := made.GetOwnerReferences()
	if uid := e.Get(t, harness.Constraints, "", namespace).GetUID(); len(owner) != 1 || owner[0].Kind != "Constraint" ||
		owner[0].UID != uid {
		t.Errorf("its owners are %+v, want the Constraint %s", owner, uid)
	}
	if in := csvsNamed(t, e.Env, made.GetName()); !slices.Equal(in, []string{namespace}) {
		t.Errorf("it is in namespaces %v, want it in %s alone", in, namespace)
	}
	waitForConstraint(t, e, namespace, func(c *constraintv1.Constraint) error {
		if c.Status.VirtualOperators != 1 {
			return errors.New("want one virtual operator")
		}
		return nil
	})
	phase, _, _ := unstructured.NestedString(made.Object, "status", "phase")
	t.Logf("to OLM it is %s", phase)
	tamper(t, e, made)

	// Given by a Constraint, a property of the cluster is not filled in.
	e.Patch(t, cluster.Admin, harness.Named("Constraint", "", namespace),
		`{"spec":{"properties":"[{\"type\":\"acme.gpu\",\"value\":{\"memory\":80}}]"}}`)
	waitForVirtualOperator(t, e, virtual,
		provides(map[string]string{"acme.gpu": `{"memory":80}`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes}))

	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", namespace, "trainer")
	e.WaitForGone(t, harness.ClusterServiceVersions, namespace, made.GetName())
	e.WaitForCSV(t, namespace, trainer1) // what is installed stays

	e.Subscribe(t, namespace, "consul", "", "Automatic")
	waitForVirtualOperator(t, e, virtual, func(*unstructured.Unstructured) error { return nil })
	e.Remove(t, u)
	e.WaitForGone(t, harness.ClusterServiceVersions, namespace, made.GetName())
}

// tamper tries to make a virtual operator say something else, as an admin and as a tenant who may write
// ClusterServiceVersions.
func tamper(t *testing.T, e *harness.OLMEnv, virtual *unstructured.Unstructured) {
	t.Helper()
	namespace, name := virtual.GetNamespace(), virtual.GetName()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "csv-writer",
		"--verb=get,create,update,patch,delete", "--resource=clusterserviceversions.operators.coreos.com")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "csv-writer",
		"--role=csv-writer", "--user="+string(cluster.Tenant))
	fake := virtualOperatorIn(namespace, "fake")
	fake.SetLabels(map[string]string{metakey.VirtualOperator: "fake"})
	fake.Object["spec"] = virtual.Object["spec"]
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant} {
		for what, args := range map[string][]string{
			"properties": {"annotate", "--overwrite", "csv", "-n", namespace, name,
				`operatorframework.io/properties={"properties":[]}`},
			"spec": {"patch", "csv", "-n", namespace, name, "--type=merge", "--patch",
				`{"spec":{"version":"1.0.0"}}`},
			"label": {"label", "csv", "-n", namespace, name, metakey.VirtualOperator + "-"},
		} {
			// The tenant's role takes a moment to be known.
			e.Eventually(t, "be refused to change its "+what, func(ctx context.Context) error {
				result, err := e.Kubectl(ctx, user, "", args...)
				if err == nil && (result.ExitCode == 0 || !strings.Contains(result.Stderr, "(csv/virtual-operator)")) {
					err = fmt.Errorf("%s got exit code %d and %s%s", user, result.ExitCode, result.Stdout,
						result.Stderr)
				}
				return err
			})
		}
		harness.WantRefused(t, e.Cluster, user, harness.AsJSON(t, fake), []string{"create", "-f", "-"},
			"clusterserviceversion "+namespace+"/"+fake.GetName()+
				": a virtual operator, which label "+metakey.VirtualOperator+
				" makes it, is for Opgate alone to write (csv/virtual-operator)")
	}
	if now := e.Get(t, harness.ClusterServiceVersions, namespace,
		name); harness.Normal(now.Object["spec"]) != harness.Normal(virtual.Object["spec"]) {
		t.Errorf("its spec is\n%s\nand was\n%s", harness.Normal(now.Object["spec"]),
			harness.Normal(virtual.Object["spec"]))
	}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "csv", "-n", namespace, name)
	waitForVirtualOperator(t, e, virtual, func(u *unstructured.Unstructured) error {
		if u.GetUID() == virtual.GetUID() {
			return errors.New("it is still the one that was deleted")
		}
		return nil
	})
}
