package loop

import (
	"fmt"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// timePasses is about what the time alone changes: a freeze ends, and an exception does, without a restart and without
// an event.
func timePasses(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	after := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
	harness.WithField(p, harness.Etcd2, "spec", "subscription", "startingCSV")
	harness.WithField(p, []any{map[string]any{"start": "2026-01-01T00:00:00Z", "end": after(time.Hour),
		"reason": "audit"}}, "spec", "freezes")
	e.Apply(t, p)
	plan := e.WaitForPlan(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		"(bundle/approval-window)", "audit"))
	e.WantApprovalRefused(t, cluster.Admin, plan, harness.Etcd2, "(bundle/approval-window)")
	e.Edit(t, p, fmt.Sprintf(`{"spec":{"freezes":[{"start":"2026-01-01T00:00:00Z","end":%q}]}}`,
		after(speed.Scale(5*time.Second))))
	e.WaitForCSV(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))
	next := e.WaitForPlan(t, namespace, harness.Etcd4)
	e.WantApprovalRefused(t, cluster.Admin, next, harness.Etcd4, "(bundle/version)")

	// An exception lets the next version in, by the loop, and in the API server that holds the policies by itself.
	exception := func(expires string) string {
		return fmt.Sprintf(`{"spec":{"exceptions":[{"versions":[%q],"rules":["bundle/version"],"reason":"CVE-2026-1234","expires":%q}]}}`,
			harness.Etcd4, expires)
	}
	e.Edit(t, p, exception(after(time.Hour)))
	e.WaitForCSV(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4),
		wantCondition("ExceptionsInForce=True ExceptionEndsSoon", harness.Etcd4))

	// It ends. What is installed stays, and is not allowed any more.
	e.Edit(t, p, exception(after(speed.Scale(5*time.Second))))
	waitForPolicy(t, e, p, is(nonCompliant), has(harness.Etcd4),
		wantCondition("ExceptionsInForce=False ExceptionEnded", harness.Etcd4),
		wantCondition("ClusterServiceVersionCompliant=False UnapprovedVersion"))
}
