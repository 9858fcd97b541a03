package loop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// leaseTimeout bounds the time until a replica has taken over: the Lease of one that was killed lasts 8 s.
	leaseTimeout = speed.LongWait
	// restFor is how long nothing must happen where nothing has to, on a machine of usual speed.
	restFor = 2 * time.Second
)

// TestLoopWithoutOLM starts Opgate where OLM is not installed, and where policies stand that no webhook has seen; OLM
// comes later, its package server never. Its cluster is its own: all others have the definitions of OLM.
func TestLoopWithoutOLM(t *testing.T) {
	t.Parallel()
	e := &harness.LoopEnv{Env: harness.Start(t, cluster.Options{Audit: true, WithoutOLM: true, Log: os.Stderr})}
	e.Connect(t)
	namespace := operatorNamespace(t, e)
	for _, u := range garbagePolicies(namespace) {
		e.Write(t, u)
	}
	e.Write(t, harness.OperatorPolicy(namespace))
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, Unready: true}); err != nil {
		t.Fatal(err)
	}
	gateLives(t, e)
	from := time.Now()
	waiting := time.NewTimer(restFor)
	select {
	case <-waiting.C:
	case <-e.Gate.Exited():
	}
	gateLives(t, e)
	if asked := requests(t, e, from, func(r cluster.Request) bool { return !r.Reopened() }); len(asked) > 100 {
		t.Errorf("opgate made %d requests in %s while OLM is absent", len(asked), restFor)
	}

	if err := e.InstallOLM(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("OLM has come", func(t *testing.T) {
		e.Propose(t, namespace, "install-1", harness.AllowedVersion)
		e.WaitApproved(t, namespace, "install-1")
		e.WaitCondition(t, namespace, "ValidPolicySpec", "True", "")
	})
	t.Run("stored policies that are not valid are reported", func(t *testing.T) {
		for _, u := range garbagePolicies(namespace) {
			e.WaitCondition(t, u.GetName(), "ValidPolicySpec", "False", "spec.")
		}
	})
	t.Run("objects with garbage in them do no harm", func(t *testing.T) { garbageObjects(t, e) })
	t.Run("there is no package server", func(t *testing.T) { noPackageServer(t, e) })
}

// garbagePolicies are such as the schema lets through and the webhook does not.
func garbagePolicies(namespace string) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i, edit := range []func(spec map[string]any){
		func(spec map[string]any) {
			spec["operatorGroup"] = map[string]any{"name": "own", "targetNamespaces": int64(7)}
		},
		func(spec map[string]any) {
			spec["operatorGroup"] = map[string]any{"name": "own", "selector": "größe"}
		},
		func(spec map[string]any) { spec["subscription"].(map[string]any)["config"] = []any{"尺寸"} },
		func(spec map[string]any) {
			spec["subscription"].(map[string]any)["installPlanApproval"] = map[string]any{}
		},
		func(spec map[string]any) { spec["versions"] = []any{"\u202eetcd", strings.Repeat("v", 10_000)} },
		func(spec map[string]any) { spec["versionRange"] = ">=1.0.0 || \u202e尺寸" },
	} {
		p := harness.OperatorPolicy(namespace)
		p.SetName(fmt.Sprintf("garbage-%d", i))
		spec := p.Object["spec"].(map[string]any)
		spec["subscription"].(map[string]any)["name"] = fmt.Sprintf("garbage-%d", i)
		edit(spec)
		all = append(all, p)
	}
	return all
}

// garbageObjects are OLM's objects with contents that OLM would not write. A policy beside them works.
func garbageObjects(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	large := strings.Repeat("ß", 120_000) // annotations have at most 256 KiB
	for i, properties := range []string{"not JSON {", `{"properties":"all"}`,
		`{"properties":[{"type":"olm.package","value":7}]}`, large} {
		csv := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: garbage-%d, namespace: %s}
spec: {displayName: größe, install: {strategy: "", spec: {deployments: []}}}
status: {phase: "\u202e", reason: "", message: 尺寸}
`, i, namespace)
		csv.SetAnnotations(map[string]string{"operatorframework.io/properties": properties})
		e.Write(t, csv)
	}
	subscription := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: garbage, namespace: %s}
spec: {name: größe, channel: "\u202e", source: 尺寸, sourceNamespace: ""}
status:
  lastUpdated: 2026-01-01T00:00:00Z
  currentCSV: "\t"
  installedCSV: garbage-0
  installPlanRef: {name: größe}
  conditions: [{type: ResolutionFailed, status: "True", reason: "größe", message: "\u202e clusterserviceversion  exists and is not referenced"}]
`, namespace)
	subscription.SetAnnotations(map[string]string{"example.com/large": large})
	e.Write(t, subscription)
	group := harness.Object(
		`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: own, namespace: %s}, spec: {}}`,
		namespace)
	group.SetAnnotations(map[string]string{"example.com/large": large})
	e.Write(t, group)

	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, namespace, "install-1")
	e.WaitCondition(t, namespace, "SubscriptionCompliant", "True", "")
	gateLives(t, e)
}

