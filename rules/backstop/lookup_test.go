package backstop_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
)

// TestTable checks on generated policies, plans and Subscriptions that the table answers as the expressions do.
func TestTable(t *testing.T) {
	const worlds, writes = 20, 60
	held := map[bool]int{}
	for seed := range worlds {
		w := &world{Rand: rand.New(rand.NewPCG(18, uint64(seed)))}
		w.addPolicies()
		in := backstop.Input{Features: everything, Policies: w.policies, ApprovalMode: pick(w, rules.MutateApproval, rules.DenyApproval)}
		in.Features.Semver, in.Features.MutatingAdmissionPolicy = w.chance(80), w.chance(80)
		s, table := newAPIServer(t, compile(in)), backstop.NewTable(in)
		for range writes {
			namespace := w.namespace()
			c := &judgedWrite{}
			var got bool
			if w.chance(70) {
				old, _ := w.plan(namespace)
				old["spec"].(object)["approved"] = false
				plan := clone(t, old)
				plan["spec"].(object)["approved"] = true
				c.write = write{resource: "installplans", user: "alice", object: plan, old: old}
				got = table.HoldsApproval(planOf(t, old))
			} else {
				w.writeSubscription(t, namespace, c)
				c.user, c.old = "alice", nil
				got = table.HoldsSubscription(subscriptionOf(t, c.object.(object)))
				c.object.(object)["spec"].(object)["installPlanApproval"] = s.mutate(t, c.write)
			}
			want := len(s.judge(t, c.write).refused) > 0
			held[want]++
			if got != want {
				t.Errorf("%s\nthe table holds it: %t, the API server: %t", c.describe(w), got, want)
			}
		}
	}
	t.Logf("%d held, %d not", held[true], held[false])
	if min(held[true], held[false]) < worlds*writes/10 {
		t.Errorf("%d writes are held, so hardly anything was tested", held[true])
	}
}

// TestTableOfSteps: the package of a step is read from its manifest as the API server reads it.
func TestTableOfSteps(t *testing.T) {
	in := backstop.Input{Features: everything, Policies: []*rules.OperatorPolicy{policy("etcd", "shop", "etcd", versions("etcd.v1"))}}
	s, table := newAPIServer(t, compile(in)), backstop.NewTable(in)
	const compactly = `{"metadata":{"annotations":{"operatorframework.io/properties":` +
		`"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"2.0.0\"}}]}"}}}`
	for name, c := range map[string]struct {
		manifest string
		held     bool
	}{
		"compact":     {compactly, true},
		"other":       {`{"metadata":{}}`, false},
		"none":        {"", false},
		"white space": {`{"metadata": {"annotations": {"operatorframework.io/properties": "{\"properties\": []}"}}}`, false},
		"elsewhere": {`{"metadata":{"annotations":{"operatorframework.io/properties":"{}","x":` +
			`"{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\"}}"}}}`, false},
	} {
		w := approval("shop", "etcd.v2")
		w.old.(object)["status"] = object{"phase": olm.PhaseRequiresApproval, "plan": []any{object{"resolving": "etcd.v2", "status": "Unknown",
			"resource": object{"kind": "ClusterServiceVersion", "name": "etcd.v2", "manifest": c.manifest}}}}
		w.object.(object)["status"] = w.old.(object)["status"]
		refused := s.judge(t, w).refused
		if got := table.HoldsApproval(planOf(t, w.old.(object))); got != c.held || got != (len(refused) > 0) {
			t.Errorf("%s: the table holds it: %t, the API server says %q, want %t", name, got, refused, c.held)
		}
	}
}

// BenchmarkTable is what a look-up costs with one policy in each of some namespaces.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := backstop.NewTable(backstop.Input{Features: everything, Policies: crowd(n)})
			plan := planOf(b, approval("tenant-00000", "etcdoperator.v0.9.99").old.(object))
			for b.Loop() {
				if !table.HoldsApproval(plan) {
					b.Fatal("it is not held")
				}
			}
		})
	}
}
