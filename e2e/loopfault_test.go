package e2e

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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// leaseTimeout bounds the time until a replica has taken over: the lease of one that was killed lasts 15 s, and one that
	// lost its lease waits before it tries again.
	leaseTimeout = speed.LongWait
	// restFor is how long nothing must happen where nothing has to, on a machine of usual speed.
	restFor = 2 * time.Second
)

// TestLoopWithoutOLM starts Opgate where OLM is not installed, and where policies stand that no webhook has seen; OLM comes
// later, its package server never.
func TestLoopWithoutOLM(t *testing.T) {
	t.Parallel()
	e := &loopEnv{env: startBare(t, cluster.Options{Audit: true, WithoutOLM: true, Log: os.Stderr})}
	e.connect(t)
	namespace := e.operatorNamespace(t)
	for _, u := range garbagePolicies(namespace) {
		e.write(t, u)
	}
	e.write(t, policy(namespace))
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, Unready: true}); err != nil {
		t.Fatal(err)
	}
	e.gateLives(t)
	from := time.Now()
	waiting := time.NewTimer(restFor)
	select {
	case <-waiting.C:
	case <-e.gate.Exited():
	}
	e.gateLives(t)
	if asked := e.requests(t, from, func(cluster.Request) bool { return true }); len(asked) > 100 {
		t.Errorf("opgate made %d requests in %s while OLM is absent", len(asked), restFor)
	}

	if err := e.InstallOLM(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.gate.WaitForReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("OLM has come", func(t *testing.T) {
		e.propose(t, namespace, "install-1", allowedVersion)
		e.waitApproved(t, namespace, "install-1")
		e.waitCondition(t, namespace, "ValidPolicySpec", "True", "")
	})
	t.Run("stored policies that are not valid are reported", func(t *testing.T) {
		for _, u := range garbagePolicies(namespace) {
			e.waitCondition(t, u.GetName(), "ValidPolicySpec", "False", "spec.")
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
		p := policy(namespace)
		p.SetName(fmt.Sprintf("garbage-%d", i))
		spec := p.Object["spec"].(map[string]any)
		spec["subscription"].(map[string]any)["name"] = fmt.Sprintf("garbage-%d", i)
		edit(spec)
		all = append(all, p)
	}
	return all
}

// garbageObjects are OLM's objects with contents that OLM would not write. A policy beside them works.
func garbageObjects(t *testing.T, e *loopEnv) {
	namespace := e.operatorNamespace(t)
	large := strings.Repeat("ß", 120_000) // annotations have at most 256 KiB
	for i, properties := range []string{"not JSON {", `{"properties":"all"}`, `{"properties":[{"type":"olm.package","value":7}]}`, large} {
		csv := object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: garbage-%d, namespace: %s}
spec: {displayName: größe, install: {strategy: "", spec: {deployments: []}}}
status: {phase: "\u202e", reason: "", message: 尺寸}
`, i, namespace)
		csv.SetAnnotations(map[string]string{"operatorframework.io/properties": properties})
		e.write(t, csv)
	}
	subscription := object(`
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
	e.write(t, subscription)
	group := object(`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: own, namespace: %s}, spec: {}}`, namespace)
	group.SetAnnotations(map[string]string{"example.com/large": large})
	e.write(t, group)

	e.write(t, policy(namespace))
	e.propose(t, namespace, "install-1", allowedVersion)
	e.waitApproved(t, namespace, "install-1")
	e.waitCondition(t, namespace, "SubscriptionCompliant", "True", "")
	e.gateLives(t)
}

// noPackageServer has a policy that needs nobody to complete it, and one that does. The latter says what it waits for, and
// asks ever more rarely.
func noPackageServer(t *testing.T, e *loopEnv) {
	complete, open := e.operatorNamespace(t), e.operatorNamespace(t)
	p := policy(complete)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["channel"] = "alpha"
	e.write(t, p)
	e.waitCondition(t, complete, "SubscriptionCompliant", "True", "")
	e.propose(t, complete, "install-1", allowedVersion)
	e.waitApproved(t, complete, "install-1")

	from := time.Now()
	p = policy(open)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = "lonely"
	e.write(t, p)
	e.waitCondition(t, open, "SubscriptionCompliant", "False", "the defaults of spec.subscription.channel cannot be determined")
	e.waitCondition(t, open, "ValidPolicySpec", "True", "")
	e.rests(t, open)
	asked := e.requests(t, from, func(r cluster.Request) bool {
		return r.Object.Resource == "packagemanifests" && r.Object.Name == "lonely"
	})
	// It is asked for at once, and after 1, 2, 4, 8 and 16 seconds more.
	if most := 2 + int(time.Since(from).Seconds()); len(asked) == 0 || len(asked) > most {
		t.Errorf("opgate asked for the package %d times in %s, want 1 to %d", len(asked), time.Since(from), most)
	}
}

// TestLoopFaults lets things go wrong around two replicas of Opgate.
func TestLoopFaults(t *testing.T) {
	t.Parallel()
	e := startLoop(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *loopEnv)
	}{
		{"somebody else writes all the time", conflicts},
		{"two thousand plans", manyPlans},
		{"operators that require each other", cycle},
		{"two replicas", replicas},
		{"killed while a plan waits", killed},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// conflicts has somebody who touches everything that the loop writes, as fast as they can.
func conflicts(t *testing.T, e *loopEnv) {
	namespace := e.operatorNamespace(t)
	e.write(t, subscription(namespace, "etcd", goodCatalog, "Manual"))
	e.write(t, object(`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: own, namespace: %s}, spec: {}}`, namespace))
	p := policy(namespace)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["channel"] = "alpha"
	from := time.Now()
	e.write(t, p)
	e.propose(t, namespace, "install-1", allowedVersion)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var touching sync.WaitGroup
	var touched [3]atomic.Int64
	for i, u := range []*unstructured.Unstructured{p, subscription(namespace, "etcd", goodCatalog, "Manual"), plan(namespace, "install-1", allowedVersion)} {
		touching.Go(func() {
			for ctx.Err() == nil {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, touched[i].Load())
				if err := e.admin.Patch(ctx, u.DeepCopy(), crclient.RawPatch("application/merge-patch+json", []byte(patch))); err == nil {
					touched[i].Add(1)
				}
			}
		})
	}
	// The plan is approved, and the policy evaluated, in the middle of it.
	e.waitApproved(t, namespace, "install-1")
	e.waitCondition(t, namespace, "SubscriptionCompliant", "True", "matches")
	e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	const often = 100
	for i := range touched {
		eventually(t, "be in the way", func(context.Context) error {
			if n := touched[i].Load(); n < often {
				return fmt.Errorf("%d writes", n)
			}
			return nil
		})
	}
	stop()
	touching.Wait()
	e.rests(t, namespace)

	written := map[string]int{}
	for _, r := range e.requests(t, from, isWrite) {
		if r.Object.Namespace == namespace || r.Object.Name == namespace {
			written[fmt.Sprintf("%s %d", r.Object.Resource, r.Response.Code)]++
		}
	}
	if n := written["installplans 200"]; n != 1 {
		t.Errorf("the plan was approved %d times, want once", n)
	}
	for what, n := range written {
		if n > 25 {
			t.Errorf("opgate wrote too often: %d times %s", n, what)
		}
	}
	t.Logf("opgate wrote %v", written)
}

// manyPlans has a namespace in which OLM has left its history.
func manyPlans(t *testing.T, e *loopEnv) {
	namespace := e.operatorNamespace(t)
	const count, writers, waiting = 2000, 16, 20
	names := make(chan int)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range names {
				old := plan(namespace, fmt.Sprintf("old-%04d", i), forbiddenVersion)
				if i >= waiting { // some wait for ever; for the others the spec has to do
					delete(old.Object, "status")
				}
				if _, err := e.create(t.Context(), old); err != nil {
					t.Error(err)
				}
			}
		})
	}
	e.write(t, policy(namespace))
	for i := range count {
		names <- i
	}
	close(names)
	writing.Wait()
	e.sync(t)
	e.propose(t, namespace, "other", forbiddenVersion)
	e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "is not allowed")
	e.waitCondition(t, namespace, "SubscriptionCompliant", "True", "matches")
	e.rests(t, namespace)

	from := time.Now()
	e.propose(t, namespace, "install-1", allowedVersion)
	e.waitApproved(t, namespace, "install-1")
	took := time.Since(from)
	e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	e.rests(t, namespace)
	requests := e.requests(t, from, func(r cluster.Request) bool { return r.Object.Resource != "leases" && r.Verb != "watch" })
	if len(requests) > 20 {
		t.Errorf("opgate made %d requests to approve one plan of many, want 20 at most: %v", len(requests), requests)
	}
	t.Logf("one plan of %d was approved after %s, with %d requests", count, took, len(requests))
}

