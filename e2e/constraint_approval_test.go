package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
)

// requirement replaces the rule of a Constraint as an admin.
func (e *env) requirement(t *testing.T, name, rule string) {
	t.Helper()
	spec := constraintOf(name, rule, "")
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "constraint", name, "--type=merge", "--patch", asJSON(t, &unstructured.Unstructured{
		Object: map[string]any{"spec": spec.Object["spec"]},
	}))
}

// violatingWaits is about an operator that no one may install, and about what happens when they may.
func violatingWaits(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.constrain(t, constraintOf(namespace, only(namespace, isCertified), "only certified operators"))
	e.operatorGroup(t, namespace)
	if approval := e.subscribe(t, namespace, "etcd", "", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	e.waitForApproval(t, namespace, "etcd", "Manual", "Automatic")
	waiting := e.waitForPlan(t, namespace, etcd4)
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		e.wantApprovalRefused(t, user, waiting, "installplan "+namespace+"/"+waiting.GetName()+": "+etcd4+" is not allowed by Constraint "+namespace+
			" (plan/constraint): only certified operators (it must satisfy ")
	}
	e.wantPhaseRefused(t, waiting, "(plan/status-phase)", "(plan/constraint)")
	e.wantNames(t, csvs, namespace)

	// A rule that fails at run time holds as well, with what the matter is, and does not stand in the way of the other.
	e.requirement(t, namespace, only(namespace, "properties.exists_one(p, p.value.level == 'gold')"))
	e.sync(t)
	e.wantApprovalRefused(t, cluster.Admin, waiting, etcd4+" is held by Constraint "+namespace+" (plan/constraint)", "no such key: level")

	e.requirement(t, namespace, only(namespace, "packageName == 'etcd'"))
	e.waitForCSV(t, namespace, etcd4) // the loop approved it
	e.waitForApproval(t, namespace, "etcd", "Manual", "Automatic")
}

// deletedLetsPass deletes a Constraint while a plan waits for it: what was asked for then is what happens.
func deletedLetsPass(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	u := constraintOf(namespace, only(namespace, isCertified), "only certified operators")
	e.constrain(t, u)
	e.operatorGroup(t, namespace)
	e.subscribe(t, namespace, "etcd", "", "Automatic")
	waiting := e.waitForPlan(t, namespace, etcd4)
	e.wantApprovalRefused(t, cluster.Admin, waiting, "(plan/constraint)")
	e.remove(t, u)
	e.waitForCSV(t, namespace, etcd4) // OLM itself would leave the plan alone, though its Subscription is Automatic again
	e.waitForApproval(t, namespace, "etcd", "Automatic", "")
}

