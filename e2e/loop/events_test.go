package loop

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// events checks the events on what Opgate decides about, as kubectl shows them, and what they cost by the audit log.
func events(t *testing.T, e *harness.LoopEnv) {
	// Refusals of the backstop leave no event.
	e.Restart(t, cluster.GateOptions{Loop: true, SecureMetrics: true, WithoutBackstop: true})
	defer e.Restart(t, cluster.GateOptions{Loop: true, SecureMetrics: true})
	t.Run("describe explains a hold", func(t *testing.T) { describedHold(t, e) })
	t.Run("one request for each verdict, and none at rest", func(t *testing.T) { eventRequests(t, e) })
	t.Run("refused writes of other kinds", func(t *testing.T) { deniedWrites(t, e) })
	t.Run("an override", func(t *testing.T) { overrideEvent(t, e) })
	t.Run("a Constraint lists its violators", func(t *testing.T) { violatorsListed(t, e) })
	t.Run("the next replica repeats nothing", func(t *testing.T) { nextReplica(t, e) })
}

// describedHold compares what kubectl describe prints with the document.
func describedHold(t *testing.T, e *harness.LoopEnv) {
	p := harness.OperatorPolicy(cluster.ShopNamespace)
	p.SetName("etcd")
	e.Write(t, p)
	e.Propose(t, cluster.ShopNamespace, "install-x7", harness.ForbiddenVersion)
	waitForEvents(t, e, cluster.ShopNamespace, "installplan", "install-x7", "Warning Held opgate ")
	command, want, _ := strings.Cut(strings.TrimPrefix(block(t, document(t, "docs/operatorpolicy.md"),
		"$ kubectl describe installplan"), "$ "), "\n")
	_, want, _ = strings.Cut(want, "Events:\n")
	got := terminal(t, e.Cluster, command)
	_, events, _ := strings.Cut(got, "Events:\n")
	if diff := cmp.Diff(withoutAges(want), withoutAges(events)); diff != "" {
		t.Errorf("%s does not print what the document shows:\n%s", command, diff)
	}
}

// withoutAges returns the lines of a table of events, with single blanks and without ages.
func withoutAges(table string) (lines []string) {
	for line := range strings.Lines(strings.TrimSpace(table)) {
		fields := slices.Concat(strings.Fields(line), make([]string, 3))
		fields[2] = "age"
		if strings.HasPrefix(fields[0], "--") {
			continue // as long as the longest
		}
		lines = append(lines, strings.TrimSpace(strings.Join(fields, " ")))
	}
	return lines
}

// eventRequests counts the requests for events on one plan, whatever else is written meanwhile.
func eventRequests(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	p := harness.OperatorPolicy(namespace)
	from := time.Now()
	e.Write(t, p)
	e.Propose(t, namespace, "install-1", harness.ForbiddenVersion)
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held opgate "+harness.ForbiddenCSV+
		" is not allowed by OperatorPolicy policies/"+
		namespace+" (bundle/version): allowed is "+harness.AllowedCSV)

	approve := []string{"patch", "installplan", "install-1", "-n", namespace, "--type=merge", "--patch",
		`{"spec":{"approved":true}}`}
	for i := range 10 {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", approve, "(bundle/version)")
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", append(approve, "--dry-run=server"), "(bundle/version)")
		for _, u := range []*unstructured.Unstructured{harness.InstallPlan(namespace, "install-1",
			harness.ForbiddenVersion), harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")} {
			touch := fmt.Sprintf(`{"metadata":{"labels":{"touched":"n%d"}}}`, i)
			if err := e.Admin.Patch(t.Context(), u,
				crclient.RawPatch("application/merge-patch+json", []byte(touch))); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ",
		"Warning Denied opgate "+harness.ForbiddenCSV+" is not allowed ")
	rests(t, e, namespace)
	wantEventRequests(t, e, namespace, from, 2)

	edit := fmt.Appendf(nil, `{"spec":{"versions":[%q,%q]}}`, harness.AllowedCSV, harness.ForbiddenCSV)
	if err := e.Admin.Patch(t.Context(), p, crclient.RawPatch("application/merge-patch+json", edit)); err != nil {
		t.Fatal(err)
	}
	e.WaitApproved(t, namespace, "install-1")
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ", "Warning Denied ",
		"Normal Approved opgate "+harness.ForbiddenCSV+" is allowed by OperatorPolicy policies/"+namespace)
	rests(t, e, namespace)
	wantEventRequests(t, e, namespace, from, 3)

	resting := time.Now()
	waiting := time.NewTimer(speed.Scale(restFor))
	select {
	case <-waiting.C:
	case <-e.Gate.Exited():
		t.Fatal("opgate has ended")
	}
	asked := requests(t, e, resting,
		func(r cluster.Request) bool { return isEvent(r) || r.Object.Namespace == namespace })
	if len(asked) > 0 {
		t.Errorf("at rest opgate made %d requests: %v", len(asked), asked)
	}
}