// noPackageServer has a policy that is complete, and one that needs defaults of its package. The latter reports what it
// waits for, and is retried with backoff.
func noPackageServer(t *testing.T, e *harness.LoopEnv) {
	complete, open := operatorNamespace(t, e), operatorNamespace(t, e)
	p := harness.OperatorPolicy(complete)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["channel"] = "alpha"
	e.Write(t, p)
	e.WaitCondition(t, complete, "SubscriptionCompliant", "True", "")
	e.Propose(t, complete, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, complete, "install-1")

	from := time.Now()
	p = harness.OperatorPolicy(open)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = "lonely"
	e.Write(t, p)
	e.WaitCondition(t, open, "SubscriptionCompliant", "False",
		"the defaults of spec.subscription.channel cannot be determined")
	e.WaitCondition(t, open, "ValidPolicySpec", "True", "")
	rests(t, e, open)
	asked := requests(t, e, from, func(r cluster.Request) bool {
		return r.Object.Resource == "packagemanifests" && r.Object.Name == "lonely"
	})
	// It is asked for at once, and after 1, 2, 4, 8 and 16 seconds more.
	if most := 2 + int(time.Since(from).Seconds()); len(asked) == 0 || len(asked) > most {
		t.Errorf("opgate asked for the package %d times in %s, want 1 to %d", len(asked), time.Since(from), most)
	}
}

// TestLoopAlone runs on one cluster, one after the other, what counts requests, takes the Lease, and ends replicas.
func TestLoopAlone(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *harness.LoopEnv)
	}{
		{name: "events", run: events},
		{name: "another client writes all the time", run: conflicts},
		{name: "five hundred plans", run: manyPlans},
		{name: "operators that require each other", run: cycle},
		{name: "the Lease is taken away", run: losesLease},
		{name: "the leader is stopped", run: stopped},
		{name: "two replicas", run: replicas},
		{name: "killed while a plan waits", run: killed},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// conflicts has a client that touches everything that the loop writes, as fast as it can.
func conflicts(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual"))
	e.Write(t, harness.Object(
		`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: own, namespace: %s}, spec: {}}`,
		namespace))
	p := harness.OperatorPolicy(namespace)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["channel"] = "alpha"
	from := time.Now()
	e.Write(t, p)
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var touching sync.WaitGroup
	var touched [3]atomic.Int64
	for i, u := range []*unstructured.Unstructured{p,
		harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual"),
		harness.InstallPlan(namespace, "install-1", harness.AllowedVersion)} {
		touching.Go(func() {
			for ctx.Err() == nil {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, touched[i].Load())
				if err := e.Admin.Patch(ctx, u.DeepCopy(),
					crclient.RawPatch("application/merge-patch+json", []byte(patch))); err == nil {
					touched[i].Add(1)
				}
			}
		})
	}
	// The plan is approved, and the policy evaluated, in the middle of it.
	e.WaitApproved(t, namespace, "install-1")
	e.WaitCondition(t, namespace, "SubscriptionCompliant", "True", "matches")
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	const often = 100
	for i := range touched {
		harness.Eventually(t, "be in the way", func(context.Context) error {
			if n := touched[i].Load(); n < often {
				return fmt.Errorf("%d writes", n)
			}
			return nil
		})
	}
	stop()
	touching.Wait()
	rests(t, e, namespace)

	written := map[string]int{}
	for _, r := range requests(t, e, from, isWrite) {
		if r.Object.Namespace == namespace || r.Object.Name == namespace {
			written[fmt.Sprintf("%s %d", r.Object.Resource, r.Response.Code)]++
		}
	}
	if n := written["installplans 200"]; n != 1 {
		t.Errorf("the plan was approved %d times, want once", n)
	}
	var others int
	for i := range touched {
		others += int(touched[i].Load())
	}
	for what, n := range written {
		most := 25
		if strings.HasSuffix(what, " 409") {
			// between Opgate's read and each conflict is another client's write: how many depends on the machine
			most = others
		}
		if n > most {
			t.Errorf("opgate wrote too often: %d times %s, others wrote %d times", n, what, others)
		}
	}
	t.Logf("opgate wrote %v, others %d times", written, others)
}