// satisfyingInstalls has the loop approve what is allowed, in a namespace that no policy is about, and leave alone what a person
// wants to approve.
func satisfyingInstalls(t *testing.T, e *olmEnv) {
	byHand, free := e.newNamespace(t), e.newNamespace(t)
	rule := "!(namespaceObject.metadata.name in ['" + byHand + "', '" + free + "']) || " + isCertified
	e.constrain(t, constraintOf(free, rule, "only certified operators"))
	e.operatorGroup(t, byHand)
	e.operatorGroup(t, free)
	e.subscribe(t, byHand, "consul", "", "Manual")
	e.waitForApproval(t, byHand, "consul", "Manual", "")
	waiting := e.waitForPlan(t, byHand, certified1)
	if approval := e.subscribe(t, free, "consul", "", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	e.waitForCSV(t, free, certified1)
	// The loop had more time for this one.
	wantField(t, e.get(t, installPlans, byHand, waiting.GetName()), `false`, "spec", "approved")
	e.approve(t, cluster.Tenant, waiting)
	e.waitForCSV(t, byHand, certified1)
}

// violatingDependency has OLM add an operator that is not allowed to one that is.
func violatingDependency(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.constrain(t, constraintOf(namespace, only(namespace, "packageName != 'etcd' || cluster.properties.exists(p, p.type == 'acme.etcd' && p.value == 'everywhere')"),
		"etcd is run by the platform team"))
	e.operatorGroup(t, namespace)
	e.subscribe(t, namespace, "vault", "", "Automatic")
	both := e.waitForPlan(t, namespace, etcd4, vault1)
	refusal := e.wantApprovalRefused(t, cluster.Admin, both, etcd4+" is not allowed by Constraint "+namespace+" (plan/constraint): etcd is run by the platform team")
	if strings.Contains(refusal, vault1) {
		t.Errorf("got %s\nwant %s alone to be the trouble", refusal, etcd4)
	}

	// A property that another Constraint gives the cluster is what the rule waits for.
	open := constraintOf(namespace+"-open", "true", "")
	open.Object["spec"] = map[string]any{"properties": `[{"type":"acme.etcd","value":"everywhere"}]`}
	e.constrain(t, open)
	e.waitForCSV(t, namespace, etcd4)
	e.waitForCSV(t, namespace, vault1)
}

// clusterAdmin is about what an operator may do on the cluster. For one whose bundle lies in the catalog the plan tells it. For an
// image the first to tell is the ClusterServiceVersion that OLM wants to write once the plan is approved.
func clusterAdmin(t *testing.T, e *olmEnv) {
	inline, image := e.newNamespace(t), e.newNamespace(t)
	const rule = "!clusterPermissions.exists(r, '*' in r.apiGroups && '*' in r.resources && '*' in r.verbs)"
	for _, namespace := range []string{inline, image} {
		e.constrain(t, constraintOf(namespace, only(namespace, rule), "no cluster admins"))
		e.operatorGroup(t, namespace)
	}
	e.subscribe(t, inline, "superuser", "", "Automatic")
	e.subscribe(t, image, "superimage", "", "Automatic")
	e.wantApprovalRefused(t, cluster.Admin, e.waitForPlan(t, inline, superuser1),
		superuser1+" is not allowed by Constraint "+inline, "(plan/constraint): no cluster admins")

	// The loop approves it, and the ClusterServiceVersion, which OLM writes first, does not come. OLM tries again and again.
	e.eventually(t, "see the image refused", func(context.Context) error {
		for _, r := range e.refusalsOfOLM(t) {
			if r.Object == "clusterserviceversion "+image+"/"+superimage1 && slices.Equal(r.Rules, []string{"csv/constraint"}) {
				return nil
			}
		}
		return errors.New("it is not")
	})
	e.wantNames(t, csvs, image)
	e.requirement(t, image, only(image, "true"))
	e.waitForCSV(t, image, superimage1)
}

// subscribedBefore is about operators that came before the Constraint.
func subscribedBefore(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	e.subscribe(t, namespace, "prometheus", "", "Automatic")
	e.subscribe(t, namespace, "consul", "", "Automatic")
	kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "subscription", "-n", namespace, "prometheus", "example.com/owner=shop")
	e.waitForCSV(t, namespace, prometheus)
	e.waitForCSV(t, namespace, certified1)
	e.sync(t)

	u := constraintOf(namespace, only(namespace, isCertified), "only certified operators")
	preview := e.constrain(t, u)
	wantTexts(t, preview, "Warning: constraint "+namespace+": "+prometheus+" is installed in namespace "+namespace+
		" and does not satisfy spec.constraints[0] (constraint/violated): only certified operators")
	if strings.Contains(preview, certified1) {
		t.Errorf("%s is certified, and is previewed as well:\n%s", certified1, preview)
	}
	for _, name := range []string{"prometheus", "consul"} {
		e.waitForApproval(t, namespace, name, "Manual", "Automatic")
	}
	e.waitForCSV(t, namespace, prometheus) // nothing is done to it

	counted := e.waitForConstraint(t, namespace, counts(1))
	if counted.Status.Constraints[0].Message != "only certified operators" || counted.Status.Constraints[0].Satisfied == 0 {
		t.Errorf("its status is %+v", counted.Status)
	}
	lines := strings.Split(kubectl(t, e.Cluster, cluster.Tenant, "", "get", "constraints.operators.coreos.com", namespace), "\n")
	if header, row := strings.Fields(lines[0]), strings.Fields(lines[1]); !slices.Equal(header, []string{"NAME", "READY", "VIOLATING", "AGE"}) ||
		len(row) != 4 || !slices.Equal(row[:3], []string{namespace, "True", "1"}) {
		t.Errorf("kubectl get shows\n%s", strings.Join(lines, "\n"))
	}

	e.requirement(t, namespace, only(namespace, "packageName != 'prometheus'"))
	e.waitForConstraint(t, namespace, counts(1))
	e.remove(t, u)
	for _, name := range []string{"prometheus", "consul"} {
		e.waitForApproval(t, namespace, name, "Automatic", "")
	}
	if owner := e.get(t, subscriptions, namespace, "prometheus").GetAnnotations()["example.com/owner"]; owner != "shop" {
		t.Errorf("another annotation of the Subscription is %q, want it left alone", owner)
	}
}

// namespaceLeftOut wants Constraints to make nobody wait where no webhook judges. OLM does nothing here, for want of an OperatorGroup.
func namespaceLeftOut(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.needNamespace(t, leftOut, true)
	for _, in := range []string{namespace, leftOut} {
		e.subscribe(t, in, "consul", "", "Automatic")
	}
	e.sync(t)
	e.constrain(t, constraintOf(namespace, "!(namespaceObject.metadata.name in ['"+namespace+"', '"+leftOut+"']) || "+isCertified, ""))
	e.waitForApproval(t, namespace, "consul", "Manual", "Automatic")
	e.subscribe(t, namespace, "vault", "", "Automatic") // what was to be done when the Constraint came is done when this waits
	e.waitForApproval(t, namespace, "vault", "Manual", "Automatic")
	e.waitForApproval(t, leftOut, "consul", "Automatic", "")
	if got := e.subscribe(t, leftOut, "vault", "", "Automatic"); got != "Automatic" {
		t.Errorf("a new Subscription there is %s, want it left alone", got)
	}
}

// statusRests wants statuses not to be written for nothing: others come and are evaluated, and one that they say nothing about
// stays as it is. What the tests before this one installed may still come, which is something: then it is tried again.
func statusRests(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.constrain(t, constraintOf(namespace, only(namespace, isCertified), ""))
	for attempt, pkg := range []string{"consul", "vault", "prometheus"} {
		before := e.waitForConstraint(t, namespace, counts(0))
		for n := range 3 {
			name := fmt.Sprintf("%s-%d-%d", namespace, attempt, n)
			e.constrain(t, constraintOf(name, only(name, "false"), ""))
			e.waitForConstraint(t, name, counts(0))
		}
		e.subscribe(t, namespace, pkg, "", "Manual") // in a namespace where OLM does nothing
		e.sync(t)
		switch now := e.waitForConstraint(t, namespace, counts(0)); {
		case now.ResourceVersion == before.ResourceVersion:
			return
		case now.Status.Constraints[0].Satisfied == before.Status.Constraints[0].Satisfied:
			t.Fatalf("its status was written again:\n%+v\nand was\n%+v", now.Status, before.Status)
		}
	}
	t.Error("operators went on coming, so that nothing was tested")
}
