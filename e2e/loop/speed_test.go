package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/rights"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// planSize is about how large a plan is as JSON: that of an operator with two CustomResourceDefinitions.
	planSize = 40 << 10
	// approvalPolicies is how many policies there are while approvals are timed.
	approvalPolicies = 50
	// restPolicies and restPlans are how many there are while nothing happens.
	restPolicies, restPlans = 200, 2_000
	// restVariable is how long nothing has to happen.
	restVariable, restDefault = "OPGATE_REST", 30 * time.Second
	// watchesLast is how long no watch has ended yet, and no catalog was asked again.
	watchesLast = 4 * time.Minute
)

// speedEnv is an environment with the loop and many namespaces, each with a policy for one operator and the Subscription
// that the loop has made for it. Catalog and package are there, as they would be.
type speedEnv struct {
	*harness.LoopEnv
	namespaces []string
	// started is when the catalog was there.
	started time.Time
}

func startSpeed(t testing.TB, namespaces int) *speedEnv {
	t.Helper()
	e := &speedEnv{LoopEnv: startLoop(t)}
	ctx := t.Context()
	for _, u := range []*unstructured.Unstructured{harness.Object(speedCatalog), harness.Object(speedPackage)} {
		if err := e.Admin.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	e.started = time.Now()
	for i := range namespaces {
		e.namespaces = append(e.namespaces, fmt.Sprintf("shop-%03d", i))
	}
	harness.AtOnce(t, harness.Writers, e.namespaces, func(ctx context.Context, name string) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := e.Admin.Create(ctx, namespace); err != nil {
			return err
		}
		p := harness.OperatorPolicy(name)
		if err := unstructured.SetNestedField(p.Object, "alpha", "spec", "subscription", "channel"); err != nil {
			return err
		}
		return e.Admin.Create(ctx, p)
	})
	for _, name := range e.namespaces {
		harness.Eventually(t, "the Subscription for "+name, func(ctx context.Context) error {
			return e.Admin.Get(ctx, crclient.ObjectKey{Namespace: name, Name: "etcd"}, kind("Subscription"))
		})
	}
	return e
}

const (
	speedCatalog = `
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: operatorhubio-catalog, namespace: olm}
spec: {sourceType: grpc, image: quay.io/operatorhubio/catalog:latest}
`
	speedPackage = `
apiVersion: packages.operators.coreos.com/v1
kind: PackageManifest
metadata: {name: etcd, namespace: olm}
status:
  packageName: etcd
  catalogSource: operatorhubio-catalog
  catalogSourceNamespace: olm
  defaultChannel: alpha
  channels:
    - {name: alpha, currentCSV: etcdoperator.v0.9.2, entries: [{name: etcdoperator.v0.9.2, version: 0.9.2}]}
`
)

// kind stands for an object of OLM's.
func kind(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(harness.OLMVersion.WithKind(name))
	return u
}

// largePlan is a plan for the allowed version with the manifests of an operator in its steps.
func largePlan(namespace, name string, size int) *unstructured.Unstructured {
	p := harness.InstallPlan(namespace, name, harness.AllowedVersion)
	steps := p.Object["status"].(map[string]any)["plan"].([]any)
	manifest := func(kind, name string, bytes int) string {
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"description": strings.Repeat("what an author says of \"it\"; ", bytes/29)}})
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	for _, step := range []struct {
		kind    string
		percent int
	}{
		{kind: "ClusterServiceVersion", percent: 30},
		{kind: "CustomResourceDefinition", percent: 32},
		{kind: "CustomResourceDefinition", percent: 24},
		{
			kind:    "ServiceAccount",
			percent: 1,
		}, {
			kind:    "Role",
			percent: 3,
		}, {
			kind:    "RoleBinding",
			percent: 1,
		}, {
			kind:    "ClusterRole",
			percent: 3,
		}, {
			kind:    "ClusterRoleBinding",
			percent: 1,
		}, {
			kind:    "Service",
			percent: 1,
		},
	} {
		text := manifest(step.kind, "etcd", size*step.percent/100)
		if step.kind == "ClusterServiceVersion" {
			steps[0].(map[string]any)["resource"].(map[string]any)["manifest"] = manifest(step.kind, harness.AllowedCSV, size*step.percent/100)
			continue
		}
		steps = append(steps, map[string]any{"resolving": harness.AllowedCSV, "status": "Unknown", "resource": map[string]any{
			"group": "", "version": "v1", "kind": step.kind, "name": "etcd", "sourceName": harness.GoodCatalog, "sourceNamespace": "olm",
			"manifest": text,
		}})
	}
	p.Object["status"].(map[string]any)["plan"] = steps
	return p
}

