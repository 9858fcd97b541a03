package loop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/internal/metakey"
)

// TestLoopGitOps has operators installed, held, upgraded, rolled out to a second ring and removed by edits in git alone,
// where Subscriptions say Manual and the policies approve, as docs/migration shows it.
func TestLoopGitOps(t *testing.T) {
	t.Parallel()
	e := startLoopOLM(t, cluster.GateOptions{Loop: true, Args: []string{"--approval-mode=deny"}}, loopPackages())
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"Argo CD": func(t *testing.T, e *harness.OLMEnv) { deliveredByGit(t, e, argo(t, e), "Manual") },
		"Flux":    func(t *testing.T, e *harness.OLMEnv) { deliveredByGit(t, e, flux(t, e), "Manual") },
		"Helm":    func(t *testing.T, e *harness.OLMEnv) { deliveredByGit(t, e, chart{e}, "Manual") },
	})
}

// TestLoopGitOpsAutomatic is about Subscriptions that say Automatic in git.
func TestLoopGitOpsAutomatic(t *testing.T) {
	t.Parallel()
	e := startLoopOLM(t, cluster.GateOptions{Loop: true}, loopPackages())
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"Argo CD": func(t *testing.T, e *harness.OLMEnv) { // it leaves the field alone
			deliveredByGit(t, e, argo(t, e, "spec", "installPlanApproval"), "Automatic")
		},
		"Manual later": manualLater,
	})
}

// manualLater is a team that goes from Automatic to Manual in git, where Opgate has stored Manual already: from then on
// a user approves.
func manualLater(t *testing.T, e *harness.OLMEnv) {
	d := flux(t, e)
	automatic, manual := ring{"manual-later", "Automatic"}, ring{"manual-later", "Manual"}
	deliver := func(r ring, versions ...string) {
		t.Helper()
		d.deliver(t, []*unstructured.Unstructured{r.namespace(), automatic.policy(versions...)}, r.operator())
	}
	deliver(automatic, harness.Etcd2)
	e.WaitForCSV(t, automatic.name, harness.Etcd2)
	plan := e.WaitForPlan(t, automatic.name, harness.Etcd4)
	deliver(manual, harness.Etcd2)
	e.Eventually(t, "the Subscription asks for Manual", func(ctx context.Context) error {
		s, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(manual.name).Get(ctx, "etcd", metav1.GetOptions{})
		if err == nil && s.GetAnnotations()[metakey.RequestedApproval] != "" {
			err = fmt.Errorf("it has annotations %v", s.GetAnnotations())
		}
		return err
	})
	deliver(manual, harness.Etcd2, harness.Etcd4)
	waitForPolicy(t, e, automatic.policy(), func(op *policyv1beta2.OperatorPolicy) error {
		if want := harness.Etcd4 + " (a user)"; op.Status.Waiting != want {
			return fmt.Errorf("status.waiting is %q, want %q", op.Status.Waiting, want)
		}
		return nil
	})
	approved := func() string {
		approved, _, _ := unstructured.NestedBool(e.Stored(t, plan).Object, "spec", "approved")
		return fmt.Sprint(approved)
	}
	if harness.Unchanged(t, "the approval of the plan", 3*selfHeal, approved); approved() != "false" {
		t.Errorf(harness.Final+"plan %s was approved, though its Subscription asks for Manual", plan.GetName())
	}
	e.Approve(t, cluster.Admin, plan)
	e.WaitForCSV(t, automatic.name, harness.Etcd4)
}

// ring is a namespace with an operator, and the policy that governs it.
type ring struct{ name, approval string }

// policy allows versions of the operator.
func (r ring) policy(versions ...string) *unstructured.Unstructured {
	p := harness.OLMPolicy(r.name, "Automatic", versions...)
	harness.WithField(p, "mayhave", "spec", "complianceType")
	harness.WithField(p, "NonCompliant", "spec", "complianceConfig", "upgradesProgressing")
	if r.approval == "Manual" {
		harness.WithField(p, "IfAllowed", "spec", "planApproval")
	}
	return p
}

// operator is what the team of the operator has in git.
func (r ring) operator() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: operators, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s]}
`, r.name),
		harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: etcd, namespace: %[1]s}
spec: {name: etcd, channel: %[2]s, source: %[3]s, sourceNamespace: %[4]s, startingCSV: %[5]s, installPlanApproval: %[6]s}
`, r.name, olm.Channel, olm.Catalog, cluster.OLMNamespace, harness.Etcd2, r.approval),
	}
}

func (r ring) namespace() *unstructured.Unstructured {
	return harness.Object("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", r.name)
}

