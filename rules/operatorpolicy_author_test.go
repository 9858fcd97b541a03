package rules

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
)

// TestA1A2StoredBefore: a policy whose author was never asked keeps what it has, which a condition reports until a user with
// the rights has written it again (threats O78, O79).
func TestA1A2StoredBefore(t *testing.T) {
	key := []byte("a key of 32 bytes, for tests only")
	for name, c := range map[string]struct {
		edit func(*spec)
		want string
	}{
		"a policy that acts": {edit: func(*spec) {}},
		"one that informs":   {func(s *spec) { s.RemediationAction = "inform" }, "get subscriptions.operators.coreos.com in namespace shop"},
		"one that approves": {func(s *spec) { s.PlanApproval = "IfAllowed" },
			"update installplans.operators.coreos.com in namespace shop"},
		"one that approves in its own namespace": {
			func(s *spec) { s.PlanApproval, s.Subscription.Namespace = "IfAllowed", "policies" },
			"update installplans.operators.coreos.com in namespace policies"},
		"one that approves in an unknown place": {
			func(s *spec) { s.PlanApproval, s.Subscription.Namespace = "IfAllowed", "" },
			"update installplans.operators.coreos.com in the whole cluster"},
		"one that approves what is asked for": {edit: func(s *spec) { s.PlanApproval = "IfRequested" }},
		"one that keeps from deletion":        {func(s *spec) { s.Deletion = "Deny" }, "delete namespaces shop in namespace shop"},
		"one that keeps an unknown place":     {func(s *spec) { s.Deletion, s.Subscription.Namespace = "Deny", "{{ x }}" }, "delete namespaces in the whole cluster"},
		"one that informs on its own place":   {func(s *spec) { s.RemediationAction, s.Subscription.Namespace = "inform", "policies" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			op := operatorPolicy("etcd", c.edit)
			if got := UnverifiedAuthor(key, op); (got != "") != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("the condition says %q, want %q", got, c.want)
			}
			if got := UnverifiedAuthor(nil, op); got != "" {
				t.Errorf("without a key it says %q", got)
			}
			op.Annotations = map[string]string{metakey.Verified: SignAuthor(key, op)}
			if got := UnverifiedAuthor(key, op); got != "" {
				t.Errorf("once it is marked it says %q", got)
			}
		})
	}
}
