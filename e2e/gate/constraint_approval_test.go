package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// deletedLetsPass deletes a Constraint while a plan waits for it: what was asked for then is what happens.
func deletedLetsPass(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	u := constraintOf(namespace, only(namespace, isCertified), "only certified operators")
	constrain(t, e.Env, u)
	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "etcd", "", "Automatic")
	waiting := e.WaitForPlan(t, namespace, harness.Etcd4)
	e.WantApprovalRefused(t, cluster.Admin, waiting, "(bundle/constraint)")
	e.Remove(t, u)
	// OLM itself would leave the plan alone, though its Subscription is Automatic again
	e.WaitForCSV(t, namespace, harness.Etcd4)
	waitForApproval(t, e, namespace, "etcd", "Automatic", "")
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

// violatingDependency has OLM add an operator that is not allowed to one that is.
func violatingDependency(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace,
		only(namespace, "packageName != 'etcd' || cluster.properties.exists(p, p.type == 'acme.etcd' && p.value == 'everywhere')"),
		"etcd is run by the platform team"))
	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "vault", "", "Automatic")
	both := e.WaitForPlan(t, namespace, harness.Etcd4, vault1)
	refusal := e.WantApprovalRefused(t, cluster.Admin, both, harness.Etcd4+" is not allowed by Constraint "+
		namespace+" (bundle/constraint): etcd is run by the platform team")
	if strings.Contains(refusal, vault1) {
		t.Errorf("got %s\nwant %s alone to be the trouble", refusal, harness.Etcd4)
	}

	// The rule depends on a property of the cluster that another Constraint sets.
	open := constraintOf(namespace+"-open", "true", "")
	open.Object["spec"] = map[string]any{"properties": `[{"type":"acme.etcd","value":"everywhere"}]`}
	constrain(t, e.Env, open)
	e.WaitForCSV(t, namespace, harness.Etcd4)
	e.WaitForCSV(t, namespace, vault1)
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

// permissionsForAll is the same operator in a namespace whose OperatorGroup is for all: OLM makes ClusterRoles of its
// permissions, as it shows once the Constraint is gone.
func permissionsForAll(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	u := constraintOf(namespace, only(namespace, noClusterAdmin), "no cluster admins")
	constrain(t, e.Env, u)
	e.CreateAs(t, cluster.Admin, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {}
`, namespace))
	e.Eventually(t, "see the OperatorGroup select all namespaces", func(ctx context.Context) error {
		g, err := e.Clients[cluster.Admin].Resource(harness.OperatorGroups).Namespace(namespace).Get(ctx, namespace,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if all, _, _ := unstructured.NestedStringSlice(g.Object, "status", "namespaces"); !slices.Equal(all,
			[]string{""}) {
			return fmt.Errorf("it selects %q", all)
		}
		return nil
	})
	e.Subscribe(t, namespace, "localuser", "", "Automatic")
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, localuser1),
		localuser1+" is not allowed by Constraint "+namespace, "(bundle/constraint): no cluster admins")

	e.Remove(t, u)
	e.WaitForCSV(t, namespace, localuser1)
	wantRights(t, e, namespace, metav1.NamespaceDefault, "yes")
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

// subscribedBefore is about operators that came before the Constraint.
func subscribedBefore(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "prometheus", "", "Automatic")
	e.Subscribe(t, namespace, "consul", "", "Automatic")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "subscription", "-n", namespace, "prometheus",
		"example.com/owner=shop")
	e.WaitForCSV(t, namespace, prometheus)
	e.WaitForCSV(t, namespace, certified1)
	e.Sync(t)

	u := constraintOf(namespace, only(namespace, isCertified), "only certified operators")
	preview := constrain(t, e.Env, u)
	harness.WantTexts(t, preview, "Warning: constraint "+namespace+": "+prometheus+" is installed in namespace "+
		namespace+
		" and does not satisfy spec.constraints[0] (constraint/violated): only certified operators")
	if strings.Contains(preview, certified1) {
		t.Errorf("%s is certified, and is previewed as well:\n%s", certified1, preview)
	}
	for _, name := range []string{"prometheus", "consul"} {
		waitForApproval(t, e, namespace, name, "Manual", "Automatic")
	}
	e.WaitForCSV(t, namespace, prometheus) // nothing is done to it

	counted := waitForConstraint(t, e, namespace, counts(1))
	if counted.Status.Constraints[0].Message != "only certified operators" ||
		counted.Status.Constraints[0].Satisfied == 0 {
		t.Errorf("its status is %+v", counted.Status)
	}
	lines := strings.Split(harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "constraints.operators.coreos.com",
		namespace), "\n")
	if header, row := strings.Fields(lines[0]), strings.Fields(lines[1]); !slices.Equal(header,
		[]string{"NAME", "READY", "VIOLATING", "AGE"}) ||
		len(row) != 4 || !slices.Equal(row[:3], []string{namespace, "True", "1"}) {
		t.Errorf("kubectl get shows\n%s", strings.Join(lines, "\n"))
	}

	requirement(t, e.Env, namespace, only(namespace, "packageName != 'prometheus'"))
	waitForConstraint(t, e, namespace, counts(1))
	e.Remove(t, u)
	for _, name := range []string{"prometheus", "consul"} {
		waitForApproval(t, e, namespace, name, "Automatic", "")
	}
	if owner := e.Get(t, harness.Subscriptions, namespace,
		"prometheus").GetAnnotations()["example.com/owner"]; owner != "shop" {
		t.Errorf("another annotation of the Subscription is %q, want it left alone", owner)
	}
}

// namespaceLeftOut: Constraints hold no plan where no webhook judges. OLM does nothing here without an OperatorGroup.
func namespaceLeftOut(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.EnsureNamespace(t, leftOut, true)
	for _, in := range []string{namespace, leftOut} {
		e.Subscribe(t, in, "consul", "", "Automatic")
	}
	e.Sync(t)
	constrain(t, e.Env, constraintOf(namespace, "!(namespaceObject.metadata.name in ['"+namespace+"', '"+leftOut+
		"']) || "+isCertified, ""))
	waitForApproval(t, e, namespace, "consul", "Manual", "Automatic")
	// what was to be done when the Constraint came is done when this waits
	e.Subscribe(t, namespace, "vault", "", "Automatic")
	waitForApproval(t, e, namespace, "vault", "Manual", "Automatic")
	waitForApproval(t, e, leftOut, "consul", "Automatic", "")
	if got := e.Subscribe(t, leftOut, "vault", "", "Automatic"); got != "Automatic" {
		t.Errorf("a new Subscription there is %s, want it left alone", got)
	}
}

// statusRests wants statuses not to be written for nothing: others come and are evaluated, and one that they say
// nothing about stays as it is. What the tests before this one installed may still come and go, which is something:
// then it is tried again.
func statusRests(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace, only(namespace, isCertified), ""))
	for attempt, pkg := range []string{"consul", "vault", "prometheus"} {
		before := waitForConstraint(t, e, namespace, counts(0))
		for n := range 3 {
			name := fmt.Sprintf("%s-%d-%d", namespace, attempt, n)
			constrain(t, e.Env, constraintOf(name, only(name, "false"), ""))
			waitForConstraint(t, e, name, counts(0))
		}
		e.Subscribe(t, namespace, pkg, "", "Manual") // in a namespace where OLM does nothing
		e.Sync(t)
		now := waitForConstraint(t, e, namespace, counts(0))
		if now.ResourceVersion == before.ResourceVersion {
			return
		}
		t.Logf("its status was written again:\n%+v\nand was\n%+v", now.Status, before.Status)
	}
	t.Error("it was written again each time")
}
