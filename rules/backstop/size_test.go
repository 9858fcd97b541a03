package backstop_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// crowd returns a policy for each of some namespaces, with the few lists that templates of policies make.
func crowd(n int) []*operatorpolicy.Policy {
	policies := make([]*operatorpolicy.Policy, n)
	for i := range policies {
		namespace := fmt.Sprintf("tenant-%05d", i)
		policies[i] = policy("etcd-"+namespace, namespace, "etcd",
			versions("etcdoperator.v0.9.2", fmt.Sprintf("etcdoperator.v0.9.%d", 4+i%7)))
	}
	return policies
}

// TestTenThousandNamespaces: the table stays in one object, the API server compiles it, and the first and the last
// namespace are held.
func TestTenThousandNamespaces(t *testing.T) {
	policies := crowd(10_000)
	o := compile(backstop.Input{Features: everything, Policies: policies})
	for kind, object := range map[string]any{"ValidatingAdmissionPolicy": o.Validating,
		"MutatingAdmissionPolicy": o.Mutating} {
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the %s has %d bytes", kind, len(raw))
	}
	s := newAPIServer(t, o)
	for _, namespace := range []string{"tenant-00000", "tenant-04999", "tenant-05000", "tenant-09999"} {
		if got := s.judge(t, approval(namespace, "etcdoperator.v0.9.99")); len(got.refused) != 1 ||
			len(got.failed) > 0 {
			t.Errorf("%s: %+v, want a refusal", namespace, got)
		}
		if got := s.judge(t, approval(namespace, "etcdoperator.v0.9.2")); len(got.refused) != 0 || len(got.failed) > 0 {
			t.Errorf("%s: %+v, want none", namespace, got)
		}
	}
	if got := s.judge(t, approval("tenant-10000", "etcdoperator.v0.9.99")); len(got.refused) != 0 ||
		len(got.failed) > 0 {
		t.Errorf("a namespace without policies: %+v", got)
	}
	slices.Reverse(policies)
	again := compile(backstop.Input{Features: everything, Policies: policies})
	if compact(again) != compact(o) {
		t.Error("the order of policies changes the objects")
	}
}

// approval is one, by alice, of a plan for one version of etcd.
func approval(namespace, csv string) write {
	properties := `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}`
	plan := func(approved bool) object {
		return object{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
			"metadata": object{"namespace": namespace, "name": "install-x"},
			"spec":     object{"approval": "Manual", "approved": approved, "clusterServiceVersionNames": []any{csv}},
			"status": object{"phase": olm.PhaseRequiresApproval,
				"bundleLookups": []any{object{"identifier": csv, "path": "p", "replaces": "",
					"catalogSourceRef": object{"namespace": "olm", "name": "good"}, "properties": properties}}}}
	}
	return write{resource: "installplans", user: "alice", object: plan(true), old: plan(false)}
}

// BenchmarkApproval is what the API server spends on an approval, with one policy in each of some namespaces.
func BenchmarkApproval(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := under(b, crowd(n)...)
			w := approval("tenant-00000", "etcdoperator.v0.9.2")
			for b.Loop() {
				if got := s.judge(b, w); len(got.refused)+len(got.failed) > 0 {
					b.Fatal(got)
				}
			}
		})
	}
}

// BenchmarkChange is what the API server spends on an edit of a policy: on the check of the edited objects, and as much
// again to put them into use.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		o := compile(backstop.Input{Features: everything, Policies: crowd(n)})
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				newAPIServer(b, o)
			}
		})
	}
}
