package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/e2e/internal/tail"
	"github.com/opgate/opgate/e2e/olm"
)

// olmTimeout bounds one step of OLM, such as an installation. OLM waits for seconds between some of its tries.
const olmTimeout = speed.LongWait

// TestOLM puts the gate in front of a real OLM. What OLM makes of a refusal, and what its plans really hold, no stand-in can
// tell. OLM has a cluster of its own, since it takes an interest in whatever other tests write.
func TestOLM(t *testing.T) {
	t.Parallel()
	e := startWithoutGate(t)

	// A Subscription that no webhook saw, and then a policy that nobody enforces yet.
	born := e.newNamespace(t)
	e.operatorGroup(t, born)
	e.subscribe(t, born, "etcd", "", "Automatic")
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, olmPolicy(born, "Automatic", "etcdoperator.v0.9.2")), "create", "-f", "-")

	var err error
	e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full := &olmEnv{env: e, born: born}
	full.olm, err = olm.Start(t.Context(), e.Cluster, olm.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := full.olm.Stop(); err != nil {
			t.Error(err)
		}
	})

	// The first, since OLM tries a refused create only a few times and then waits for its next resync: a switch to Manual heals
	// within seconds while it tries, and took minutes once it had stopped.
	t.Run("a plan that is born approved is refused and heals", func(t *testing.T) { bornApprovedHeals(t, full) })

	// Each in a namespace of its own, and as many at once as go test allows, since most of the time OLM is waiting.
	t.Run("scenario", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *olmEnv){
			"an upgrade is held until the policy lists it":     upgradeIsHeld,
			"upgradeApproval None allows the first only":       upgradeApprovalNone,
			"a dependency is judged by its own policy":         dependencyIsJudged,
			"a dependency that is an image is judged as well":  dependencyImageIsJudged,
			"an override reaches the dependencies":             overrideReachesDependency,
			"an override reaches dependencies that are images": overrideReachesDependencyImage,
			"an operator without a policy is left alone":       ungovernedIsLeftAlone,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, full)
			})
		}
	})
	full.wantRefusalsOfOLM(t)
}

// startWithoutGate starts a cluster that is for one test alone.
func startWithoutGate(t testing.TB) *env {
	t.Helper()
	return startBare(t, cluster.Options{Audit: true, Log: os.Stderr})
}

// startBare is startWithoutGate for tests that want another cluster. They need the audit log.
func startBare(t testing.TB, opts cluster.Options) *env {
	t.Helper()
	c, stop, err := startCluster(t.Context(), opts)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := checkLeastPrivilege(c); err != nil {
			t.Error(err)
		}
	})
	e := &env{Cluster: c, clients: map[cluster.User]*client{}}
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant, cluster.OLM} {
		if e.clients[user], err = newClient(c, user); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// olmEnv is an environment in which OLM runs.
type olmEnv struct {
	*env
	olm *olm.OLM
	// born is a namespace with an Automatic Subscription to a package that must not be.
	born string
}

func upgradeIsHeld(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	p := olmPolicy(namespace, "Automatic", "etcdoperator.v0.9.2")
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, p), "create", "-f", "-")
	e.sync(t)

	if approval := e.subscribe(t, namespace, "etcd", "etcdoperator.v0.9.2", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	install := e.waitForPlan(t, namespace, "etcdoperator.v0.9.2")
	e.wantPhaseRefused(t, install, "(plan/status-phase)")
	e.approve(t, cluster.Admin, install)
	e.waitForCSV(t, namespace, "etcdoperator.v0.9.2")

	upgrade := e.waitForPlan(t, namespace, "etcdoperator.v0.9.4")
	e.wantPhaseRefused(t, upgrade, "(plan/status-phase)", "(plan/version)")
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		e.wantApprovalRefused(t, user, upgrade, "etcdoperator.v0.9.4", "(plan/version)", "allowed is etcdoperator.v0.9.2")
	}
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", "-n", p.GetNamespace(), p.GetName(), "--type=merge", "--patch",
		`{"spec":{"versions":["etcdoperator.v0.9.2","etcdoperator.v0.9.4"]}}`)
	e.sync(t)
	e.approve(t, cluster.Tenant, upgrade)
	e.waitForCSV(t, namespace, "etcdoperator.v0.9.4")
}

