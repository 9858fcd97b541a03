package e2e

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
)

// phases are those that OLM knows, "" for a plan that has none yet.
var phases = []string{"", "Planning", "RequiresApproval", "Installing", "Complete", "Failed"}

// withPhase is a plan that OLM has brought to a phase.
func withPhase(u *unstructured.Unstructured, phase string, approved bool) *unstructured.Unstructured {
	u.Object["spec"].(map[string]any)["approved"] = approved
	u.Object["status"].(map[string]any)["phase"] = phase
	return u
}

// TestO1PhaseEdges moves plans from every phase to every other as somebody who is not OLM. OLM runs what is in phase
// Installing and looks no further.
func TestO1PhaseEdges(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	type edge struct{ from, to string }
	all := map[string][]edge{}
	for _, state := range []struct {
		name, version string
		approved      bool
	}{
		{"forbidden", forbiddenVersion, false},
		{"slipped", forbiddenVersion, true}, // approved before there was a policy
		{"unapproved", allowedVersion, false},
		{"approved", allowedVersion, true},
	} {
		for _, from := range phases {
			name := state.name + "-" + strings.ToLower(from) + "x"
			e.put(t, withPhase(plan(namespace, name, state.version), from, state.approved))
		}
	}
	e.put(t, policy(namespace))
	e.sync(t)
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		for _, state := range []string{"forbidden", "slipped", "unapproved", "approved"} {
			for _, from := range phases {
				for _, to := range phases {
					if from == to {
						continue
					}
					u := plan(namespace, state+"-"+strings.ToLower(from)+"x", "")
					got := e.tryPhase(t, user, u, to)
					switch {
					case got.ok():
						all[state] = append(all[state], edge{from, to})
					case got.refused == "":
						t.Errorf("%s moves the %s plan from %q to %q: never reached the gate: %s", user, state, from, to, got)
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

// tryPhase is a dry run, so that the plan stays as it is; TestG7Bypass shows that a dry run is judged like the real thing.
func (e *env) tryPhase(t *testing.T, user cluster.User, u *unstructured.Unstructured, phase string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase}})
	if err != nil {
		t.Fatal(err)
	}
	return e.clients[user].must(t, request{
		method: http.MethodPatch, path: pathOf(installPlans, u.GetNamespace(), u.GetName(), "status"),
		query: map[string][]string{"dryRun": {"All"}}, contentType: "application/merge-patch+json", body: body,
	})
}

// TestO2FrozenContents changes one byte of what a plan will write. What was judged is what is installed.
func TestO2FrozenContents(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	for _, phase := range []string{"RequiresApproval", "Installing"} {
		for name, change := range map[string]func(status map[string]any){
			"manifest": func(status map[string]any) {
				resource := status["plan"].([]any)[0].(map[string]any)["resource"].(map[string]any)
				resource["manifest"] = strings.Replace(resource["manifest"].(string), "etcd", "Etcd", 1)
			},
			"bundle": func(status map[string]any) {
				bundle := status["bundleLookups"].([]any)[0].(map[string]any)
				bundle["path"] = strings.Replace(bundle["path"].(string), "example", "fxample", 1)
			},
			"step that seems to be written": func(status map[string]any) {
				status["plan"].([]any)[0].(map[string]any)["status"] = "Present"
			},
			"another step": func(status map[string]any) {
				status["plan"] = append(status["plan"].([]any), status["plan"].([]any)[0])
			},
		} {
			t.Run(phase+" "+name, func(t *testing.T) {
				stored := e.put(t, plan(namespace, "contents", allowedVersion))
				stored.Object["spec"].(map[string]any)["approved"] = true
				stored, err := e.clients[cluster.Admin].of(stored).Update(t.Context(), stored, metav1.UpdateOptions{})
				if err != nil {
					t.Fatalf("an allowed plan is not approved: %v", err)
				}
				stored.Object["status"].(map[string]any)["phase"] = phase
				stored, err = e.clients[cluster.OLM].of(stored).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				change(stored.Object["status"].(map[string]any))
				for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
					refused(t, e.Cluster, user, asJSON(t, stored), []string{"replace", "--subresource=status", "-f", "-"}, deniedBy, "(plan/frozen)")
				}
				kubectl(t, e.Cluster, cluster.OLM, asJSON(t, stored), "replace", "--subresource=status", "-f", "-")
			})
		}
	}
}

// TestO4PlansByOLM lets OLM write a plan that is forbidden: refusing it would stall the namespace. It stays unapproved, also
// when OLM itself would approve it.
func TestO4PlansByOLM(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	u := plan(namespace, "by-olm", forbiddenVersion)
	t.Cleanup(func() { e.remove(t, u) })
	kubectl(t, e.Cluster, cluster.OLM, asJSON(t, u), "create", "-f", "-")
	status := u.DeepCopy()
	status.SetResourceVersion(e.stored(t, u).GetResourceVersion())
	kubectl(t, e.Cluster, cluster.OLM, asJSON(t, status), "replace", "--subresource=status", "-f", "-")
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
		refused(t, e.Cluster, user, "", []string{"patch", "installplan", "-n", namespace, "by-olm", "--type=merge", "--patch", `{"spec":{"approved":true}}`},
			deniedBy, forbiddenCSV, "(plan/version)")
	}
	if approved, _, _ := unstructured.NestedBool(e.stored(t, u).Object, "spec", "approved"); approved {
		t.Error("the plan is approved")
	}

	// With kubectl alone: delete, and create anew, as "replace --force" does.
	approved := withPhase(plan(namespace, "by-olm", forbiddenVersion), "RequiresApproval", true)
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, approved), []string{"replace", "--force", "-f", "-"}, deniedBy, "(plan/create)")
	if stored := e.stored(t, u); stored != nil {
		t.Errorf("there is a plan again: %v", stored)
	}
}

// TestO2PhaseAfterWithdrawal approves a plan, forbids it, and tries to start it.
func TestO2PhaseAfterWithdrawal(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	p := e.put(t, policy(namespace))
	e.sync(t)
	u := e.put(t, plan(namespace, "withdrawn", allowedVersion))
	kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "installplan", "-n", namespace, "withdrawn", "--type=merge", "--patch", `{"spec":{"approved":true}}`)
	kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", "-n", p.GetNamespace(), p.GetName(), "--type=merge", "--patch", `{"spec":{"versions":["etcdoperator.v0.9.1"]}}`)
	e.sync(t)
	if got := e.tryPhase(t, cluster.Tenant, u, "Installing"); !strings.Contains(got.refused, "(plan/version)") {
		t.Errorf("the tenant starts a plan that is no longer allowed: %s", got)
	}
}