// named makes the Subscription of a namespace say that a plan is the one that it follows.
func (e *speedEnv) named(ctx context.Context, namespace, plan string) error {
	u := kind("Subscription")
	u.SetNamespace(namespace)
	u.SetName("etcd")
	status := fmt.Sprintf(`{"status":{"state":"UpgradePending","currentCSV":%q,"lastUpdated":"2026-11-21T00:00:00Z",
		"installPlanRef":{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","namespace":%q,"name":%q}}}`, harness.AllowedCSV, namespace, plan)
	if err := e.OLM.Status().Patch(ctx, u, crclient.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
		return err
	}
	return e.seen(ctx, "subscriptions", u)
}

// written writes a plan without its status, as OLM does first, and returns the status to be written.
func (e *speedEnv) written(ctx context.Context, p *unstructured.Unstructured) (any, error) {
	status := p.Object["status"]
	delete(p.Object, "status")
	return status, e.OLM.Create(ctx, p)
}

// waitsForApproval writes the status of a plan: OLM has resolved it, and it requires approval.
func (e *speedEnv) waitsForApproval(ctx context.Context, p *unstructured.Unstructured, status any) error {
	p.Object["status"] = status
	return e.OLM.Status().Update(ctx, p)
}

// told waits until the policy of a namespace says something of a plan, which is the last thing that the loop does for it.
func (e *speedEnv) told(ctx context.Context, namespace, plan, text string) error {
	op := &policyv1beta2.OperatorPolicy{}
	return wait.PollUntilContextTimeout(ctx, harness.PolicyPollInterval, harness.WaitTimeout, false, func(ctx context.Context) (bool, error) {
		if err := e.Admin.Get(ctx, crclient.ObjectKey{
			Namespace: cluster.PolicyNamespace,
			Name:      namespace,
		}, op); err != nil {
			return false, err
		}
		related := slices.ContainsFunc(op.Status.RelatedObjects, func(r policyv1beta2.RelatedObject) bool {
			return r.Object.Kind == "InstallPlan" && r.Object.Metadata.Name == plan
		})
		return related && slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "InstallPlanCompliant" && strings.Contains(c.Message, text)
		}), nil
	})
}

// seen waits until Opgate's snapshot has an object.
func (e *speedEnv) seen(ctx context.Context, resource string, u *unstructured.Unstructured) error {
	return wait.PollUntilContextTimeout(ctx, harness.PollInterval, harness.WaitTimeout, true, func(ctx context.Context) (bool, error) {
		snapshot, err := e.Gate.Snapshot(ctx)
		if err != nil {
			return false, err
		}
		order, err := resourceversion.CompareResourceVersion(snapshot.ResourceVersions[resource], u.GetResourceVersion())
		return err == nil && order >= 0, err
	})
}

// requests are those of Opgate since an instant, but for those that keep its lease, and for one of each that comes again after minutes
// whatever happens: the API server ends watches after 5 to 10 minutes, and catalogs are asked again after 5. On a slow machine a test
// takes longer than that.
func (e *speedEnv) requests(since time.Time) ([]string, error) {
	all, err := e.OpgateRequests(since, time.Time{})
	var requests []string
	periodic := map[string]bool{}
	for _, r := range all {
		if r.Object.Resource == "leases" && r.Object.Name == "opgate-loop" {
			continue
		}
		what := r.Verb + " " + rights.For(r).Resource
		if r.Object.Resource != "events" { // the name of one is a number
			what += " " + r.Object.Name
		}
		comesAgain := r.Verb == "watch" || r.Verb == "get" && (r.Object.Resource == "packagemanifests" || r.Object.Resource == "")
		if comesAgain && time.Since(e.started) > watchesLast && !periodic[what] {
			periodic[what] = true
			continue
		}
		requests = append(requests, what)
	}
	return requests, err
}