func upgradeApprovalNone(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, olmPolicy(namespace, "None")), "create", "-f", "-")
	e.sync(t)
	e.subscribe(t, namespace, "etcd", "etcdoperator.v0.9.0", "Automatic")
	e.approve(t, cluster.Tenant, e.waitForPlan(t, namespace, "etcdoperator.v0.9.0"))
	e.waitForCSV(t, namespace, "etcdoperator.v0.9.0")

	e.wantApprovalRefused(t, cluster.Admin, e.waitForPlan(t, namespace, "etcdoperator.v0.9.2"), "etcdoperator.v0.9.2", "(plan/upgrade)")
}

// dependencyIsJudged subscribes to an operator that no policy is about, and that needs one which a policy pins. The package is
// read from the properties in the plan: nothing else could tell, as no Subscription names the dependency yet.
func dependencyIsJudged(t *testing.T, e *olmEnv) {
	e.judgeDependency(t, "vault", "vaultoperator.v1.0.0", "etcd", "etcdoperator.v0.9.2", "etcdoperator.v0.9.4")
}

// dependencyImageIsJudged is for bundles that are images. OLM writes other plans for these: the properties stand apart, and the
// Subscription to the dependency comes first.
func dependencyImageIsJudged(t *testing.T, e *olmEnv) {
	e.judgeDependency(t, "storefront", "storefrontoperator.v2.0.0", "redis", "redisoperator.v1.0.0", "redisoperator.v1.1.0")
}

func overrideReachesDependency(t *testing.T, e *olmEnv) {
	e.overrideDependency(t, "vault", "vaultoperator.v1.0.0", "etcd", "etcdoperator.v0.9.2", "etcdoperator.v0.9.4")
}

func overrideReachesDependencyImage(t *testing.T, e *olmEnv) {
	e.overrideDependency(t, "storefront", "storefrontoperator.v2.0.0", "redis", "redisoperator.v1.0.0", "redisoperator.v1.1.0")
}

// pinDependency pins a package and subscribes to an operator that requires it, in a namespace of its own. It returns the policy
// and the plan, in which OLM has the newest version of the dependency, that waits.
func (e *olmEnv) pinDependency(t *testing.T, operator, operatorCSV, dependency, allowed, newest string) (p, both *unstructured.Unstructured) {
	t.Helper()
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	p = olmPolicy(namespace, "Automatic", allowed)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = dependency
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, p), "create", "-f", "-")
	e.sync(t)
	e.subscribe(t, namespace, operator, "", "Manual")
	both = e.waitForPlan(t, namespace, operatorCSV, newest)
	return p, both
}

// overrideDependency breaks the glass for a plan with a dependency that is not allowed. OLM then writes a Subscription that
// starts at the forbidden version; it is a step of the plan that was overridden, and passes with it.
func (e *olmEnv) overrideDependency(t *testing.T, operator, operatorCSV, dependency, allowed, newest string) {
	t.Helper()
	_, both := e.pinDependency(t, operator, operatorCSV, dependency, allowed, newest)
	namespace := both.GetNamespace()
	e.wantApprovalRefused(t, cluster.Admin, both, newest, "(plan/version)")
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", namespace, both.GetName(), "--type=merge", "--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	e.waitForCSV(t, namespace, newest)
	e.waitForCSV(t, namespace, operatorCSV)
	e.eventually(t, "see the plan complete", func(context.Context) error {
		if phase, _, _ := unstructured.NestedString(e.stored(t, both).Object, "status", "phase"); phase != "Complete" {
			return fmt.Errorf("its phase is %s", phase)
		}
		return nil
	})
}

func (e *olmEnv) judgeDependency(t *testing.T, operator, operatorCSV, dependency, allowed, newest string) {
	t.Helper()
	p, both := e.pinDependency(t, operator, operatorCSV, dependency, allowed, newest)
	namespace := both.GetNamespace()
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		refusal := e.wantApprovalRefused(t, user, both, newest, "(plan/version)")
		if strings.Contains(refusal, "plan/unknown-csv") || strings.Contains(refusal, operatorCSV) {
			t.Errorf("got %s\nwant %s alone to be the trouble, its package known", refusal, newest)
		}
	}

	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", "-n", p.GetNamespace(), p.GetName(), "--type=merge", "--patch",
		`{"spec":{"versions":["`+newest+`"]}}`)
	e.sync(t)
	e.approve(t, cluster.Tenant, both)
	e.waitForCSV(t, namespace, newest)
	e.waitForCSV(t, namespace, operatorCSV)
	// The Subscription that OLM has written for the dependency is one like others.
	subscribed, err := e.clients[cluster.Admin].Resource(subscriptions).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subscribed.Items {
		if approval, _, _ := unstructured.NestedString(s.Object, "spec", "installPlanApproval"); approval != "Manual" {
			t.Errorf("installPlanApproval of %s is %q, want Manual", s.GetName(), approval)
		}
	}
}

