package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/rights"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// TestG25LeastPrivilege makes Opgate do all that it does at admission and looks at what it asked the API server for.
func TestG25LeastPrivilege(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	plan := e.Put(t, harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion))
	e.Sync(t)
	// An override is what it asks the authorizer about.
	e.Patch(t, cluster.Admin, plan,
		`{"metadata":{"annotations":{"opgate.io/override-reason":"a test"}},"spec":{"approved":true}}`)
	// Where a policy leaves open which namespace it is about, the package may suggest one.
	open := harness.OperatorPolicy(namespace)
	open.SetName(namespace + "-open")
	unstructured.RemoveNestedField(open.Object, "spec", "subscription", "namespace")
	e.Put(t, open)

	admission, err := cluster.AdmissionRules()
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.OpgateRules()
	if err != nil {
		t.Fatal(err)
	}
	var requests []cluster.Request
	harness.Eventually(t, "see all rights used", func(context.Context) (err error) {
		if requests, err = e.OpgateRequests(time.Time{}, time.Time{}); err != nil {
			return err
		}
		if unused := rights.Unused(needed(requests), admission...); len(unused) > 0 {
			return fmt.Errorf("unused are %v", unused)
		}
		return nil
	})
	if err := rights.Excess(requests, harness.GivenGroups, all...); err != nil {
		t.Error(err)
	}
}

// needed returns the rights that requests need.
func needed(requests []cluster.Request) []rights.Right {
	var all []rights.Right
	for _, r := range requests {
		all = append(all, rights.For(r))
	}
	return all
}

// TestAuditAnnotations looks for the gate's reasons in the API server's audit log, where they outlast the gate's own
// log.
func TestAuditAnnotations(t *testing.T) {
	e := harness.SharedWithoutBackstop(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	plan := e.Put(t, harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion))
	e.Sync(t)

	patch := func(user cluster.User, body string) {
		t.Helper()
		_, err := e.Kubectl(t.Context(), user, "", "patch", "installplan", "-n", namespace, plan.GetName(),
			"--type=merge", "--patch", body)
		if err != nil {
			t.Fatal(err)
		}
	}
	source := "OperatorPolicy policies/" + namespace
	wantAudit(t, e, plan.GetName(), "tenant", func() { patch(cluster.Tenant, `{"spec":{"approved":true}}`) },
		map[string]string{
			"installplans.opgate.io/decision":   "Deny",
			"installplans.opgate.io/refused-by": "bundle/version " + source,
		})
	wantAudit(t, e, plan.GetName(), "admin", func() {
		patch(cluster.Admin, `{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	}, map[string]string{
		"installplans.opgate.io/decision":  "Allow",
		"installplans.opgate.io/warned-by": "plan/override " + source,
		"installplans.opgate.io/override": `overridden with reason "ticket 77" (plan/override): ` +
			harness.ForbiddenCSV + " is not allowed by " + source +
			" (bundle/version): allowed is " + harness.AllowedCSV,
	})
	wantAudit(t, e, "automatic", "tenant", func() {
		_, err := e.Kubectl(t.Context(), cluster.Tenant,
			harness.AsJSON(t, harness.Subscription(namespace, "automatic", harness.GoodCatalog, "Automatic")), "create",
			"-f", "-")
		if err != nil {
			t.Fatal(err)
		}
	}, map[string]string{"subscriptions.opgate.io/decision": "Allow"})
}

// TestOverridesInAuditLog plays, for each rule by which refusals are set aside, a scenario in which that happens: the
// reason is in the API server's audit log.
func TestOverridesInAuditLog(t *testing.T) {
	e := harness.Shared(t)
	scenarios := scenariotest.Load(t, "../scenarios", scenario.Versions{
		Kubernetes: kubernetesVersion(t, e), OpenShift: harness.OpenShiftVersion})
	if err := e.InstallOLMv1(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.Rules() {
		if !rule.SetsAside {
			continue
		}
		at := slices.IndexFunc(scenarios, func(s *scenario.Scenario) bool {
			return s.Decision == verdict.Allow.String() && slices.Contains(s.Rules, rule.ID) && s.Catalog == nil
		})
		if at < 0 {
			t.Errorf("no scenario sets a refusal aside by %s", rule.ID)
			continue
		}
		before, err := harness.ReadAudit(e.AuditLog())
		if err != nil {
			t.Fatal(err)
		}
		playAll(t, e, scenarios[at:at+1], withBackstop)
		events, err := harness.ReadAudit(e.AuditLog())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events[len(before):], func(event harness.AuditEvent) bool {
			return slices.ContainsFunc(slices.Collect(maps.Keys(event.Annotations)), func(key string) bool {
				return strings.HasSuffix(key, ".opgate.io/override") &&
					strings.Contains(event.Annotations[key], "("+string(rule.ID)+")")
			})
		}) {
			t.Errorf("the audit log has no reason of %s", rule.ID)
		}
	}
}

// wantAudit makes a write and wants that annotations of the gate come with its event, these and no others.
func wantAudit(t *testing.T, e *harness.Env, name, user string, write func(), want map[string]string) {
	t.Helper()
	before, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	write()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	found := false
	for _, event := range events[len(before):] {
		// The name of a new object is in its body, which the log does not have.
		ours := event.ObjectRef.Name == name || event.ObjectRef.Name == "" && event.Verb == "create"
		if event.User.Username != user || !ours || event.Stage != "ResponseComplete" {
			continue
		}
		found = true
		for key, value := range event.Annotations {
			if strings.Contains(key, ".opgate.io/") {
				got[key] = value
			}
		}
	}
	if !found {
		t.Errorf("the audit log has no write of %s by %s", name, user)
	}
	for key := range got {
		if got[key] != want[key] {
			t.Errorf("annotation %s is %q, want %q", key, got[key], want[key])
		}
	}
	for key := range want {
		if _, ok := got[key]; !ok {
			t.Errorf("there is no annotation %s; there are %v", key, got)
		}
	}
}
