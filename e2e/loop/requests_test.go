package loop

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	// restPolicies and restPlans are how many there are while nothing happens. The long form has several times as many,
	// and asks for nothing more.
	restPolicies, restPlans         = 16, 48
	longRestPolicies, longRestPlans = 200, 2_000
	// restWatches is the number of watches of kinds that verdicts depend on.
	restWatches = 14
	// restVariable is how long nothing has to happen. By default each watch is opened again within that.
	restVariable = "OPGATE_REST"
)

// TestLoopRequests counts what the loop asks the API server for, by the API server's own log, among many policies and
// plans.
func TestLoopRequests(t *testing.T) {
	t.Parallel()
	policies, plansOfAll := restPolicies, restPlans
	if *harness.Long {
		policies, plansOfAll = longRestPolicies, longRestPlans
	}
	e := startSpeed(t, harness.Vacant(t), policies)
	type numbered struct {
		namespace string
		n         int
	}
	var plans []numbered
	for i := range plansOfAll {
		plans = append(plans, numbered{e.namespaces[i%len(e.namespaces)], i / len(e.namespaces)})
	}
	harness.AtOnce(t, harness.Writers, plans, func(ctx context.Context, in numbered) error {
		p := harness.InstallPlan(in.namespace, fmt.Sprintf("install-%d", in.n), harness.AllowedVersion)
		status, err := e.written(ctx, p)
		if err != nil {
			return err
		}
		return e.waitsForApproval(ctx, p, status)
	})
	e.waitQuiet(t)

	t.Run("an approval", func(t *testing.T) { e.approvalCosts(t, e.namespaces[0], false, false) })
	t.Run("an approval for a policy with an owner",
		func(t *testing.T) { e.approvalCosts(t, e.namespaces[1], true, false) })
	t.Run("approvals as OLM writes", func(t *testing.T) {
		for _, namespace := range e.namespaces[3:min(23, policies/2)] {
			e.approvalCosts(t, namespace, false, true)
		}
	})
	t.Run("approvals in many namespaces at once", func(t *testing.T) { e.approvedFirst(t, e.namespaces[policies/2:]) })
	t.Run("what concerns no policy", func(t *testing.T) { e.othersCostNothing(t, e.namespaces[0], e.namespaces[2]) })
	t.Run("rest", func(t *testing.T) { e.rests(t, plansOfAll) })
}

// approvalCosts expects one read of the policy, one write of the plan, one of the status, one event on the plan, and
// one for an owner of the policy. NamedLast is the order in which OLM writes: the Subscription names a plan that
// requires approval already.
func (e *speedEnv) approvalCosts(t *testing.T, namespace string, owned, namedLast bool) {
	t.Helper()
	ctx := t.Context()
	want := []string{"create events", "get operatorpolicies " + namespace, "patch installplans waiting",
		"patch operatorpolicies/status " + namespace}
	if owned {
		e.own(t, namespace)
		want = append(want, "create events")
	}
	w, err := e.newWaiting(ctx, namespace, "waiting", !namedLast)
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
		t.Fatal(err)
	}
	if namedLast {
		if err := e.named(ctx, namespace, "waiting"); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.reported(ctx, namespace, "waiting", "was approved"); err != nil {
		t.Fatal(err)
	}
	// More would come now: the loop has yet to see what it has written.
	want = append(want, e.mark(t, namespace)...)
	var got []string
	// it is sent in the background
	harness.Eventually(t, "see the event on the plan", func(context.Context) (err error) {
		sent := func(all []string) int {
			return len(slices.DeleteFunc(slices.Clone(all), func(what string) bool { return what != "create events" }))
		}
		if got, err = e.requests(since); err == nil && sent(got) < sent(want) {
			err = fmt.Errorf("there were only %q", got)
		}
		return err
	})
	slices.Sort(want)
	if namedLast && len(got) > 0 && got[0] == "get installplans waiting" {
		got = got[1:] // the Subscription's event came before those of the plan, which it names: one question, whether there is more to come
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		op := &policyv1beta2.OperatorPolicy{}
		if err := e.Admin.Get(ctx, crclient.ObjectKey{
			Namespace: cluster.PolicyNamespace,
			Name:      namespace,
		}, op); err != nil {
			t.Error(err)
		}
		var history strings.Builder
		for _, entry := range op.Status.History {
			fmt.Fprintf(&history, "\n  %s", entry.Message)
		}
		t.Errorf("an approval took\n  %s\nwant\n  %s\nthe policy's history is%s", strings.Join(got, "\n  "),
			strings.Join(want, "\n  "), history.String())
	}
}