// manyPlans has a namespace in which OLM has left its history.
func manyPlans(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	const count, writers, waiting = 500, 16, 20
	names := make(chan int)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range names {
				old := harness.InstallPlan(namespace, fmt.Sprintf("old-%04d", i), harness.ForbiddenVersion)
				if i >= waiting { // some wait for ever; for the others the spec has to do
					delete(old.Object, "status")
				}
				if _, err := e.Create(t.Context(), old); err != nil {
					t.Error(err)
				}
			}
		})
	}
	e.Write(t, harness.OperatorPolicy(namespace))
	for i := range count {
		names <- i
	}
	close(names)
	writing.Wait()
	e.Sync(t)
	e.Propose(t, namespace, "other", harness.ForbiddenVersion)
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "False", "is not allowed")
	e.WaitCondition(t, namespace, "SubscriptionCompliant", "True", "matches")
	rests(t, e, namespace)

	from := time.Now()
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, namespace, "install-1")
	took := time.Since(from)
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	rests(t, e, namespace)
	requests := requests(t, e, from,
		func(r cluster.Request) bool { return r.Object.Resource != "leases" && r.Verb != "watch" })
	if len(requests) > 20 {
		t.Errorf("opgate made %d requests to approve one plan of many, want 20 at most: %v", len(requests), requests)
	}
	t.Logf("one plan of %d was approved after %s, with %d requests", count, took, len(requests))
}

// cycle has a plan in which packages require each other and themselves, which must not end the process.
func cycle(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.AllowedVersion, "etcd zookeeper", "zookeeper etcd", "kafka")
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "False", "kafka.v1.0.0 is held")
	e.WantApproved(t, namespace, "install-1", false)
	e.Propose(t, namespace, "install-2", harness.AllowedVersion, "etcd zookeeper", "zookeeper kafka",
		"kafka etcd kafka")
	e.WaitApproved(t, namespace, "install-2")
	gateLives(t, e)
}