// bornApprovedHeals is about the Subscription that slipped through. OLM wants to create its plan as approved. What it is told
// stands in the Subscription for its owner to read. After a few tries OLM waits for a change, such as the one that heals.
func bornApprovedHeals(t *testing.T, e *olmEnv) {
	e.eventually(t, "see the refusal in the Subscription", func(ctx context.Context) error {
		s, err := e.clients[cluster.Tenant].Resource(subscriptions).Namespace(e.born).Get(ctx, "etcd", metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(s.Object, "status", "conditions")
		if err != nil {
			return err
		}
		told := slices.ContainsFunc(conditions, func(c any) bool {
			message, _, _ := unstructured.NestedString(c.(map[string]any), "message")
			return strings.Contains(message, "(plan/born-approved)") && strings.Contains(message, "set spec.installPlanApproval")
		})
		if !told {
			return fmt.Errorf("conditions are %v", conditions)
		}
		return nil
	})
	plans, err := e.clients[cluster.Admin].Resource(installPlans).Namespace(e.born).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plans.Items) > 0 {
		t.Errorf("there are plans: %v", plans.Items)
	}

	kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "subscription", "-n", e.born, "etcd", "--type=merge", "--patch", `{"spec":{"installPlanApproval":"Manual"}}`)
	waiting := e.waitForPlan(t, e.born, "etcdoperator.v0.9.4")
	e.wantApprovalRefused(t, cluster.Admin, waiting, "etcdoperator.v0.9.4", "(plan/version)")
}

// ungovernedIsLeftAlone installs and upgrades with nobody approving anything.
func ungovernedIsLeftAlone(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	if approval := e.subscribe(t, namespace, "prometheus", "prometheusoperator.v0.46.0", "Automatic"); approval != "Automatic" {
		t.Errorf("installPlanApproval is %q, want Automatic as written", approval)
	}
	e.waitForCSV(t, namespace, "prometheusoperator.v0.47.0")
}

// olmPolicy is policy for the catalog that OLM has here.
func olmPolicy(namespace, upgradeApproval string, versions ...string) *unstructured.Unstructured {
	return object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: musthave
  subscription: {name: etcd, namespace: %[1]s, source: %[3]s, sourceNamespace: %[4]s, channel: %[5]s}
  versions: [%[6]s]
  upgradeApproval: %[7]s
`, namespace, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace, olm.Channel, strings.Join(versions, ", "), upgradeApproval)
}

// operatorGroup lets OLM install in a namespace.
func (e *env) operatorGroup(t *testing.T, namespace string) {
	t.Helper()
	kubectl(t, e.Cluster, cluster.Admin, asJSON(t, object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s]}
`, namespace)), "create", "-f", "-")
}

// subscribe subscribes to a package as the tenant and returns the approval that is stored.
func (e *env) subscribe(t *testing.T, namespace, name, startingCSV, approval string) string {
	t.Helper()
	s := object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %[1]s, namespace: %[2]s}