// approvedFirst holds a plan in each namespace by a Constraint, deletes it, and wants that each plan is approved once,
// and that approvals come before the first status. How many do, and how many the API server refuses at first, depends
// on when it takes the backstop.
func (e *speedEnv) approvedFirst(t *testing.T, namespaces []string) {
	t.Helper()
	ctx := t.Context()
	hold := harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: hold}
spec: {constraints: '[{"type":"olm.constraint","value":{"rule":"false","message":"nothing is approved at the moment"}}]'}
`)
	if err := e.Admin.Create(ctx, hold); err != nil {
		t.Fatal(err)
	}
	harness.AtOnce(t, harness.Writers, namespaces, func(ctx context.Context, namespace string) error {
		w, err := e.newWaiting(ctx, namespace, "held", true)
		if err != nil {
			return err
		}
		if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
			return err
		}
		return e.reported(ctx, namespace, "held", "nothing is approved at the moment")
	})
	e.waitQuiet(t)

	since := time.Now()
	if err := e.Admin.Delete(ctx, hold); err != nil {
		t.Fatal(err)
	}
	harness.AtOnce(t, harness.Writers, namespaces, func(ctx context.Context, namespace string) error {
		return e.reported(ctx, namespace, "held", "was approved")
	})
	requests, err := e.requests(since)
	if err != nil {
		t.Fatal(err)
	}
	approvals, tries, before := 0, 0, 0
	for _, what := range requests {
		switch {
		case what == "patch installplans held":
			approvals++
			tries++
		case what == refused+"patch installplans held":
			tries++
		case strings.HasPrefix(what, "patch operatorpolicies/status ") && before == 0:
			before = tries
		}
	}
	if approvals != len(namespaces) || before == 0 {
		t.Errorf("there were %d approvals, %d of them before the first status, want %d", approvals, before,
			len(namespaces))
	}
	t.Logf("of %d approvals, %d of them refused, %d were before the first status", tries, tries-approvals, before)
}

// own sets an owner of the policy of a namespace, which receives an event for each new state.
func (e *speedEnv) own(t *testing.T, namespace string) {
	t.Helper()
	op := kind("OperatorPolicy")
	op.SetGroupVersionKind(policyv1beta2.GroupVersion.WithKind("OperatorPolicy"))
	op.SetNamespace(cluster.PolicyNamespace)
	op.SetName(namespace)
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"policy.open-cluster-management.io/v1","kind":"Policy","name":"parent","uid":"1"}]}}`
	if err := e.Admin.Patch(t.Context(), op, crclient.RawPatch("application/merge-patch+json",
		[]byte(owner))); err != nil {
		t.Fatal(err)
	}
	if err := e.seen(t.Context(), "operatorpolicies", op); err != nil {
		t.Fatal(err)
	}
}

// mark changes the policy of a namespace in a way that the loop takes note of and nothing else, and waits until it has.
// All that it was to do in the namespace before is done by then. It returns the requests of the loop.
func (e *speedEnv) mark(t *testing.T, namespace string) []string {
	t.Helper()
	op := &policyv1beta2.OperatorPolicy{}
	op.SetNamespace(cluster.PolicyNamespace)
	op.SetName(namespace)
	severity := "low"
	if err := e.Admin.Get(t.Context(), crclient.ObjectKeyFromObject(op), op); err != nil {
		t.Fatal(err)
	}
	if op.Spec.Severity == "low" {
		severity = "high"
	}
	patch := fmt.Sprintf(`{"spec":{"severity":%q}}`, severity)
	if err := e.Admin.Patch(t.Context(), op, crclient.RawPatch("application/merge-patch+json",
		[]byte(patch))); err != nil {
		t.Fatal(err)
	}
	marked := op.Generation
	harness.Eventually(t, "the loop takes note of the policy for "+namespace, func(ctx context.Context) error {
		if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(op), op); err != nil ||
			op.Status.ObservedGeneration >= marked {
			return err
		}
		return fmt.Errorf("it has seen generation %d of %d", op.Status.ObservedGeneration, marked)
	})
	// What warnings show of another namespace needs a right of the author.
	requests := []string{"create subjectaccessreviews ", "patch operatorpolicies/status " + namespace}
	if len(op.OwnerReferences) > 0 {
		requests = slices.Insert(requests, 0, "create events")
	}
	return requests
}

