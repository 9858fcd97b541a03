package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestOLM puts the gate in front of a real OLM. What OLM makes of a refusal, and what its plans really hold, no
// stand-in can tell.
func TestOLM(t *testing.T) {
	t.Parallel()
	full := harness.VacantOLM(t, constraintPackages())

	// A Subscription that no webhook saw, and then a policy that is not enforced yet. OLM waits for an OperatorGroup.
	full.Born = full.NewNamespace(t)
	full.Subscribe(t, full.Born, "etcd", "", "Automatic")
	full.CreateAs(t, cluster.Admin, harness.OLMPolicy(full.Born, "Automatic", "etcdoperator.v0.9.2"))
	full.StartGate(t, cluster.GateOptions{})
	full.OperatorGroup(t, full.Born)

	// The first, since OLM tries a refused create only a few times and then waits for its next resync: a switch to
	// Manual heals within seconds while it tries, and took minutes once it had stopped.
	t.Run("a plan that is born approved is refused and heals", func(t *testing.T) { bornApprovedHeals(t, full) })

	// Each in a namespace of its own, and as many at once as go test allows, since most of the time OLM is waiting.
	t.Run("scenario", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *harness.OLMEnv){
			"an upgrade is held until the policy lists it":     upgradeIsHeld,
			"upgradeApproval None allows the first only":       upgradeApprovalNone,
			"a dependency is judged by its own policy":         dependencyIsJudged,
			"an override reaches dependencies that are images": overrideReachesDependency,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, full)
			})
		}
	})
	wantRefusalsOfOLM(t, full)
}

func upgradeIsHeld(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	p := harness.OLMPolicy(namespace, "Automatic", "etcdoperator.v0.9.2")
	e.CreateAs(t, cluster.Admin, p)
	e.Sync(t)

	if approval := e.Subscribe(t, namespace, "etcd", "etcdoperator.v0.9.2", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	install := e.WaitForPlan(t, namespace, "etcdoperator.v0.9.2")
	wantPhaseRefused(t, e, install, harness.HeldBy, "(plan/status-phase)")
	e.Approve(t, cluster.Admin, install)
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.2")

	upgrade := e.WaitForPlan(t, namespace, "etcdoperator.v0.9.4")
	wantPhaseRefused(t, e, upgrade, harness.HeldBy, "(plan/status-phase)")
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		e.WantApprovalRefused(t, user, upgrade, "etcdoperator.v0.9.4", "(bundle/version)",
			"allowed is etcdoperator.v0.9.2")
	}
	e.Edit(t, p, `{"spec":{"versions":["etcdoperator.v0.9.2","etcdoperator.v0.9.4"]}}`)
	e.Sync(t)
	e.Approve(t, cluster.Tenant, upgrade)
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.4")
}

func upgradeApprovalNone(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	e.CreateAs(t, cluster.Admin, harness.OLMPolicy(namespace, "None"))
	e.Sync(t)
	e.Subscribe(t, namespace, "etcd", "etcdoperator.v0.9.0", "Automatic")
	e.Approve(t, cluster.Tenant, e.WaitForPlan(t, namespace, "etcdoperator.v0.9.0"))
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.0")

	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, "etcdoperator.v0.9.2"), "etcdoperator.v0.9.2",
		"(bundle/upgrade)")
}

// pinDependency pins a package and subscribes to an operator that requires it, in a namespace of its own. It returns
// the policy and the plan, in which OLM has the newest version of the dependency, that waits.
func pinDependency(
	t *testing.T, e *harness.OLMEnv, operator, operatorCSV, dependency, allowed, newest string,
) (p, both *unstructured.Unstructured) {
	t.Helper()
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	p = harness.OLMPolicy(namespace, "Automatic", allowed)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = dependency
	e.CreateAs(t, cluster.Admin, p)
	e.Sync(t)
	e.Subscribe(t, namespace, operator, "", "Manual")
	both = e.WaitForPlan(t, namespace, operatorCSV, newest)
	return p, both
}

// dependencyIsJudged subscribes to an operator that no policy is about, and that needs one which a policy pins. The
// package is read from the properties in the plan: nothing else could tell, as no Subscription names the dependency
// yet.
func dependencyIsJudged(t *testing.T, e *harness.OLMEnv) {
	const operatorCSV, newest = "vaultoperator.v1.0.0", "etcdoperator.v0.9.4"
	p, both := pinDependency(t, e, "vault", operatorCSV, "etcd", "etcdoperator.v0.9.2", newest)
	namespace := both.GetNamespace()
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		refusal := e.WantApprovalRefused(t, user, both, newest, "(bundle/version)")
		if strings.Contains(refusal, "bundle/unknown") || strings.Contains(refusal, operatorCSV) {
			t.Errorf("got %s\nwant %s alone to be the trouble, its package known", refusal, newest)
		}
	}

	e.Edit(t, p, `{"spec":{"versions":["`+newest+`"]}}`)
	e.Sync(t)
	e.Approve(t, cluster.Tenant, both)
	e.WaitForCSV(t, namespace, newest)
	e.WaitForCSV(t, namespace, operatorCSV)
	// The Subscription that OLM has written for the dependency is one like others.
	subscribed, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subscribed.Items {
		if approval, _, _ := unstructured.NestedString(s.Object, "spec", "installPlanApproval"); approval != "Manual" {
			t.Errorf("installPlanApproval of %s is %q, want Manual", s.GetName(), approval)
		}
	}
}