spec: {name: %[1]s, channel: %[3]s, source: %[4]s, sourceNamespace: %[5]s, startingCSV: %[6]q, installPlanApproval: %[7]s}
`, name, namespace, olm.Channel, olm.Catalog, cluster.OLMNamespace, startingCSV, approval)
	return kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, s), "create", "-o", "jsonpath={.spec.installPlanApproval}", "-f", "-")
}

// eventually waits until check returns nil, as long as OLM may take.
func (e *olmEnv) eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("not looked yet")
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, olmTimeout, true, func(ctx context.Context) (bool, error) {
		if err := e.olm.Err(); err != nil {
			return false, err
		}
		if err := check(ctx); err == nil || ctx.Err() == nil { // else only the time is up
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		for _, log := range e.olm.Logs() {
			t.Logf("%s ends with\n%s", log, tail.File(log, 30))
		}
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// waitForPlan waits until OLM has written a plan for these versions, and no others, and waits for its approval.
func (e *olmEnv) waitForPlan(t *testing.T, namespace string, csvs ...string) *unstructured.Unstructured {
	t.Helper()
	slices.Sort(csvs)
	var found *unstructured.Unstructured
	e.eventually(t, "wait for the plan for "+strings.Join(csvs, " and "), func(ctx context.Context) error {
		list, err := e.clients[cluster.Admin].Resource(installPlans).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, p := range list.Items {
			names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
			phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
			approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved")
			slices.Sort(names)
			if slices.Equal(names, csvs) && phase == "RequiresApproval" && !approved {
				found = &p
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s for %v, phase %q, approved %t", p.GetName(), names, phase, approved))
		}
		return fmt.Errorf("plans are %v", seen)
	})
	e.sync(t)
	return found
}

// waitForCSV waits until OLM has installed a version, and no longer has the one that it replaces.
func (e *olmEnv) waitForCSV(t *testing.T, namespace, name string) {
	t.Helper()
	e.eventually(t, "wait until "+name+" is installed", func(ctx context.Context) error {
		list, err := e.clients[cluster.Admin].Resource(resources["ClusterServiceVersion"]).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		operator, _, _ := strings.Cut(name, ".")
		var seen []string
		for _, csv := range list.Items {
			if !strings.HasPrefix(csv.GetName(), operator+".") {
				continue
			}
			phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
			message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
			seen = append(seen, csv.GetName()+" "+phase)
			if phase != "Succeeded" {
				seen = append(seen, message)
			}
		}
		if !slices.Equal(seen, []string{name + " Succeeded"}) {
			return fmt.Errorf("there are %v", seen)
		}
		return nil
	})
}

const approval = `{"spec":{"approved":true}}`

func (e *olmEnv) approve(t *testing.T, user cluster.User, plan *unstructured.Unstructured) {
	t.Helper()
	kubectl(t, e.Cluster, user, "", "patch", "installplan", "-n", plan.GetNamespace(), plan.GetName(), "--type=merge", "--patch", approval)
}

// wantApprovalRefused returns what the gate says.
func (e *olmEnv) wantApprovalRefused(t *testing.T, user cluster.User, plan *unstructured.Unstructured, says ...string) string {
	t.Helper()
	got := e.clients[user].must(t, request{
		method: "PATCH", path: pathOf(installPlans, plan.GetNamespace(), plan.GetName(), ""),
		contentType: "application/merge-patch+json", body: []byte(approval),
	})
	for _, text := range says {
		if !strings.Contains(got.refused, text) {
			t.Errorf("%s approves %v: got %s\nwant %q in it", user, plan.GetName(), got, text)
		}
	}
	return got.refused
}

// wantPhaseRefused tries to start a plan past its approval.
func (e *olmEnv) wantPhaseRefused(t *testing.T, plan *unstructured.Unstructured, says ...string) {
	t.Helper()
	refused(t, e.Cluster, cluster.Tenant, "", []string{
		"patch", "installplan", "-n", plan.GetNamespace(), plan.GetName(), "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Installing"}}`,
	}, append(says, deniedBy)...)
}

// refusal is a line of the gate's log.
type refusal struct {
	Message     string   `json:"msg"`
	Object      string   `json:"object"`
	Operation   string   `json:"operation"`
	Subresource string   `json:"subresource"`
	User        string   `json:"user"`
	Rules       []string `json:"rules"`
}

// wantRefusalsOfOLM wants OLM to have been refused nothing but plans that are born approved. In particular no status: OLM would
// leave the plan behind and write another, again and again (threat O4).
func (e *olmEnv) wantRefusalsOfOLM(t *testing.T) {
	t.Helper()
	file, err := os.Open(e.gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	born, lines := 0, 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); lines++ {
		var r refusal
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", scanner.Text(), err)
		}
		if r.Message != "review refused" || r.User != "system:serviceaccount:olm:olm-operator-serviceaccount" {
			continue
		}
		if r.Operation == "CREATE" && strings.HasPrefix(r.Object, "installplan "+e.born+"/") && slices.Equal(r.Rules, []string{"plan/born-approved"}) {
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
