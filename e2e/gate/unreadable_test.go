package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestUnreadableTargets writes policies to etcd that do not show what they govern, as a restore of another definition's
// objects would. Neither the webhook nor the API server by itself lets a cluster admin approve what such a policy may
// be about (threat G5).
func TestUnreadableTargets(t *testing.T) {
	t.Parallel()
	s := &backstopSite{LoopEnv: &harness.LoopEnv{Env: harness.Vacant(t)}}
	s.Connect(t)
	s.start(t, "enforce")
	s.namespace = s.NewNamespace(t)
	s.policy = s.Put(t, harness.OperatorPolicy(s.namespace))
	s.Put(t, harness.InstallPlan(s.namespace, "forbidden", harness.ForbiddenVersion))
	elsewhere := s.NewNamespace(t)
	s.Put(t, harness.InstallPlan(elsewhere, "forbidden", harness.ForbiddenVersion))
	for _, c := range []struct {
		name       string
		spec       string
		holds      string
		everywhere bool
	}{
		{name: "the package", spec: `{"subscription":{"name":7}}`, holds: "every package in namespace " + s.namespace},
		{name: "the namespace", spec: `{"subscription":{"namespace":7}}`, holds: "package etcd in every namespace",
			everywhere: true},
		{name: "both", spec: `{"subscription":"x"}`, holds: "every package in every namespace", everywhere: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.storeWith(t, c.spec)
			harness.Eventually(t, "the API server holds it", s.unreadable(s.namespace, heldByServer))
			if c.everywhere {
				harness.Eventually(t, "the API server holds it elsewhere", s.unreadable(elsewhere, heldByServer))
			} else {
				harness.Eventually(t, "the API server holds nothing elsewhere",
					s.approvable(elsewhere, "forbidden", true))
			}
			sub := harness.Subscription(s.namespace, "etcd", harness.GoodCatalog, "Manual")
			harness.WantRefused(t, s.Cluster, cluster.Admin, harness.AsJSON(t, sub),
				[]string{"create", "--dry-run=server", "-f", "-"},
				"(Forbidden)", "this Subscription is held by OperatorPolicy "+cluster.PolicyNamespace+"/"+
					s.policy.GetName()+" (policy/unreadable)", c.holds)
			s.wantMetrics(t, `opgate_operatorpolicies{state="Unreadable"} 1`)
			harness.Eventually(t, "see an event", func(ctx context.Context) error {
				result, err := s.Kubectl(ctx, cluster.Admin, "", "get", "events", "-n", cluster.PolicyNamespace,
					"--field-selector", "reason=Unreadable")
				if err == nil && !strings.Contains(result.Stdout, c.holds) {
					err = fmt.Errorf("there are %s", result.Stdout)
				}
				return err
			})
		})
	}
	t.Run("once it can be read, it governs what it names", func(t *testing.T) {
		s.storeWith(t, "{}")
		harness.Eventually(t, "the API server holds nothing elsewhere", s.approvable(elsewhere, "forbidden", true))
		harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
		s.wantMetrics(t, `opgate_operatorpolicies{state="Unreadable"} 0`)
	})
	t.Run("the webhook without the API server", func(t *testing.T) {
		s.start(t, "off")
		s.wantGone(t, backstopObjects...)
		s.storeWith(t, `{"subscription":"x"}`)
		harness.Eventually(t, "the webhook holds it", s.unreadable(elsewhere, "opgate"))
	})
	t.Run("the API server without Opgate", func(t *testing.T) {
		s.start(t, "enforce")
		harness.Eventually(t, "the API server holds it elsewhere", s.unreadable(elsewhere, heldByServer))
		s.abandon(t)
		for _, namespace := range []string{s.namespace, elsewhere} {
			if err := s.unreadable(namespace, heldByServer)(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// storeWith writes the policy to etcd with a merge patch of its spec.
func (s *backstopSite) storeWith(t *testing.T, patch string) {
	t.Helper()
	policy := s.policy.DeepCopy()
	policy.Object["spec"] = harness.MergePatch(policy.Object["spec"], harness.Object("%s", patch).Object)
	if err := s.StorePolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
}

// unreadable returns an error unless a cluster admin is refused the approval of a plan by policy/unreadable, in words
// that the refusal has.
func (s *backstopSite) unreadable(namespace, says string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		got, err := s.tryIn(ctx, namespace, cluster.Admin, true, "forbidden", "", `{"spec":{"approved":true}}`)
		if err == nil && (got.OK() || !strings.Contains(got.Message, "(policy/unreadable)") ||
			!strings.Contains(got.Message, says)) {
			err = fmt.Errorf("approving in %s: %s", namespace, got)
		}
		return err
	}
}