// BenchmarkApproval takes the time from the end of OLM's request that makes a plan wait for its approval to the end of the one
// that approves it, both by the API server's audit log. The floor is what an approval costs by hand, in the same turn and on
// an equal plan in the same namespace: read it, update it, judged by the same webhooks. By hand nothing has to be noticed first.
func BenchmarkApproval(b *testing.B) {
	e := startSpeed(b, approvalPolicies)
	e.settle(b)
	// One after the other, each when Opgate has nothing else to do.
	b.Run(fmt.Sprintf("plan=%dKiB/policies=%d", planSize>>10, approvalPolicies), func(b *testing.B) {
		var all approvals
		for i := 0; b.Loop(); i++ {
			namespace := e.namespaces[i%len(e.namespaces)]
			for name, approve := range map[string]func(context.Context, waiting, *approvals) error{"floor": e.byHandAlone, "loop": e.byLoop} {
				p, err := e.newWaiting(b.Context(), namespace, fmt.Sprintf("%s-%d-%d", name, b.N, i), name == "loop")
				if err != nil {
					b.Fatal(err)
				}
				since := time.Now()
				if err := approve(b.Context(), p, &all); err != nil {
					b.Fatal(err)
				}
				e.count(b, &all, since)
			}
		}
		e.report(b, &all)
	})
	// All namespaces at the same moment.
	b.Run(fmt.Sprintf("plan=%dKiB/policies=%d/at-once=%d", planSize>>10, approvalPolicies, approvalPolicies), func(b *testing.B) {
		var all approvals
		for i := 0; b.Loop(); i++ {
			if i%len(e.namespaces) > 0 {
				continue // it was one of those at the same moment
			}
			for name, approve := range map[string]func(context.Context, waiting, *approvals) error{"floor": e.byHand, "loop": e.byLoop} {
				var mu sync.Mutex
				var plans []waiting
				harness.AtOnce(b, harness.Writers, e.namespaces, func(ctx context.Context, namespace string) error {
					p, err := e.newWaiting(ctx, namespace, fmt.Sprintf("%s-at-once-%d-%d", name, b.N, i), name == "loop")
					mu.Lock()
					defer mu.Unlock()
					plans = append(plans, p)
					return err
				})
				since := time.Now()
				harness.AtOnce(b, len(plans), plans, func(ctx context.Context, p waiting) error { return approve(ctx, p, &all) })
				e.count(b, &all, since)
			}
		}
		e.report(b, &all)
	})
}

// approvals are the instants at which plans began to wait for their approval.
type approvals struct {
	mu sync.Mutex
	// began is zero for those of which the audit log says it.
	began map[types.NamespacedName]time.Time
	// requests are those that Opgate made for them.
	requests int
}

func (a *approvals) begin(p *unstructured.Unstructured, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.began == nil {
		a.began = map[types.NamespacedName]time.Time{}
	}
	a.began[crclient.ObjectKeyFromObject(p)] = at
}

// count adds what Opgate has asked for since an instant.
func (e *speedEnv) count(b *testing.B, all *approvals, since time.Time) {
	b.Helper()
	requests, err := e.requests(since)
	if err != nil {
		b.Fatal(err)
	}
	all.requests += len(requests)
}

// waiting is a plan that will wait for its approval when its status is written.
type waiting struct {
	plan   *unstructured.Unstructured
	status any
}

// newWaiting writes a plan without its status. Only one that the Subscription names is approved by the loop.
func (e *speedEnv) newWaiting(ctx context.Context, namespace, name string, named bool) (waiting, error) {
	p := largePlan(namespace, name, planSize)
	status, err := e.written(ctx, p)
	if err != nil || !named {
		return waiting{p, status}, err
	}
	if err := e.named(ctx, namespace, name); err != nil {
		return waiting{}, err
	}
	// That it is named and has no status yet is reported as well, after a while.
	return waiting{p, status}, e.told(ctx, namespace, name, "")
}

func (e *speedEnv) byLoop(ctx context.Context, w waiting, all *approvals) error {
	if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
		return err
	}
	// Not when this process has read the answer, which is as large as the plan: Opgate may be at work by then.
	all.begin(w.plan, time.Time{})
	return e.told(ctx, w.plan.GetNamespace(), w.plan.GetName(), "was approved")
}

