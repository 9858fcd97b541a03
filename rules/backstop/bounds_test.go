package backstop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// long returns some names that are as long as names may be.
func long(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("etcd.v%d-%s", i, strings.Repeat("x", 240))
	}
	return names
}

// TestBounds: policies that the API server could not evaluate are left to the webhooks and reported, and all others
// hold.
func TestBounds(t *testing.T) {
	small := policy("first", "shop", "etcd", versions("etcd.v1"))
	many := func(n int, names func(i int) []string) []*operatorpolicy.Policy {
		policies := []*operatorpolicy.Policy{small}
		for i := range n {
			policies = append(policies, policy(fmt.Sprintf("many-%03d", i), "shop", fmt.Sprintf("other-%03d", i),
				versions(names(i)...)))
		}
		return policies
	}
	for name, c := range map[string]struct {
		policies []*operatorpolicy.Policy
		left     int
	}{
		"a list as long as is held": {[]*operatorpolicy.Policy{small,
			policy("long", "shop", "vault", versions(long(200)...))}, 0},
		"a list that is too long": {[]*operatorpolicy.Policy{small,
			policy("long", "shop", "etcd", versions(long(1000)...))}, 1},
		"150 policies for a namespace": {many(150, func(i int) []string { return []string{fmt.Sprint("x.v", i)} }), 0},
		"500 policies for a namespace": {many(500, func(i int) []string { return []string{fmt.Sprint("x.v", i)} }), 301},
		"50 policies with long lists":  {many(50, func(i int) []string { return append(long(60), fmt.Sprint(i)) }), 45},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := backstop.Input{Features: everything, Policies: c.policies}
			o := compile(in)
			if c.left == 1 && len(o.Left) == 0 || c.left != 1 && len(o.Left) != c.left ||
				slices.Contains(names(o.Left), "policies/first") {
				t.Errorf("%d policies are left to the webhooks, want %d: %.500v", len(o.Left), c.left, o.Left)
			}
			s := newAPIServer(t, o)
			if got := s.judge(t, approval("shop", "etcd.v2")); len(got.failed) > 0 || len(got.refused) != 1 ||
				!strings.Contains(got.refused[0], "policies/first (bundle/version)") {
				t.Errorf("a forbidden version: %.1000v", got)
			}
			if got := s.judge(t, approval("shop", "etcd.v1")); len(got.failed)+
				len(got.refused) > 0 && name != "a list as long as is held" {
				t.Errorf("an allowed version: %.1000v", got)
			}
			// A plan as large as a match condition reads.
			large := approval("shop", "etcd.v1")
			status := large.old.(object)["status"].(object)
			lookup := status["bundleLookups"].([]any)[0].(object)
			properties := lookup["properties"].(string)
			lookup["properties"] = strings.Repeat(" ", 48<<10-len(properties)) + properties
			status["bundleLookups"] = slices.Repeat([]any{lookup}, 4)
			status["plan"] = append(slices.Repeat([]any{largeStep("etcd.v1", properties, 48<<10-400)}, 4),
				slices.Repeat([]any{object{"resource": object{"kind": "Role", "manifest": strings.Repeat("x", 5<<10)},
					"status": "Unknown"}}, 196)...)
			large.object.(object)["status"] = status
			if got := s.judge(t, large); len(got.failed) > 0 || len(got.refused) > 0 &&
				name != "a list as long as is held" {
				t.Errorf("a large plan: %.1000v", got)
			}
			// OLM writes the status of a plan as large as is judged.
			w := approval("shop", "etcd.v1")
			w.resource, w.user, w.rights, w.old = "installplans/status", olmUser, []string{escalate}, w.object
			lookups := w.object.(object)["status"].(object)["bundleLookups"].([]any)
			w.object.(object)["status"] = object{"phase": olm.PhaseInstalling,
				"bundleLookups": slices.Repeat(lookups, 1000)}
			if got := s.judge(t, w); len(got.failed)+len(got.refused) > 0 {
				t.Errorf("OLM is refused: %.1000v", got)
			}
		})
	}
}

// TestManyNames: the match condition lets a plan pass to the rules that names more ClusterServiceVersions than are
// judged, whatever else it holds.
func TestManyNames(t *testing.T) {
	s := under(t, policy("first", "shop", "etcd", versions("etcd.v1")))
	for n, want := range map[int]int{200: 0, 201: 0, olm.MaxPlanEntries - 1: 0, olm.MaxPlanEntries: 1} {
		w := approval("shop", "etcd.v1") // with one lookup
		for _, plan := range []any{w.object, w.old} {
			plan.(object)["spec"].(object)["clusterServiceVersionNames"] = slices.Repeat([]any{"etcd.v1"}, n)
		}
		got := s.judge(t, w)
		if len(got.failed) > 0 || len(got.refused) != want || want > 0 && !strings.Contains(got.refused[0], "(plan/phase)") {
			t.Errorf("%d names: %.1000v, want %d refusals", n, got, want)
		}
	}
}