// deniedWrites refuses changes of a Subscription and of an OperatorPolicy, and the creation of another Subscription.
func deniedWrites(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, namespace, "install-1")
	waitForEvents(t, e, namespace, "installplan", "install-1", "Normal Approved ") // it is sent after the approval
	from := time.Now()
	for range 2 {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", "subscriptions.operators.coreos.com", "etcd", "-n", namespace, "--type=merge",
				"--patch", `{"spec":{"source":"` + harness.ForeignCatalog + `"}}`}, "(subscription/catalog)")
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", "operatorpolicy", namespace, "-n", cluster.PolicyNamespace, "--type=merge",
				"--patch", `{"spec":{"versionRange":"\u001b[31mred"}}`}, "(operatorpolicy/field)")
		harness.WantRefused(t, e.Cluster, cluster.Admin,
			harness.Normal(harness.Subscription(namespace, "other", harness.ForeignCatalog, "Manual").Object),
			[]string{"create", "-f", "-"}, "(subscription/catalog)")
	}
	waitForEvents(t, e, namespace, "subscriptions.operators.coreos.com", "etcd", `Warning Denied opgate `)
	waitForEvents(t, e, cluster.PolicyNamespace, "operatorpolicy", namespace, `Warning Denied opgate `)
	described := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "describe", "operatorpolicy", namespace, "-n",
		cluster.PolicyNamespace)
	harness.WantTexts(t, described, "(operatorpolicy/field)")
	if strings.Contains(described, "\x1b") {
		t.Errorf("what a user wrote reaches the terminal: %q", described)
	}
	wantEventRequests(t, e, namespace, from, 1)
}

// overrideEvent approves a plan that is refused.
func overrideEvent(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.ForbiddenVersion)
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "install-1", "-n", namespace,
		"--type=merge", "--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"CVE-2026-1234"}},"spec":{"approved":true}}`)
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ",
		`Warning Overridden opgate by user "admin": overridden with reason "CVE-2026-1234" (plan/override): `+
			harness.ForbiddenCSV+" is not allowed by OperatorPolicy policies/"+namespace+" (bundle/version): allowed is "+
			harness.AllowedCSV)
}

