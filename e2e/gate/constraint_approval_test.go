package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// requirement replaces the rule of a Constraint as an admin.
func requirement(t *testing.T, e *harness.Env, name, rule string) {
	t.Helper()
	spec := constraintOf(name, rule, "")
	e.Patch(t, cluster.Admin, harness.Named("Constraint", "", name), harness.AsJSON(t, &unstructured.Unstructured{
		Object: map[string]any{"spec": spec.Object["spec"]},
	}))
}

// violatingWaits is about an operator that no one may install, and about what happens when they may.
func violatingWaits(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace, only(namespace, isCertified), "only certified operators"))
	e.OperatorGroup(t, namespace)
	if approval := e.Subscribe(t, namespace, "etcd", "", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	waitForApproval(t, e, namespace, "etcd", "Manual", "Automatic")
	waiting := e.WaitForPlan(t, namespace, harness.Etcd4)
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		e.WantApprovalRefused(t, user, waiting, "installplan "+namespace+"/"+waiting.GetName()+": "+harness.Etcd4+
			" is not allowed by Constraint "+namespace+
			" (bundle/constraint): only certified operators (it must satisfy ")
	}
	wantPhaseRefused(t, e, waiting, harness.DeniedBy, "(plan/status-phase)", "(bundle/constraint)")
	e.WantNames(t, harness.ClusterServiceVersions, namespace)

	// A rule that fails at run time holds as well, with what the matter is, and does not stand in the way of the other.
	requirement(t, e.Env, namespace, only(namespace, "properties.exists_one(p, p.value.level == 'gold')"))
	e.Sync(t)
	e.WantApprovalRefused(t, cluster.Admin, waiting, harness.Etcd4+" is held by Constraint "+
		namespace+" (bundle/constraint)", "no such key: level")

	requirement(t, e.Env, namespace, only(namespace, "packageName == 'etcd'"))
	e.WaitForCSV(t, namespace, harness.Etcd4) // the loop approved it
	waitForApproval(t, e, namespace, "etcd", "Manual", "Automatic")
}

// satisfyingInstalls has the loop approve what is allowed, in a namespace that no policy is about, and leave alone what
// a person wants to approve.
func satisfyingInstalls(t *testing.T, e *harness.OLMEnv) {
	byHand, free := e.NewNamespace(t), e.NewNamespace(t)
	rule := "!(namespaceObject.metadata.name in ['" + byHand + "', '" + free + "']) || " + isCertified
	constrain(t, e.Env, constraintOf(free, rule, "only certified operators"))
	e.OperatorGroup(t, byHand)
	e.OperatorGroup(t, free)
	e.Subscribe(t, byHand, "consul", "", "Manual")
	waitForApproval(t, e, byHand, "consul", "Manual", "")
	waiting := e.WaitForPlan(t, byHand, certified1)
	if approval := e.Subscribe(t, free, "consul", "", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	e.WaitForCSV(t, free, certified1)
	// The loop had more time for this one.
	harness.WantField(t, e.Get(t, harness.InstallPlans, byHand, waiting.GetName()), `false`, "spec", "approved")
	e.Approve(t, cluster.Tenant, waiting)
	e.WaitForCSV(t, byHand, certified1)
}

// clusterAdmin is about what an operator may do on the cluster. For one whose bundle is in the catalog the plan tells
// it. For an image the first to tell is the ClusterServiceVersion that OLM wants to write once the plan is approved.
func clusterAdmin(t *testing.T, e *harness.OLMEnv) {
	inline, image := e.NewNamespace(t), e.NewNamespace(t)
	for _, namespace := range []string{inline, image} {
		constrain(t, e.Env, constraintOf(namespace, only(namespace, noClusterAdmin), "no cluster admins"))
		e.OperatorGroup(t, namespace)
	}
	e.Subscribe(t, inline, "superuser", "", "Automatic")
	e.Subscribe(t, image, "superimage", "", "Automatic")
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, inline, superuser1),
		superuser1+" is not allowed by Constraint "+inline, "(bundle/constraint): no cluster admins")

	// OLM has unpacked the image before it writes the plan, and Opgate reads that in the background.
	plan := e.WaitForPlan(t, image, superimage1)
	e.Eventually(t, "see the image refused", func(context.Context) error {
		refused := e.WantApprovalRefused(t, cluster.Admin, plan, superimage1, "Constraint "+image,
			"(bundle/constraint)")
		if strings.Contains(refused, superimage1+" is not allowed by Constraint "+
			image+" (bundle/constraint): no cluster admins") {
			return nil
		}
		return errors.New(refused)
	})
	e.WantNames(t, harness.ClusterServiceVersions, image)
	requirement(t, e.Env, image, only(image, "true"))
	e.WaitForCSV(t, image, superimage1)
}

const noClusterAdmin = "!clusterPermissions.exists(r, '*' in r.apiGroups && '*' in r.resources && '*' in r.verbs)"

// localAdmin is an operator that may do everything in one namespace (R-CO-7). OLM plans only where there is one
// OperatorGroup; while that is gone, the operator might get its rights in all namespaces.
func localAdmin(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace, only(namespace, noClusterAdmin), "no cluster admins"))
	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "localuser", "", "Manual")
	plan := e.WaitForPlan(t, namespace, localuser1)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "operatorgroup", "-n", namespace, namespace)
	e.Sync(t)
	e.WantApprovalRefused(t, cluster.Admin, plan,
		localuser1+" is held by Constraint "+namespace, "(bundle/constraint)",
		"the targets of the OperatorGroup are not known")
	e.OperatorGroup(t, namespace)
	e.Sync(t)
	e.Approve(t, cluster.Admin, plan)
	e.WaitForCSV(t, namespace, localuser1)
	wantRights(t, e, namespace, namespace, "yes")
	wantRights(t, e, namespace, metav1.NamespaceDefault, "no")
}

// wantRights asks whether localuser in one namespace may do everything in another.
func wantRights(t *testing.T, e *harness.OLMEnv, of, in, want string) {
	t.Helper()
	e.Eventually(t, "ask for its rights in "+in, func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "auth", "can-i", "*", "secrets", "-n", in,
			"--as=system:serviceaccount:"+of+":localuser-operator")
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(result.Stdout); got != want {
			return fmt.Errorf("the answer is %s, want %s: %s", got, want, result.Stderr)
		}
		return nil
	})
}