// othersCostNothing writes again and again what Opgate follows, in the namespaces of two policies and in one without,
// and wants that it asks for nothing.
func (e *speedEnv) othersCostNothing(t *testing.T, namespaces ...string) {
	ctx := t.Context()
	flap := func(in *unstructured.Unstructured, states ...string) {
		t.Helper()
		for range 5 {
			for _, state := range states {
				if err := e.OLM.Status().Patch(ctx, in,
					crclient.RawPatch("application/merge-patch+json", []byte(state))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	since := time.Now()
	for _, namespace := range append([]string{cluster.ShopNamespace}, namespaces...) {
		other := harness.InstallPlan(namespace, "other", harness.ForbiddenVersion)
		status, err := e.written(ctx, other)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.waitsForApproval(ctx, other, status); err != nil {
			t.Fatal(err)
		}
		flap(other, `{"status":{"phase":"Installing"}}`, `{"status":{"phase":"Complete"}}`,
			`{"status":{"phase":"Failed"}}`)

		// A Deployment that no operator has.
		deployment := harness.Object(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: %s}
spec:
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: a, image: a}]}}
`, namespace)
		if err := e.Admin.Create(ctx, deployment); err != nil {
			t.Fatal(err)
		}
		flap(deployment, `{"status":{"replicas":1,"unavailableReplicas":1}}`,
			`{"status":{"replicas":1,"unavailableReplicas":0}}`)

		for _, label := range []string{"a", "b"} {
			place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			patch := fmt.Sprintf(`{"metadata":{"labels":{"note":%q}}}`, label)
			if err := e.Admin.Patch(ctx, place, crclient.RawPatch("application/merge-patch+json",
				[]byte(patch))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want []string
	for _, namespace := range namespaces {
		want = append(want, e.mark(t, namespace)...)
	}
	got, err := e.requests(since)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("opgate asked for\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// rests wants that Opgate asks for nothing at all but its leases, and that its watches go on, for as long as
// $OPGATE_REST sets.
func (e *speedEnv) rests(t *testing.T, plans int) {
	again := cluster.MaxStaleness() / 2
	rest := again + 10*time.Second
	if text := os.Getenv(restVariable); text != "" {
		var err error
		if rest, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", restVariable, err)
		}
	}
	e.waitQuiet(t)
	since := time.Now()
	neverStale(t, e, rest)
	all, err := e.OpgateRequests(since, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := e.requests(since)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) > 0 {
		t.Errorf("in %s of rest opgate asked for\n  %s", rest, strings.Join(requests, "\n  "))
	}
	watches := len(slices.DeleteFunc(slices.Clone(all), func(r cluster.Request) bool { return !r.Reopened() }))
	if len(all) == len(requests)+watches {
		t.Error("the audit log does not show that the replica keeps its leases, so it shows nothing")
	}
	least, most := restWatches*int(rest/(again+cluster.MaxStaleness()/10)), restWatches*(int(rest/again)+1)
	if watches < least || watches > most {
		t.Errorf("in %s of rest %d watches were opened again, want %d to %d", rest, watches, least, most)
	}
	t.Logf("in %s with %d policies and %d plans: %d requests for leases, %d watches opened again, %d others", rest,
		len(e.namespaces), plans,
		len(all)-len(requests)-watches, watches, len(requests))
}

// neverStale wants that no kind is stale for a time in which nothing happens (threat G1).
func neverStale(t *testing.T, e *speedEnv, rest time.Duration) {
	t.Helper()
	for end := time.Now().Add(rest); time.Now().Before(end); pause(t, time.Second) {
		if err := readiness(t.Context(), e.LoopEnv, http.StatusOK, "[+]watches ok"); err != nil {
			t.Error(err)
		}
	}
}