// replicas has two, of which one works. Each plan is approved once, and when the one that works is killed the other
// takes over.
func replicas(t *testing.T, e *harness.LoopEnv) {
	first := e.Gate
	second, err := e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Gate = second
	from := time.Now()
	var namespaces []string
	for range 5 {
		namespace := operatorNamespace(t, e)
		namespaces = append(namespaces, namespace)
		e.Write(t, harness.OperatorPolicy(namespace))
		e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	}
	for _, namespace := range namespaces {
		e.WaitApproved(t, namespace, "install-1")
		e.WaitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	}
	if got := leaseHolder(t, e); got != leaseHolder(t, e) || got == "" {
		t.Errorf("the lease changes hands without need, or has no holder: %q", got)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	namespace := operatorNamespace(t, e)
	namespaces = append(namespaces, namespace)
	e.Write(t, harness.OperatorPolicy(namespace)) // the second replica answers all the while
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	within(t, leaseTimeout, "the second replica takes over",
		func(ctx context.Context) error { return e.Approved(ctx, namespace, "install-1") })
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	for _, namespace := range namespaces {
		approvals := requests(t, e, from, func(r cluster.Request) bool {
			return isWrite(r) && r.Object.Resource == "installplans" && r.Object.Namespace == namespace
		})
		if len(approvals) != 1 || approvals[0].Response.Code != http.StatusOK {
			t.Errorf("%s: the plan was approved by %v, want one request", namespace, approvals)
		}
	}
}

// killed has a plan that waits while no Opgate runs, and is judged anew by the next.
func killed(t *testing.T, e *harness.LoopEnv) {
	wanted, unwanted := operatorNamespace(t, e), operatorNamespace(t, e)
	for _, namespace := range []string{wanted, unwanted} {
		e.Write(t, harness.OperatorPolicy(namespace))
		e.WaitCondition(t, namespace, "SubscriptionCompliant", "False", "")
	}
	e.Propose(t, unwanted, "install-1", harness.ForbiddenVersion)
	e.WaitCondition(t, unwanted, "InstallPlanCompliant", "False", "is not allowed")
	// There is no Subscription yet, so that this plan waits for nothing until Opgate is killed.
	e.Write(t, harness.Subscription(wanted, "etcd", harness.GoodCatalog, "Manual"))
	e.Write(t, harness.InstallPlan(wanted, "install-1", harness.AllowedVersion))
	e.WaitCondition(t, wanted, "InstallPlanCompliant", "True", "")
	if err := e.Gate.Kill(); err != nil {
		t.Fatal(err)
	}
	following := harness.Subscription(wanted, "etcd", harness.GoodCatalog, "Manual")
	patch := fmt.Appendf(nil,
		`{"status":{"lastUpdated":"2026-01-01T00:00:00Z","currentCSV":%q,"installPlanRef":{"name":"install-1","namespace":%q}}}`, harness.AllowedCSV, wanted)
	if err := e.OLM.Status().Patch(t.Context(), following,
		crclient.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	gate, err := e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Gate = gate
	within(t, leaseTimeout, "the next Opgate approves",
		func(ctx context.Context) error { return e.Approved(ctx, wanted, "install-1") })
	e.WantApproved(t, unwanted, "install-1", false)
	p := &policyv1beta2.OperatorPolicy{}
	p.Namespace, p.Name = cluster.PolicyNamespace, unwanted
	edit := fmt.Appendf(nil, `{"spec":{"versions":[%q,%q]}}`, harness.AllowedCSV, harness.ForbiddenCSV)
	if err := e.Admin.Patch(t.Context(), p, crclient.RawPatch("application/merge-patch+json", edit)); err != nil {
		t.Fatal(err)
	}
	e.WaitApproved(t, unwanted, "install-1")
}

// losesLease takes the Lease away from the replica that holds it. The replica stops the loop and ends without an error;
// started again it judges, and works when it has the Lease.
func losesLease(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, namespace, "install-1")
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = cluster.InPlaceOfOpgate
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	leases, before := client.CoordinationV1().Leases(cluster.OpgateNamespace), e.Gate.Restarts()
	harness.Eventually(t, "take the lease", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "opgate-loop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		thief := "thief"
		long := int32(24 * 60 * 60) // seconds, until it is given back
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &thief, &long
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	within(t, leaseTimeout, "the replica that led ends, and is started again", func(context.Context) error {
		if n := e.Gate.Restarts(); n != before+1 {
			return fmt.Errorf("it was started again %d times", n-before)
		}
		return nil
	})
	if err := e.Gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := leaseHolder(t, e); got != "thief" {
		t.Errorf("the lease is held by %q, want the thief", got)
	}
	later := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(later))
	e.Write(t, harness.Subscription(later, "etcd", harness.GoodCatalog, "Automatic"))
	got := e.Stored(t, harness.Subscription(later, "etcd", harness.GoodCatalog, "Automatic"))
	if approval, _, _ := unstructured.NestedString(got.Object, "spec", "installPlanApproval"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want Manual", approval)
	}
	e.Propose(t, later, "install-1", harness.AllowedVersion)
	if err := leads(t.Context(), e.Env, e.Scraper, false); err != nil {
		t.Error(err)
	}
	released := []byte(`{"spec":{"holderIdentity":""}}`)
	if _, err := leases.Patch(t.Context(), "opgate-loop", types.MergePatchType, released,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, leaseTimeout, "work again",
		func(ctx context.Context) error { return e.Approved(ctx, later, "install-1") })
	gateLives(t, e)
}

// operatorNamespace makes a namespace for an operator.
func operatorNamespace(t *testing.T, e *harness.LoopEnv) string {
	t.Helper()
	namespace := harness.Object(`{apiVersion: v1, kind: Namespace, metadata: {name: op-%s}}`, rand.String(8))
	if err := e.Admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.GetName()
}

// within is eventually for what takes longer.
func within(t *testing.T, timeout time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := harness.Poll(t.Context(), timeout, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// rests wants that a policy is not written for a while.
func rests(t *testing.T, e *harness.LoopEnv, name string) {
	t.Helper()
	var last string
	var since time.Time
	harness.Eventually(t, "policy "+name+" rests", func(ctx context.Context) error {
		op, err := e.StateOf(ctx, name)
		if err != nil {
			return err
		}
		if op.ResourceVersion != last {
			last, since = op.ResourceVersion, time.Now()
		}
		if rested := time.Since(since); rested < speed.Scale(restFor) {
			return fmt.Errorf("it was written %s ago", rested)
		}
		return nil
	})
}

// gateLives wants that the process runs and answers.
func gateLives(t *testing.T, e *harness.LoopEnv) {
	t.Helper()
	select {
	case <-e.Gate.Exited():
		log, _ := os.ReadFile(e.Gate.LogPath())
		t.Fatalf("opgate has ended; its log:\n%s", log)
	default:
	}
	harness.Eventually(t, "be answered by opgate", func(ctx context.Context) error {
		code, body, err := harness.GetURL(ctx, e.Gate.HealthURL()+"/healthz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// requests are those of Opgate since an instant that match.
func requests(t *testing.T, e *harness.LoopEnv, from time.Time, match func(cluster.Request) bool) []cluster.Request {
	t.Helper()
	all, err := e.OpgateRequests(from, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r cluster.Request) bool { return !match(r) })
}

// isWrite reports whether a request writes. Reviews of tokens and of rights are created and not stored: Opgate asks for
// them when it is asked for its metrics.
func isWrite(r cluster.Request) bool {
	return !strings.HasSuffix(r.Object.Resource, "reviews") &&
		slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// leaseHolder is who runs the loop.
func leaseHolder(t *testing.T, e *harness.LoopEnv) string {
	t.Helper()
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err := e.Admin.Get(t.Context(), crclient.ObjectKey{
		Namespace: cluster.OpgateNamespace,
		Name:      "opgate-loop",
	}, lease); err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return name
}
