package loop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// approvalPolicies is how many policies there are while approvals are timed.
const approvalPolicies = 50

// BenchmarkApproval takes the time from the end of OLM's request that makes a plan wait for its approval to the end of
// the one that approves it, both by the API server's audit log. The floor is what an approval costs by hand, in the
// same turn and on an equal plan in the same namespace: read it, update it, judged by the same webhooks. By hand
// nothing has to be noticed first.
func BenchmarkApproval(b *testing.B) {
	e := startSpeed(b, harness.StartWithoutGate(b), approvalPolicies)
	e.waitQuiet(b)
	// One after the other, each when Opgate has nothing else to do.
	b.Run(fmt.Sprintf("plan=%dKiB/policies=%d", planSize>>10, approvalPolicies), func(b *testing.B) {
		var all approvals
		for i := 0; b.Loop(); i++ {
			namespace := e.namespaces[i%len(e.namespaces)]
			for name, approve := range map[string]func(context.Context, waiting,
				*approvals) error{"floor": e.byHandAlone, "loop": e.byLoop} {
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
	b.Run(fmt.Sprintf("plan=%dKiB/policies=%d/at-once=%d", planSize>>10, approvalPolicies, approvalPolicies),
		func(b *testing.B) {
			var all approvals
			for i := 0; b.Loop(); i++ {
				if i%len(e.namespaces) > 0 {
					continue // it was one of those at the same moment
				}
				for name, approve := range map[string]func(context.Context, waiting, *approvals) error{"floor": e.byHand,
					"loop": e.byLoop} {
					var mu sync.Mutex
					var plans []waiting
					harness.AtOnce(b, harness.Writers, e.namespaces, func(ctx context.Context, namespace string) error {
						p, err := e.newWaiting(ctx, namespace, fmt.Sprintf("%s-at-once-%d-%d", name, b.N, i),
							name == "loop")
						mu.Lock()
						defer mu.Unlock()
						plans = append(plans, p)
						return err
					})
					since := time.Now()
					harness.AtOnce(b, len(plans), plans,
						func(ctx context.Context, p waiting) error { return approve(ctx, p, &all) })
					e.count(b, &all, since)
				}
			}
			e.report(b, &all)
		})
}

// approvals are the instants at which plans began to wait for their approval.
type approvals struct {
	mu sync.Mutex
	// began is zero for those of which the audit log states it.
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

func (e *speedEnv) byLoop(ctx context.Context, w waiting, all *approvals) error {
	if err := e.waitsForApproval(ctx, w.plan, w.status); err != nil {
		return err
	}
	// Not when this process has read the answer, which is as large as the plan: Opgate may be at work by then.
	all.begin(w.plan, time.Time{})
	return e.reported(ctx, w.plan.GetNamespace(), w.plan.GetName(), "was approved")
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
			// it may be less than nothing, if the answer to OLM took long
			loop = append(loop, s.at.Sub(written[s.plan]))
		} else {
			floor = append(floor, s.at.Sub(all.began[s.plan]))
		}
	}
	if len(loop) != len(floor) || len(loop)+len(floor) != len(all.began) {
		b.Fatalf("the audit log has %d approvals by the loop and %d by hand of %d", len(loop), len(floor),
			len(all.began))
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

// TestLoopRequests counts what the loop asks the API server for, by the API server's own log, among many policies and
// plans.
