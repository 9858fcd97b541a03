package e2e

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
	"github.com/opgate/opgate/rules"
)

// gpuProperties are those of a Constraint that offers GPUs to namespaces with a label.
func gpuConstraint(name string, memory int) *unstructured.Unstructured {
	return object(`
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
	return object(`{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: %s, namespace: %s}}`,
		rules.VirtualOperatorName(constraint), namespace)
}

// waitForVirtualOperator waits until one is there and satisfies check.
func (e *olmEnv) waitForVirtualOperator(t *testing.T, u *unstructured.Unstructured, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	e.eventually(t, "wait for "+u.GetName()+" in "+u.GetNamespace(), func(ctx context.Context) (err error) {
		if got, err = e.find(ctx, u); err != nil {
			return err
		}
		if got == nil {
			return errors.New("it is not there")
		}
		return check(got)
	})
	return got
}

// offers wants the properties of a virtual operator to be these, by type and written as JSON.
func offers(want map[string]string) func(*unstructured.Unstructured) error {
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
func virtualOperator(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	kubernetes := fmt.Sprintf(`{"version":%q}`, kubernetesVersion(t, e.env))
	e.operatorGroup(t, namespace)
	kubectl(t, e.Cluster, cluster.Admin, "", "label", "namespace", namespace, "gpu="+namespace)
	e.subscribe(t, namespace, "trainer", "", "Automatic")
	e.waitForUnresolved(t, namespace, "trainer")

	// A GPU that is too small is one that OLM sees and that does not do.
	u := gpuConstraint(namespace, 16)
	e.constrain(t, u)
	virtual := virtualOperatorIn(namespace, namespace)
	e.waitForVirtualOperator(t, virtual, offers(map[string]string{
		"acme.gpu": `{"memory":16}`, "acme.text": `"<ü>"`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes,
	}))
	e.waitForUnresolved(t, namespace, "trainer")
	since := time.Now()
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, gpuConstraint(namespace, 80)), "apply", "-f", "-")
	e.eventually(t, "see the plan", func(ctx context.Context) error {
		if plans, err := e.names(ctx, installPlans, namespace); err != nil || len(plans) == 0 {
			return errors.Join(errors.New("there is none"), err)
		}
		return nil
	})
	t.Logf("there is a plan %s after the cluster offered what it needs", time.Since(since).Round(100*time.Millisecond))
	e.waitForCSV(t, namespace, trainer1)

	made := e.waitForVirtualOperator(t, virtual, offers(map[string]string{
		"acme.gpu": `{"memory":80}`, "acme.text": `"<ü>"`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes,
	}))
	wantField(t, made, `"`+namespace+`"`, "metadata", "labels", rules.VirtualOperatorLabel)
	owner := made.GetOwnerReferences()
	if uid := e.get(t, constraints, "", namespace).GetUID(); len(owner) != 1 || owner[0].Kind != "Constraint" || owner[0].UID != uid {
		t.Errorf("its owners are %+v, want the Constraint %s", owner, uid)
	}
	if in := e.csvsNamed(t, made.GetName()); !slices.Equal(in, []string{namespace}) {
		t.Errorf("it is in namespaces %v, want it in %s alone", in, namespace)
	}
	e.waitForConstraint(t, namespace, func(c *constraintv1.Constraint) error {
		if c.Status.VirtualOperators != 1 {
			return errors.New("want one virtual operator")
		}
		return nil
	})
	phase, _, _ := unstructured.NestedString(made.Object, "status", "phase")
	t.Logf("to OLM it is %s", phase)
	e.tamper(t, made)

	// Given by a Constraint, a property of the cluster is not filled in.
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "constraint", namespace, "--type=merge", "--patch",
		`{"spec":{"properties":"[{\"type\":\"acme.gpu\",\"value\":{\"memory\":80}}]"}}`)
	e.waitForVirtualOperator(t, virtual, offers(map[string]string{"acme.gpu": `{"memory":80}`, "olm.k8s": kubernetes, "olm.kubeversion": kubernetes}))

	kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", namespace, "trainer")
	e.waitForGone(t, csvs, namespace, made.GetName())
	e.waitForCSV(t, namespace, trainer1) // what is installed stays

	e.subscribe(t, namespace, "consul", "", "Automatic")
	e.waitForVirtualOperator(t, virtual, func(*unstructured.Unstructured) error { return nil })
	e.remove(t, u)
	e.waitForGone(t, csvs, namespace, made.GetName())
}

// tamper tries to make a virtual operator say something else, as an admin and as a tenant who may write ClusterServiceVersions.
func (e *olmEnv) tamper(t *testing.T, virtual *unstructured.Unstructured) {
	t.Helper()
	namespace, name := virtual.GetNamespace(), virtual.GetName()
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "csv-writer", "--verb=get,create,update,patch,delete", "--resource=clusterserviceversions.operators.coreos.com")
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "csv-writer", "--role=csv-writer", "--user="+string(cluster.Tenant))
	fake := virtualOperatorIn(namespace, "fake")
	fake.SetLabels(map[string]string{rules.VirtualOperatorLabel: "fake"})
	fake.Object["spec"] = virtual.Object["spec"]
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant} {
		for what, args := range map[string][]string{
			"properties": {"annotate", "--overwrite", "csv", "-n", namespace, name, `operatorframework.io/properties={"properties":[]}`},
			"spec":       {"patch", "csv", "-n", namespace, name, "--type=merge", "--patch", `{"spec":{"version":"1.0.0"}}`},
			"label":      {"label", "csv", "-n", namespace, name, rules.VirtualOperatorLabel + "-"},
		} {
			// The tenant's role takes a moment to be known.
			e.eventually(t, "be refused to change its "+what, func(ctx context.Context) error {
				result, err := e.Kubectl(ctx, user, "", args...)
				if err == nil && (result.ExitCode == 0 || !strings.Contains(result.Stderr, "(csv/virtual-operator)")) {
					err = fmt.Errorf("%s got exit code %d and %s%s", user, result.ExitCode, result.Stdout, result.Stderr)
				}
				return err
			})
		}
		refused(t, e.Cluster, user, asJSON(t, fake), []string{"create", "-f", "-"}, "clusterserviceversion "+namespace+"/"+fake.GetName()+
			": a virtual operator, which label "+rules.VirtualOperatorLabel+" makes it, is for Opgate alone to write (csv/virtual-operator)")
	}
	if now := e.get(t, csvs, namespace, name); normal(now.Object["spec"]) != normal(virtual.Object["spec"]) {
		t.Errorf("its spec is\n%s\nand was\n%s", normal(now.Object["spec"]), normal(virtual.Object["spec"]))
	}
	kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "csv", "-n", namespace, name)
	e.waitForVirtualOperator(t, virtual, func(u *unstructured.Unstructured) error {
		if u.GetUID() == virtual.GetUID() {
			return errors.New("it is still the one that was deleted")
		}
		return nil
	})
}

// virtualOperatorGlobal has one in a namespace whose operators are for all namespaces: OLM calls it failed, reads it and
// copies it nowhere.
func virtualOperatorGlobal(t *testing.T, e *olmEnv) {
	namespace, without := e.newNamespace(t), e.newNamespace(t)
	e.apply(t, object(`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: all, namespace: %s}, spec: {}}`, namespace))
	for _, name := range []string{namespace, without} {
		kubectl(t, e.Cluster, cluster.Admin, "", "label", "namespace", name, "gpu="+namespace)
	}
	e.subscribe(t, namespace, "trainer", "", "Manual")
	e.waitForUnresolved(t, namespace, "trainer")
	since := time.Now()
	e.constrain(t, gpuConstraint(namespace, 80))
	e.waitForPlan(t, namespace, trainer1)
	t.Logf("there is a plan %s after the cluster offered what it needs", time.Since(since).Round(100*time.Millisecond))
	virtual := virtualOperatorIn(namespace, namespace)
	e.waitForVirtualOperator(t, virtual, func(u *unstructured.Unstructured) error {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		reason, _, _ := unstructured.NestedString(u.Object, "status", "reason")
		if phase != "Failed" || reason != "UnsupportedOperatorGroup" {
			return fmt.Errorf("its phase is %s, because of %s", phase, reason)
		}
		return nil
	})
	// The other namespace has the label, and no Subscription.
	if in := e.csvsNamed(t, virtual.GetName()); !slices.Equal(in, []string{namespace}) {
		t.Errorf("it is in namespaces %v, want it in %s alone", in, namespace)
	}
}