// violatorsListed has an installed operator that a later Constraint refuses.
func violatorsListed(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: vault.v0.1.9
  namespace: %s
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"vault","version":"0.1.9"}}]}'}
spec: {displayName: vault, install: {strategy: deployment, spec: {deployments: []}}}
`, namespace))
	constraint := harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: no-vault}
spec:
  constraints: '[{"type": "olm.constraint", "value": {"rule": "packageName != \"vault\"", "message": "vault is retired", "action": {"id": "require"}}}]'
`)
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.Normal(constraint.Object), "create", "-f", "-")
	t.Cleanup(func() {
		// only tidies up
		_, _ = e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "constraint", "no-vault")
	})
	pattern := regexp.MustCompile(
		`(?s)Violating: +1\n +Violators:\n +Cluster Service Version: +vault.v0.1.9\n +Message: +vault is retired \(it must satisfy packageName != "vault"\)\n +Namespace: +` + namespace + `\n`)
	harness.Eventually(t, "see the violator", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "describe", "constraint", "no-vault")
		if err == nil && !pattern.MatchString(result.Stdout) {
			err = fmt.Errorf("kubectl describe prints\n%s", result.Stdout)
		}
		return err
	})
	from := time.Now()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", "clusterserviceversion", "vault.v0.1.9", "-n", namespace,
		"touched=yes")
	e.Write(t, harness.OperatorPolicy(namespace))
	rests(t, e, namespace)
	if written := requests(t, e, from,
		func(r cluster.Request) bool { return isWrite(r) && r.Object.Resource == "constraints" }); len(written) > 0 {
		t.Errorf("the status was written %d times although nothing in it has changed", len(written))
	}
}

// nextReplica has another replica report a hold that was reported: it asks once, and adds no event.
func nextReplica(t *testing.T, e *harness.LoopEnv) {
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.Propose(t, namespace, "install-1", harness.ForbiddenVersion)
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ")
	from := time.Now()
	e.Restart(t, cluster.GateOptions{Loop: true, SecureMetrics: true, WithoutBackstop: true})
	within(t, leaseTimeout, "see the next replica ask", func(context.Context) error {
		if len(requests(t, e, from,
			func(r cluster.Request) bool { return isEvent(r) && r.Object.Namespace == namespace })) == 0 {
			return fmt.Errorf("it has not asked")
		}
		return nil
	})
	rests(t, e, namespace)
	asked := wantEventRequests(t, e, namespace, from, 1)
	for _, r := range asked {
		if r.Response.Code != http.StatusConflict {
			t.Errorf("%s was answered %d, want %d", r.URI, r.Response.Code, http.StatusConflict)
		}
	}
	waitForEvents(t, e, namespace, "installplan", "install-1", "Warning Held ")
}

func isEvent(r cluster.Request) bool {
	return r.Object.Resource == "events" && r.Object.Group == "events.k8s.io"
}

// wantEventRequests counts the requests for events in a namespace.
func wantEventRequests(t *testing.T, e *harness.LoopEnv, namespace string, from time.Time, want int) []cluster.Request {
	t.Helper()
	asked := requests(t, e, from, func(r cluster.Request) bool { return isEvent(r) && r.Object.Namespace == namespace })
	if len(asked) != want {
		t.Errorf("there were %d requests for events, want %d: %v", len(asked), want, asked)
	}
	return asked
}

// waitForEvents waits until kubectl describe shows exactly these events on an object: the beginnings of "TYPE REASON
// FROM MESSAGE", in any order.
func waitForEvents(t testing.TB, e *harness.LoopEnv, namespace, kind, name string, want ...string) {
	t.Helper()
	harness.Eventually(t, "see the events of "+kind+" "+name, func(ctx context.Context) error {
		lines, err := eventsOf(ctx, e.Env, namespace, kind, name)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(begins string) bool {
			return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begins) })
		})
		if len(missing) > 0 || len(lines) != len(want) {
			return fmt.Errorf("there are\n%s\nwant %d events, missing are %q", strings.Join(lines, "\n"), len(want),
				missing)
		}
		return nil
	})
}

// eventsOf returns the events that kubectl describe shows on an object, as "TYPE REASON FROM MESSAGE".
func eventsOf(ctx context.Context, e *harness.Env, namespace, kind, name string) (lines []string, err error) {
	result, err := e.Kubectl(ctx, cluster.Admin, "", "describe", kind, name, "-n", namespace)
	if err != nil {
		return nil, err
	}
	_, table, _ := strings.Cut(result.Stdout, "\nEvents:")
	for _, line := range withoutAges(table) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[0] != "Type" {
			lines = append(lines, strings.Join(slices.Delete(fields, 2, 3), " "))
		}
	}
	return lines, nil
}