// cycle has a plan in which packages require each other and themselves, which must not end the process.
func cycle(t *testing.T, e *loopEnv) {
	namespace := e.operatorNamespace(t)
	e.write(t, policy(namespace))
	e.propose(t, namespace, "install-1", allowedVersion, "etcd zookeeper", "zookeeper etcd", "kafka")
	e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "kafka.v1.0.0 is held")
	e.wantApproved(t, namespace, "install-1", false)
	e.propose(t, namespace, "install-2", allowedVersion, "etcd zookeeper", "zookeeper kafka", "kafka etcd kafka")
	e.waitApproved(t, namespace, "install-2")
	e.gateLives(t)
}

// replicas has two, of which one works. Each plan is approved once, and when the one that works is killed the other takes over.
func replicas(t *testing.T, e *loopEnv) {
	first := e.gate
	second, err := e.StartOpgate(t.Context(), cluster.GateOptions{Binary: e.Opgate(), Loop: true})
	if err != nil {
		t.Fatal(err)
	}
	e.gate = second
	from := time.Now()
	var namespaces []string
	for range 5 {
		namespace := e.operatorNamespace(t)
		namespaces = append(namespaces, namespace)
		e.write(t, policy(namespace))
		e.propose(t, namespace, "install-1", allowedVersion)
	}
	for _, namespace := range namespaces {
		e.waitApproved(t, namespace, "install-1")
		e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	}
	if got := e.holder(t); got != e.holder(t) || got == "" {
		t.Errorf("the lease changes hands without need, or has no holder: %q", got)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	namespace := e.operatorNamespace(t)
	namespaces = append(namespaces, namespace)
	e.write(t, policy(namespace)) // the second replica answers all the while
	e.propose(t, namespace, "install-1", allowedVersion)
	within(t, leaseTimeout, "the second replica takes over", func(ctx context.Context) error { return e.approved(ctx, namespace, "install-1") })
	e.waitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")
	for _, namespace := range namespaces {
		approvals := e.requests(t, from, func(r cluster.Request) bool {
			return isWrite(r) && r.Object.Resource == "installplans" && r.Object.Namespace == namespace
		})
		if len(approvals) != 1 || approvals[0].Response.Code != http.StatusOK {
			t.Errorf("%s: the plan was approved by %v, want one request", namespace, approvals)
		}
	}
}

// killed has a plan that waits while no Opgate runs, and is judged anew by the next.
func killed(t *testing.T, e *loopEnv) {
	wanted, unwanted := e.operatorNamespace(t), e.operatorNamespace(t)
	for _, namespace := range []string{wanted, unwanted} {
		e.write(t, policy(namespace))
		e.waitCondition(t, namespace, "SubscriptionCompliant", "False", "")
	}
	e.propose(t, unwanted, "install-1", forbiddenVersion)
	e.waitCondition(t, unwanted, "InstallPlanCompliant", "True", "is not allowed")
	// Nobody subscribes yet, so that this plan waits for nothing until Opgate is dead.
	e.write(t, subscription(wanted, "etcd", goodCatalog, "Manual"))
	e.write(t, plan(wanted, "install-1", allowedVersion))
	e.waitCondition(t, wanted, "InstallPlanCompliant", "True", "")
	if err := e.gate.Kill(); err != nil {
		t.Fatal(err)
	}
	following := subscription(wanted, "etcd", goodCatalog, "Manual")
	patch := fmt.Appendf(nil, `{"status":{"lastUpdated":"2026-01-01T00:00:00Z","currentCSV":%q,"installPlanRef":{"name":"install-1","namespace":%q}}}`, allowedCSV, wanted)
	if err := e.olm.Status().Patch(t.Context(), following, crclient.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	gate, err := e.StartOpgate(t.Context(), cluster.GateOptions{Binary: e.Opgate(), Loop: true})
	if err != nil {
		t.Fatal(err)
	}
	e.gate = gate
	within(t, leaseTimeout, "the next Opgate approves", func(ctx context.Context) error { return e.approved(ctx, wanted, "install-1") })
	e.wantApproved(t, unwanted, "install-1", false)
	p := &policyv1beta2.OperatorPolicy{}
	p.Namespace, p.Name = cluster.PolicyNamespace, unwanted
	edit := fmt.Appendf(nil, `{"spec":{"versions":[%q,%q]}}`, allowedCSV, forbiddenCSV)
	if err := e.admin.Patch(t.Context(), p, crclient.RawPatch("application/merge-patch+json", edit)); err != nil {
		t.Fatal(err)
	}
	e.waitApproved(t, unwanted, "install-1")
}

// TestLoopLosesLease takes the lease away from the replica that holds it. It goes on answering reviews, does not work, and
// works again when it has the lease.
func TestLoopLosesLease(t *testing.T) {
	t.Parallel()
	e := startLoop(t)
	namespace := e.operatorNamespace(t)
	e.write(t, policy(namespace))
	e.propose(t, namespace, "install-1", allowedVersion)
	e.waitApproved(t, namespace, "install-1")
	holder := e.holder(t)

	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "take the lease", func(ctx context.Context) error {
		lease, err := client.CoordinationV1().Leases(cluster.OpgateNamespace).Get(ctx, "opgate-loop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		thief := "thief"
		long := int32(24 * 60 * 60) // seconds, until it is given back
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &thief, &long
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_, err = client.CoordinationV1().Leases(cluster.OpgateNamespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	within(t, leaseTimeout, "notice that the lease is lost", func(ctx context.Context) error {
		_, body, err := e.scrape(ctx, e.scraper)
		if err == nil && !strings.Contains(body, "\nopgate_loop_leading 0\n") {
			err = errors.New("it says that it leads")
		}
		return err
	})
	e.gateLives(t)
	if got := e.holder(t); got != "thief" {
		t.Errorf("the lease is held by %q, want the thief", got)
	}

	// Reviews are answered all the while.
	later := e.operatorNamespace(t)
	e.write(t, policy(later))
	e.write(t, subscription(later, "etcd", goodCatalog, "Automatic"))
	got := e.stored(t, subscription(later, "etcd", goodCatalog, "Automatic"))
	if approval, _, _ := unstructured.NestedString(got.Object, "spec", "installPlanApproval"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want Manual", approval)
	}
	e.propose(t, later, "install-1", allowedVersion)
	released := []byte(`{"spec":{"holderIdentity":""}}`)
	if _, err := client.CoordinationV1().Leases(cluster.OpgateNamespace).Patch(t.Context(), "opgate-loop", types.MergePatchType, released, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, leaseTimeout, "work again", func(ctx context.Context) error { return e.approved(ctx, later, "install-1") })
	if got := e.holder(t); got == "thief" || got == holder {
		t.Errorf("the lease is held by %q, want a new one: the loop begins anew with its lease", got)
	}
	e.gateLives(t)
}

// operatorNamespace makes a namespace for an operator.
func (e *loopEnv) operatorNamespace(t *testing.T) string {
	t.Helper()
	namespace := object(`{apiVersion: v1, kind: Namespace, metadata: {name: op-%s}}`, rand.String(8))
	if err := e.admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.GetName()
}

// write applies an object with its status.
func (e *loopEnv) write(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if err := e.apply(u.DeepCopy()); err != nil {
		t.Fatal(err)
	}
}

// propose does what OLM does when there is something to install: it writes a plan, and the Subscription follows it. More are
// packages that are in it besides etcd, each with the packages that it requires; one that is etcd says what that requires.
func (e *loopEnv) propose(t *testing.T, namespace, name, version string, more ...string) {
	t.Helper()
	p := plan(namespace, name, version)
	names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
	lookups, _, _ := unstructured.NestedSlice(p.Object, "status", "bundleLookups")
	for _, text := range more {
		words := strings.Fields(text)
		pkg, csv, v := words[0], words[0]+".v1.0.0", "1.0.0"
		if pkg == "etcd" {
			csv, v, lookups = "etcdoperator.v"+version, version, nil
		} else {
			names = append(names, csv)
		}
		properties := fmt.Sprintf(`{"properties":[{"type":"olm.package","value":{"packageName":%q,"version":%q}}`, pkg, v)
		for _, required := range words[1:] {
			properties += fmt.Sprintf(`,{"type":"olm.package.required","value":{"packageName":%q,"versionRange":">=0.0.0"}}`, required)
		}
		lookups = append(lookups, map[string]any{"identifier": csv, "path": "registry.invalid/" + csv, "replaces": "",
			"catalogSourceRef": map[string]any{"namespace": "olm", "name": goodCatalog}, "properties": properties + "]}"})
	}
	spec, status := p.Object["spec"].(map[string]any), p.Object["status"].(map[string]any)
	all := make([]any, len(names))
	for i := range names {
		all[i] = names[i]
	}
	spec["clusterServiceVersionNames"], status["bundleLookups"] = all, lookups
	e.write(t, p)
	s := subscription(namespace, "etcd", goodCatalog, "Manual")
	s.Object["status"] = map[string]any{"lastUpdated": "2026-01-01T00:00:00Z", "currentCSV": "etcdoperator.v" + version,
		"installPlanRef": map[string]any{"name": name, "namespace": namespace}}
	e.write(t, s)
}

// within is eventually for what takes longer.
func within(t *testing.T, timeout time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 5*pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// approved gives an error until a plan is approved.
func (e *loopEnv) approved(ctx context.Context, namespace, name string) error {
	p := plan(namespace, name, allowedVersion)
	if err := e.admin.Get(ctx, crclient.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	if approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved"); !approved {
		return errors.New("the plan is not approved")
	}
	return nil
}

func (e *loopEnv) waitApproved(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "approve "+namespace+"/"+name, func(ctx context.Context) error { return e.approved(ctx, namespace, name) })
}

func (e *loopEnv) wantApproved(t *testing.T, namespace, name string, want bool) {
	t.Helper()
	if err := e.approved(t.Context(), namespace, name); (err == nil) != want {
		t.Errorf("plan %s/%s: approved %t, want %t", namespace, name, err == nil, want)
	}
}

// stateOf reads a policy that was evaluated.
func (e *loopEnv) stateOf(ctx context.Context, name string) (*policyv1beta2.OperatorPolicy, error) {
	op := &policyv1beta2.OperatorPolicy{}
	if err := e.admin.Get(ctx, crclient.ObjectKey{Namespace: cluster.PolicyNamespace, Name: name}, op); err != nil {
		return nil, err
	}
	if op.Status.ObservedGeneration != op.Generation {
		return nil, errors.New("it was not evaluated yet")
	}
	return op, nil
}

// waitCondition waits until a policy has a condition with a status, and a text in its message.
func (e *loopEnv) waitCondition(t *testing.T, name, conditionType, status, text string) {
	t.Helper()
	eventually(t, "condition "+conditionType+" of "+name, func(ctx context.Context) error {
		op, err := e.stateOf(ctx, name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == conditionType && string(c.Status) == status && strings.Contains(c.Message, text)
		}) {
			return fmt.Errorf("want it %s with %q, have\n%s", status, text, conditions(op))
		}
		return nil
	})
}

// rests wants that a policy is not written for a while.
func (e *loopEnv) rests(t *testing.T, name string) {
	t.Helper()
	var last string
	var since time.Time
	eventually(t, "policy "+name+" rests", func(ctx context.Context) error {
		op, err := e.stateOf(ctx, name)
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
func (e *loopEnv) gateLives(t *testing.T) {
	t.Helper()
	select {
	case <-e.gate.Exited():
		log, _ := os.ReadFile(e.gate.LogPath())
		t.Fatalf("opgate has ended; its log:\n%s", log)
	default:
	}
	eventually(t, "be answered by opgate", func(ctx context.Context) error {
		code, body, err := get(ctx, e.gate.HealthURL()+"/healthz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// requests are those of Opgate since an instant that match.
func (e *loopEnv) requests(t *testing.T, from time.Time, match func(cluster.Request) bool) []cluster.Request {
	t.Helper()
	all, err := e.OpgateRequests(from, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r cluster.Request) bool { return !match(r) })
}

func isWrite(r cluster.Request) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// holder is who runs the loop.
func (e *loopEnv) holder(t *testing.T) string {
	t.Helper()
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err := e.admin.Get(t.Context(), crclient.ObjectKey{Namespace: cluster.OpgateNamespace, Name: "opgate-loop"}, lease); err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return name
}