// byHandAlone lets Opgate first come to rest after the plan was written.
func (e *speedEnv) byHandAlone(ctx context.Context, w waiting, all *approvals) error {
	if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
		return err
	}
	if err := e.seen(ctx, "installplans", w.plan); err != nil {
		return err
	}
	return e.readAndUpdate(ctx, w, all)
}

func (e *speedEnv) byHand(ctx context.Context, w waiting, all *approvals) error {
	if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
		return err
	}
	return e.readAndUpdate(ctx, w, all)
}

func (e *speedEnv) readAndUpdate(ctx context.Context, w waiting, all *approvals) error {
	all.begin(w.plan, time.Now())
	read := kind("InstallPlan")
	if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(w.plan), read); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(read.Object, true, "spec", "approved"); err != nil {
		return err
	}
	return e.Admin.Update(ctx, read)
}

// report reads from the audit log when each plan was approved.
func (e *speedEnv) report(b *testing.B, all *approvals) {
	b.Helper()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		b.Fatal(err)
	}
	written := map[types.NamespacedName]time.Time{} // the status, by plan
	type stored struct {
		plan types.NamespacedName
		by   string
		at   time.Time
	}
	var approved []stored
	for _, event := range events {
		plan := types.NamespacedName{Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name}
		_, ok := all.began[plan]
		switch {
		case !ok || event.ObjectRef.Resource != "installplans" || event.Verb != "patch" && event.Verb != "update":
		case event.ObjectRef.Subresource == "status":
			written[plan] = event.At
		default:
			approved = append(approved, stored{plan, event.User.Username, event.At})
		}
	}
	var loop, floor []time.Duration
	for _, s := range approved {
		if s.by == cluster.OpgateUserName {
			loop = append(loop, s.at.Sub(written[s.plan])) // it may be less than nothing, if the answer to OLM took long
		} else {
			floor = append(floor, s.at.Sub(all.began[s.plan]))
		}
	}
	if len(loop) != len(floor) || len(loop)+len(floor) != len(all.began) {
		b.Fatalf("the audit log has %d approvals by the loop and %d by hand of %d", len(loop), len(floor), len(all.began))
	}
	b.ReportMetric(0, "ns/op")
	for name, p := range map[string]int{"p50": 50, "p99": 99} {
		ours, bare := percentile(loop, p), percentile(floor, p)
		b.ReportMetric(float64(ours.Microseconds())/1000, name+"-ms")
		b.ReportMetric(float64(bare.Microseconds())/1000, name+"-floor-ms")
		b.ReportMetric(ours.Seconds()/bare.Seconds(), name+"-ratio")
	}
	b.ReportMetric(float64(all.requests)/float64(len(loop)), "requests/approval")
}

func percentile(of []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[(len(sorted)-1)*p/100]
}

// TestLoopRequests counts what the loop asks the API server for, by the API server's own log, among many policies and plans.
func TestLoopRequests(t *testing.T) {
	t.Parallel()
	e := startSpeed(t, restPolicies)
	type numbered struct {
		namespace string
		n         int
	}
	var plans []numbered
	for i := range restPlans {
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
	e.settle(t)

	t.Run("an approval", func(t *testing.T) { e.approvalCosts(t, e.namespaces[0], false, false) })
	t.Run("an approval for a policy with an owner", func(t *testing.T) { e.approvalCosts(t, e.namespaces[1], true, false) })
	t.Run("approvals as OLM writes", func(t *testing.T) {
		for _, namespace := range e.namespaces[3:23] {
			e.approvalCosts(t, namespace, false, true)
		}
	})
	t.Run("what concerns nobody", func(t *testing.T) { e.othersCostNothing(t, e.namespaces[0], e.namespaces[2]) })
	t.Run("rest", func(t *testing.T) { e.rests(t) })
}

// settle waits until Opgate has done all that there is to do.
func (e *speedEnv) settle(t testing.TB) {
	t.Helper()
	var last []string
	settled := speed.Scale(harness.Settled)
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, harness.SettleTimeout, true, func(context.Context) (_ bool, err error) {
		last, err = e.requests(time.Now().Add(-settled))
		return len(last) == 0 && time.Since(e.started) > harness.CatalogAgain+settled, err
	})
	if err != nil {
		t.Fatalf("the loop does not come to rest: %v\n%s", err, strings.Join(last, "\n"))
	}
}

