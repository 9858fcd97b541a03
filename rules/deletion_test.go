package rules

import (
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// TestDeletionPreview: the author of a policy that restricts deletions is warned where nothing is refused.
func TestDeletionPreview(t *testing.T) {
	for _, c := range []struct {
		name     string
		edit     func(*policyv1beta2.OperatorPolicySpec)
		unbacked string
		want     string
	}{
		{name: "Deny, and the API server judges", edit: func(*policyv1beta2.OperatorPolicySpec) {}},
		{name: "Deny, and it does not", edit: func(*policyv1beta2.OperatorPolicySpec) {},
			unbacked: "--backstop is off here",
			want:     "spec.deletion Deny refuses no deletion (operatorpolicy/ineffective): --backstop is off here"},
		{name: "Allow, and it does not",
			edit:     func(s *policyv1beta2.OperatorPolicySpec) { s.Deletion = policyv1beta2.DeletionAllow },
			unbacked: "--backstop is off here"},
		{name: "a policy that informs",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.RemediationAction = policyv1beta2.Inform },
			want: "spec.deletion Deny refuses no deletion while the policy only informs (operatorpolicy/ineffective): write spec.remediationAction: enforce"},
		{name: "mustnothave", edit: func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave },
			want: "the policy is mustnothave and removes nothing while spec.deletion is Deny (operatorpolicy/ineffective): " +
				"write spec.deletion: Allow to have the operator removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := &policyv1beta2.OperatorPolicy{}
			op.Namespace, op.Name = "policies", "etcd"
			op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
				ComplianceType:  policyv1beta2.MustHave,
				UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic, Deletion: policyv1beta2.DeletionDeny,
				Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"}}
			c.edit(&op.Spec)
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: op, Unbacked: c.unbacked,
				Namespace: func(string) *Namespace { return nil }})
			var warned []string
			for _, w := range v.Warnings {
				if strings.Contains(w.Message, "deletion") {
					warned = append(warned, w.Message)
				}
			}
			if got := strings.Join(warned, "\n"); got != c.want {
				t.Errorf("it is warned of\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestDeletionField: a value that is none of the known ones is refused, and one that is stored denies.
func TestDeletionField(t *testing.T) {
	op := &policyv1beta2.OperatorPolicy{}
	op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
		ComplianceType:  policyv1beta2.MustHave,
		UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic, Deletion: "deny",
		Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"}}
	errs := operatorpolicy.Validate(op)
	if len(errs) != 1 || errs[0].Field != "spec.deletion" {
		t.Errorf("got %v", errs)
	}
	if p := NewOperatorPolicy(op); p.Deletion != policyv1beta2.DeletionDeny || p.Unreadable() != "" {
		t.Errorf("deletion is %q, and the policy is unreadable: %q", p.Deletion, p.Unreadable())
	}
}