// overrideReachesDependency breaks the glass for a plan with a dependency that is not allowed. Both bundles are images:
// OLM writes other plans for these, and the Subscription to the dependency comes first. It starts at the forbidden
// version, is a step of the plan that was overridden, and passes with it.
func overrideReachesDependency(t *testing.T, e *harness.OLMEnv) {
	const operatorCSV, newest = "storefrontoperator.v2.0.0", "redisoperator.v1.1.0"
	_, both := pinDependency(t, e, "storefront", operatorCSV, "redis", "redisoperator.v1.0.0", newest)
	namespace := both.GetNamespace()
	e.WantApprovalRefused(t, cluster.Admin, both, newest, "(bundle/version)")
	e.Patch(t, cluster.Admin, both,
		`{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	e.WaitForCSV(t, namespace, newest)
	e.WaitForCSV(t, namespace, operatorCSV)
	e.Eventually(t, "see the plan complete", func(context.Context) error {
		if phase, _, _ := unstructured.NestedString(e.Stored(t, both).Object, "status", "phase"); phase != "Complete" {
			return fmt.Errorf("its phase is %s", phase)
		}
		return nil
	})
}

// bornApprovedHeals is about the Subscription that bypassed the webhook. OLM tries to create its plan as approved. The
// refusal is in the Subscription for its owner to read, unless OLM is old. After a few retries OLM waits for a change,
// such as the one that repairs it.
func bornApprovedHeals(t *testing.T, e *harness.OLMEnv) {
	version, err := e.OLM.Version()
	if err != nil {
		t.Fatal(err)
	}
	// OLM before 0.33 logs it only, at the level of debugging.
	if shown := semver.Compare(version, "v0.33.0") >= 0; shown {
		wantRefusalInSubscription(t, e)
	} else {
		e.Eventually(t, "refuse the plan", func(context.Context) error {
			log, err := os.ReadFile(e.Gate.LogPath())
			if err == nil && !bytes.Contains(log, []byte("plan/born-approved")) {
				err = errors.New("there is no refusal in the log")
			}
			return err
		})
	}
	plans, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(e.Born).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plans.Items) > 0 {
		t.Errorf("there are plans: %v", plans.Items)
	}

	e.Patch(t, cluster.Tenant, harness.Named("Subscription", e.Born, "etcd"),
		`{"spec":{"installPlanApproval":"Manual"}}`)
	waiting := e.WaitForPlan(t, e.Born, "etcdoperator.v0.9.4")
	e.WantApprovalRefused(t, cluster.Admin, waiting, "etcdoperator.v0.9.4", "(bundle/version)")
}

// wantRefusalInSubscription wants OLM to have written to the Subscription why its plan was refused.
func wantRefusalInSubscription(t *testing.T, e *harness.OLMEnv) {
	t.Helper()
	e.Eventually(t, "see the refusal in the Subscription", func(ctx context.Context) error {
		s, err := e.Clients[cluster.Tenant].Resource(harness.Subscriptions).Namespace(e.Born).Get(ctx, "etcd",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(s.Object, "status", "conditions")
		if err != nil {
			return err
		}
		reported := slices.ContainsFunc(conditions, func(c any) bool {
			message, _, _ := unstructured.NestedString(c.(map[string]any), "message")
			return strings.Contains(message, "(plan/born-approved)") &&
				strings.Contains(message, "set spec.installPlanApproval")
		})
		if !reported {
			return fmt.Errorf("conditions are %v", conditions)
		}
		return nil
	})
}

// wantPhaseRefused tries to start a plan past its approval. What is said begins with who refuses it: the webhook or the
// backstop.
func wantPhaseRefused(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, says ...string) {
	t.Helper()
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", []string{
		"patch", "installplan", "-n", plan.GetNamespace(), plan.GetName(), "--subresource=status", "--type=merge",
		"--patch", `{"status":{"phase":"Installing"}}`,
	}, says...)
}

// wantRefusalsOfOLM wants OLM to have been refused nothing but plans that are born approved. In particular no status:
// OLM would leave the plan behind and write another, again and again (threat O4).
func wantRefusalsOfOLM(t *testing.T, e *harness.OLMEnv) {
	t.Helper()
	file, err := os.Open(e.Gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	born, lines := 0, 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); lines++ {
		var r harness.Refusal
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", scanner.Text(), err)
		}
		if r.Message != "review refused" || r.User != "system:serviceaccount:olm:olm-operator-serviceaccount" {
			continue
		}
		if r.Operation == "CREATE" && r.Kind == "installplan" && r.Namespace == e.Born &&
			slices.Equal(r.Rules, []string{"plan/born-approved"}) {
			born++
			continue
		}
		t.Errorf("OLM was refused: %s", scanner.Text())
	}
	if born == 0 {
		t.Errorf("no plan that is born approved was refused in %d lines", lines)
	}
	t.Logf("OLM was refused %d plans that were born approved", born)
}