// approvalCosts expects one write of the plan, one of the status, one event on the plan, and one for an owner of the policy. NamedLast is
// the order in which OLM writes: the Subscription names a plan that requires approval already.
func (e *speedEnv) approvalCosts(t *testing.T, namespace string, owned, namedLast bool) {
	t.Helper()
	ctx := t.Context()
	want := []string{"create events", "patch installplans waiting", "patch operatorpolicies/status " + namespace}
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
	if err := e.told(ctx, namespace, "waiting", "was approved"); err != nil {
		t.Fatal(err)
	}
	// More would come now: the loop has yet to see what it has written.
	want = append(want, e.mark(t, namespace)...)
	var got []string
	harness.Eventually(t, "see the event on the plan", func(context.Context) (err error) { // it is sent in the background
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
		t.Errorf("an approval took\n  %s\nwant\n  %s\nthe policy's history is%s", strings.Join(got, "\n  "), strings.Join(want, "\n  "), history.String())
	}
}

// own sets an owner of the policy of a namespace, which receives an event for each new state.
func (e *speedEnv) own(t *testing.T, namespace string) {
	t.Helper()
	op := kind("OperatorPolicy")
	op.SetGroupVersionKind(policyv1beta2.GroupVersion.WithKind("OperatorPolicy"))
	op.SetNamespace(cluster.PolicyNamespace)
	op.SetName(namespace)
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"policy.open-cluster-management.io/v1","kind":"Policy","name":"parent","uid":"1"}]}}`
	if err := e.Admin.Patch(t.Context(), op, crclient.RawPatch("application/merge-patch+json", []byte(owner))); err != nil {
		t.Fatal(err)
	}
	if err := e.seen(t.Context(), "operatorpolicies", op); err != nil {
		t.Fatal(err)
	}
}

// mark changes the policy of a namespace in a way that the loop takes note of and nothing else, and waits until it has. All that
// it was to do in the namespace before is done by then. It returns the requests of the loop.
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
	if err := e.Admin.Patch(t.Context(), op, crclient.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	marked := op.Generation
	harness.Eventually(t, "the loop takes note of the policy for "+namespace, func(ctx context.Context) error {
		if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(op), op); err != nil || op.Status.ObservedGeneration >= marked {
			return err
		}
		return fmt.Errorf("it has seen generation %d of %d", op.Status.ObservedGeneration, marked)
	})
	requests := []string{"patch operatorpolicies/status " + namespace}
	if len(op.OwnerReferences) > 0 {
		requests = slices.Insert(requests, 0, "create events")
	}
	return requests
}

// othersCostNothing writes again and again what Opgate follows, in the namespaces of two policies and in one without, and wants
// that it asks for nothing.
func (e *speedEnv) othersCostNothing(t *testing.T, namespaces ...string) {
	ctx := t.Context()
	flap := func(in *unstructured.Unstructured, states ...string) {
		t.Helper()
		for range 5 {
			for _, state := range states {
				if err := e.OLM.Status().Patch(ctx, in, crclient.RawPatch("application/merge-patch+json", []byte(state))); err != nil {
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
		flap(other, `{"status":{"phase":"Installing"}}`, `{"status":{"phase":"Complete"}}`, `{"status":{"phase":"Failed"}}`)

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
		flap(deployment, `{"status":{"replicas":1,"unavailableReplicas":1}}`, `{"status":{"replicas":1,"unavailableReplicas":0}}`)

		for _, label := range []string{"a", "b"} {
			place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			patch := fmt.Sprintf(`{"metadata":{"labels":{"note":%q}}}`, label)
			if err := e.Admin.Patch(ctx, place, crclient.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
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

// rests wants that Opgate asks for nothing at all but its lease, for as long as $OPGATE_REST says.
func (e *speedEnv) rests(t *testing.T) {
	rest := restDefault
	if text := os.Getenv(restVariable); text != "" {
		var err error
		if rest, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", restVariable, err)
		}
	}
	e.settle(t)
	since := time.Now()
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
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
	if len(all) == len(requests) {
		t.Error("the audit log does not show that the loop keeps its lease, so it shows nothing")
	}
	t.Logf("in %s with %d policies and %d plans: %d requests for the lease, %d others", rest, restPolicies, restPlans, len(all)-len(requests), len(requests))
}
