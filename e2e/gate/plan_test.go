package gate

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// phases are those that OLM knows, "" for a plan that has none yet.
var phases = []string{"", "Planning", "RequiresApproval", "Installing", "Complete", "Failed"}

// withPhase is a plan that OLM has brought to a phase.
func withPhase(u *unstructured.Unstructured, phase string, approved bool) *unstructured.Unstructured {
	u.Object["spec"].(map[string]any)["approved"] = approved
	u.Object["status"].(map[string]any)["phase"] = phase
	return u
}

// TestO1PhaseEdges moves plans from every phase to every other as users who are not OLM, in turn. OLM runs what is in
// phase Installing and checks nothing else.
func TestO1PhaseEdges(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	type edge struct{ from, to string }
	all := map[string][]edge{}
	for _, state := range []struct {
		name, version string
		approved      bool
	}{
		{name: "forbidden", version: harness.ForbiddenVersion},
		{name: "slipped", version: harness.ForbiddenVersion, approved: true}, // approved before there was a policy
		{name: "unapproved", version: harness.AllowedVersion},
		{name: "approved", version: harness.AllowedVersion, approved: true},
	} {
		for _, from := range phases {
			name := state.name + "-" + strings.ToLower(from) + "x"
			e.Put(t, withPhase(harness.InstallPlan(namespace, name, state.version), from, state.approved))
		}
	}
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	users := []cluster.User{cluster.Tenant, cluster.Admin}
	for i, state := range []string{"forbidden", "slipped", "unapproved", "approved"} {
		for j, from := range phases {
			for k, to := range phases {
				for l, user := range users {
					if from == to || (i+j+k)%2 != l && state != "approved" {
						continue
					}
					u := harness.InstallPlan(namespace, state+"-"+strings.ToLower(from)+"x", "")
					got := tryPhase(t, e, user, u, to)
					switch {
					case got.OK():
						all[state] = append(all[state], edge{from, to})
					case got.Refused == "":
						t.Errorf("%s moves the %s plan from %q to %q: never reached the gate: %s", user, state, from,
							to, got)
					}
				}
			}
		}
	}
	// One edge is open, to the tenant and to the admin: what OLM would do itself on account of spec.approved.
	open := edge{"RequiresApproval", "Installing"}
	want := map[string][]edge{"approved": {open, open}}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("edges that were let through are %v, want %v", all, want)
	}
}

// tryPhase is a dry run, so that the plan stays as it is; TestG7Bypass shows that a dry run is judged like the real
// thing.
func tryPhase(
	t *testing.T, e *harness.Env, user cluster.User, u *unstructured.Unstructured, phase string,
) harness.Answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase}})
	if err != nil {
		t.Fatal(err)
	}
	return e.Clients[user].Must(t, harness.Request{
		Method: http.MethodPatch, Path: harness.PathOf(harness.InstallPlans, u.GetNamespace(), u.GetName(), "status"),
		Query: map[string][]string{"dryRun": {"All"}}, ContentType: "application/merge-patch+json", Body: body,
	})
}

// TestO2FrozenContents changes one byte of what a plan will write. What was judged is what is installed.
func TestO2FrozenContents(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	for _, test := range []struct {
		name, phase string
		user        cluster.User
		change      func(status map[string]any)
	}{
		{"manifest", "RequiresApproval", cluster.Tenant, func(status map[string]any) {
			resource := status["plan"].([]any)[0].(map[string]any)["resource"].(map[string]any)
			resource["manifest"] = strings.Replace(resource["manifest"].(string), "etcd", "Etcd", 1)
		}},
		{"bundle", "Installing", cluster.Admin, func(status map[string]any) {
			bundle := status["bundleLookups"].([]any)[0].(map[string]any)
			bundle["path"] = strings.Replace(bundle["path"].(string), "example", "fxample", 1)
		}},
		{"step that seems to be written", "Installing", cluster.Tenant, func(status map[string]any) {
			status["plan"].([]any)[0].(map[string]any)["status"] = "Present"
		}},
		{"another step", "RequiresApproval", cluster.Admin, func(status map[string]any) {
			status["plan"] = append(status["plan"].([]any), status["plan"].([]any)[0])
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := e.Put(t, harness.InstallPlan(namespace, "contents", harness.AllowedVersion))
			stored.Object["spec"].(map[string]any)["approved"] = true
			stored, err := e.Clients[cluster.Admin].Of(stored).Update(t.Context(), stored, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("an allowed plan is not approved: %v", err)
			}
			stored.Object["status"].(map[string]any)["phase"] = test.phase
			stored, err = e.Clients[cluster.OLM].Of(stored).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			test.change(stored.Object["status"].(map[string]any))
			replace := []string{"replace", "--subresource=status", "-f", "-"}
			harness.WantRefused(t, e.Cluster, test.user, harness.AsJSON(t, stored), replace, harness.HeldBy,
				"(plan/frozen)")
			harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, stored), replace...)
		})
	}
}

// TestO4PlansByOLM lets OLM write a plan that is forbidden: refusing it would stall the namespace. It stays unapproved,
// also when OLM itself would approve it.
func TestO4PlansByOLM(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	u := harness.InstallPlan(namespace, "by-olm", harness.ForbiddenVersion)
	t.Cleanup(func() { e.Remove(t, u) })
	e.CreateAs(t, cluster.OLM, u)
	status := u.DeepCopy()
	status.SetResourceVersion(e.Stored(t, u).GetResourceVersion())
	harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, status), "replace", "--subresource=status", "-f", "-")
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
		harness.WantRefused(t, e.Cluster, user, "",
			[]string{"patch", "installplan", "-n", namespace, "by-olm", "--type=merge", "--patch",
				`{"spec":{"approved":true}}`},
			harness.HeldBy, harness.ForbiddenCSV, "(bundle/version)")
	}
	if approved, _, _ := unstructured.NestedBool(e.Stored(t, u).Object, "spec", "approved"); approved {
		t.Error("the plan is approved")
	}

	// With kubectl alone: delete, and create anew, as "replace --force" does.
	approved := withPhase(harness.InstallPlan(namespace, "by-olm", harness.ForbiddenVersion), "RequiresApproval", true)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, approved),
		[]string{"replace", "--force", "-f", "-"}, harness.HeldBy, "(plan/create)")
	if stored := e.Stored(t, u); stored != nil {
		t.Errorf("there is a plan again: %v", stored)
	}
}

// TestO2PhaseAfterWithdrawal approves a plan, forbids it, and tries to start it.
func TestO2PhaseAfterWithdrawal(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	p := e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	u := e.Put(t, harness.InstallPlan(namespace, "withdrawn", harness.AllowedVersion))
	e.Patch(t, cluster.Tenant, harness.Named("InstallPlan", namespace, "withdrawn"), `{"spec":{"approved":true}}`)
	e.Edit(t, p, `{"spec":{"versions":["etcdoperator.v0.9.1"]}}`)
	e.Sync(t)
	if got := tryPhase(t, e, cluster.Tenant, u, "Installing"); !strings.Contains(got.Refused, "(bundle/version)") {
		t.Errorf("the tenant starts a plan that is no longer allowed: %s", got)
	}
}
