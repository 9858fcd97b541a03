package rules

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
)

// TestD2JudgedNamespaces shows in which namespaces Subscriptions wait for a policy that is for another package.
func TestD2JudgedNamespaces(t *testing.T) {
	edited := func(edit func(*policyv1beta2.OperatorPolicySpec)) []*OperatorPolicy {
		return []*OperatorPolicy{policyFor("etcd", edit)}
	}
	listed := policyFor("etcd", versions("etcd.v1"))
	forbids := func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave }
	holds := func(s *policyv1beta2.OperatorPolicySpec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone }
	incomplete := policyFor("etcd", versions("etcd.v1"))
	incomplete.Incomplete = true
	informing := policyFor("etcd", versions("etcd.v1"))
	informing.Enforced = false
	everything := policyFor("vault", nil)
	for name, c := range map[string]struct {
		policies []*OperatorPolicy
		waits    bool
		keeps    bool // what waits already goes on waiting
	}{
		"no policy":                          {policies: nil},
		"a list of versions":                 {policies: []*OperatorPolicy{listed}, waits: true, keeps: true},
		"every version":                      {policies: edited(nil)},
		"every version, of two packages":     {policies: append(edited(nil), everything)},
		"a list, and every version":          {policies: []*OperatorPolicy{everything, listed}, waits: true, keeps: true},
		"one that only informs":              {policies: []*OperatorPolicy{informing}},
		"one that is not completed":          {policies: []*OperatorPolicy{incomplete}, keeps: true},
		"one that forbids":                   {policies: edited(forbids), waits: true, keeps: true},
		"one that does not approve upgrades": {policies: edited(holds), waits: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := NewNamespace("shop", NamespaceContents{Exists: true, Policies: c.policies,
				Constraints: constraint.NewSet(nil, constraint.Cluster{Version: "1.36.0"})})
			automatic, turned := subscriptionTo("foo"), subscriptionTo("foo")
			automatic.Spec.InstallPlanApproval = olm.ApprovalAutomatic
			turned.Metadata.Annotations = olm.Annotations{Present: true, RequestedApproval: olm.ApprovalAutomatic}
			for _, mode := range []ApprovalMode{MutateApproval, DenyApproval} {
				v := JudgeSubscription(SubscriptionInput{Subscription: automatic, Namespace: ns, Mode: mode})
				waits := mode == MutateApproval && len(v.Changes) == 2 || mode == DenyApproval && v.Decision == Deny
				if waits != c.waits {
					t.Errorf("mode %s: %s, changes %v, want it to wait: %t", mode, v.Decision, v.Changes, c.waits)
				}
			}
			if changes := ApprovalChanges(automatic, ns); (len(changes) == 2) != c.waits {
				t.Errorf("a stored Subscription gets %v, want it to wait: %t", changes, c.waits)
			}
			if changes := ApprovalChanges(turned, ns); (len(changes) == 0) != c.keeps {
				t.Errorf("one that waits gets %v, want it to go on: %t", changes, c.keeps)
			}
			// The package with a policy that allows every version waits as well, without a note: its policy decides.
			if mode, _ := everything.Approval(ns); (mode == olm.ApprovalManual) != c.waits {
				t.Errorf("a policy that allows every version wants %s", mode)
			}
		})
	}
}

// TestD2WithoutSpec: a patch of a field in a spec that does not exist would be answered 500 in place of the API server's refusal.
func TestD2WithoutSpec(t *testing.T) {
	ns := NewNamespace("shop", NamespaceContents{Exists: true, Policies: []*OperatorPolicy{policyFor("etcd", versions("etcd.v1"))}})
	v := JudgeSubscription(SubscriptionInput{Subscription: &olm.Subscription{}, Namespace: ns, Mode: MutateApproval})
	if len(v.Changes) > 0 {
		t.Errorf("it is changed by %v", v.Changes)
	}
}