func deliveredByGit(t *testing.T, e *harness.OLMEnv, d delivery, approval string) {
	prefix := strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-"))
	first, second := ring{prefix + "-canary", approval}, ring{prefix + "-production", approval}
	// git has policies in the first wave and operators in the second.
	deliver := func(policies ...*unstructured.Unstructured) {
		t.Helper()
		wave := append([]*unstructured.Unstructured{first.namespace(), second.namespace()}, policies...)
		d.deliver(t, wave, append(first.operator(), second.operator()...))
	}

	deliver(first.policy(harness.Etcd2), second.policy(harness.Etcd2))
	for _, r := range []ring{first, second} {
		e.WaitForCSV(t, r.name, harness.Etcd2)
		waitForPolicy(t, e, r.policy(), is(policyv1beta2.Compliant), has(harness.Etcd2))
	}
	// The upgrade is held in both.
	for _, r := range []ring{first, second} {
		e.WaitForPlan(t, r.name, harness.Etcd4)
		waitForPolicy(t, e, r.policy(), is(policyv1beta2.Compliant),
			wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval", harness.Etcd4+" is not allowed"))
	}

	// Automatic in git is refused, and tried again: nothing is written.
	if d, ok := d.(*tool); ok && approval == "Manual" {
		d.refused(t, "subscriptions "+first.name+"/etcd", []*unstructured.Unstructured{first.namespace(), second.namespace(),
			first.policy(harness.Etcd2), second.policy(harness.Etcd2)}, append(ring{first.name, "Automatic"}.operator(), second.operator()...))
	}

	// An edit of the policy opens it, in one ring and then in the other.
	ends := neverHealthyBefore(t, e, first, harness.Etcd4)
	deliver(first.policy(harness.Etcd2, harness.Etcd4), second.policy(harness.Etcd2))
	e.WaitForCSV(t, first.name, harness.Etcd4)
	waitForPolicy(t, e, first.policy(), is(policyv1beta2.Compliant), has(harness.Etcd4))
	ends()
	waitForPolicy(t, e, second.policy(), has(harness.Etcd2))
	deliver(first.policy(harness.Etcd2, harness.Etcd4), second.policy(harness.Etcd2, harness.Etcd4))
	e.WaitForCSV(t, second.name, harness.Etcd4)

	// The operator goes from one ring: its policy removes it, and the Subscription leaves git.
	gone := harness.WithField(harness.OLMPolicy(first.name, "None", harness.Etcd4), "mustnothave", "spec", "complianceType")
	d.deliver(t, []*unstructured.Unstructured{first.namespace(), second.namespace(), gone,
		second.policy(harness.Etcd2, harness.Etcd4)}, second.operator())
	e.WaitForGone(t, harness.ClusterServiceVersions, first.name, harness.Etcd4)
	e.WaitForGone(t, harness.Subscriptions, first.name, "etcd")

	if d.manager() == "" {
		return
	}
	want := map[string]int{
		"operatorpolicies policies/" + first.name: 3, "operatorpolicies policies/" + second.name: 2,
		"subscriptions " + first.name + "/etcd": 1, "subscriptions " + second.name + "/etcd": 1,
		"operatorgroups " + first.name + "/operators": 1, "operatorgroups " + second.name + "/operators": 1,
	}
	got := writtenBy(t, e, d.manager(), false)
	for object, n := range want {
		if got[object] != n {
			t.Errorf("%s wrote %s %d times, want once for each edit in git: %d", d.manager(), object, got[object], n)
		}
	}
}

// neverHealthyBefore watches a policy from an edit that allows a version on, and returns a function that ends it: until
// the version is installed, nothing that waits for the policy to be healthy goes on.
func neverHealthyBefore(t *testing.T, e *harness.OLMEnv, r ring, csv string) (ends func()) {
	ctx, cancel := context.WithCancel(t.Context())
	w, err := e.Clients[cluster.Admin].Of(r.policy()).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", r.name).String()})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	early := make(chan string, 1)
	go func() {
		defer close(early)
		for event := range w.ResultChan() {
			p, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			versions, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "versions")
			installed, _, _ := unstructured.NestedString(p.Object, "status", "installedVersion")
			if len(versions) == 2 && installed != csv && isHealthy(p) {
				early <- fmt.Sprintf("policy %s is healthy with %s, want %s first: %v", r.name, installed, csv, p.Object["status"])
				return
			}
		}
	}()
	return func() {
		cancel()
		w.Stop()
		if text := <-early; text != "" {
			t.Error(text)
		}
	}
}
