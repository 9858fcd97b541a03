package rules

import (
	"slices"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
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
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: NewOperatorPolicy(op), Unbacked: c.unbacked,
				Namespace: func(string) *state.Namespace { return nil }})
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
	errs := NewOperatorPolicy(op).Invalid
	if len(errs) != 1 || errs[0].Field != "spec.deletion" {
		t.Errorf("got %v", errs)
	}
	if p := NewOperatorPolicy(op); p.Deletion != policyv1beta2.DeletionDeny || p.Unreadable() != "" {
		t.Errorf("deletion is %q, and the policy is unreadable: %q", p.Deletion, p.Unreadable())
	}
}

// TestConstraintDeletion: a value that is none of the known ones is refused, and one that is stored denies; the author
// of a Constraint that protects is warned where nothing is refused.
func TestConstraintDeletion(t *testing.T) {
	const unbacked = "--backstop is off here"
	for _, c := range []struct {
		name     string
		deletion *constraintv1.ConstraintDeletion
		action   policyv1beta2.DeletionAction
		refused  string
		warned   string
	}{
		{name: "Deny", deletion: &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionDeny},
			action: policyv1beta2.DeletionDeny, warned: "spec.deletion.action Deny refuses no deletion " +
				"(constraint/ineffective): " + unbacked},
		{name: "Allow", deletion: &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionAllow},
			warned: "the Constraint requires nothing and offers nothing (constraint/ineffective): write spec.rules, spec.offers or spec.deletion"},
		{name: "an unknown value", deletion: &constraintv1.ConstraintDeletion{Action: "deny"},
			action: policyv1beta2.DeletionDeny, refused: "spec.deletion.action"},
		{name: "no value", deletion: &constraintv1.ConstraintDeletion{Packages: []string{"etcd"}},
			action: policyv1beta2.DeletionDeny, refused: "spec.deletion.action"},
		{name: "half a catalog", action: policyv1beta2.DeletionDeny, refused: "spec.deletion.catalogs[0].sourceNamespace",
			deletion: &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionDeny,
				Catalogs: []constraintv1.DeletionCatalog{{Source: "hub"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &constraintv1.Constraint{}
			object.Name, object.Spec.Deletion = "keep", c.deletion
			v := JudgeConstraint(ConstraintInput{Constraint: object, Unbacked: unbacked})
			refused, warned := "", ""
			for _, r := range v.Reasons {
				refused += r.Field
			}
			for _, w := range v.Warnings {
				warned += w.Message
			}
			if refused != c.refused || c.refused == "" && warned != c.warned {
				t.Errorf("refused is %q, and warned of\n%s\nwant %q\n%s", refused, warned, c.refused, c.warned)
			}
			if d := NewDefinition(object, nil).Deletion; (d == nil) != (c.action == "") || d != nil &&
				d.Action != c.action {
				t.Errorf("what is stored has %+v, want %q", d, c.action)
			}
		})
	}
}

// TestKeptByConstraint: what a mustnothave policy would remove is kept where a Constraint denies it.
func TestKeptByConstraint(t *testing.T) {
	keep := &constraintv1.Constraint{}
	keep.Name = "keep"
	keep.Spec.Deletion = &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionDeny,
		Packages: []string{"etcd"}}
	d := NewDefinition(keep, nil)
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", "no-etcd"
	op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
		ComplianceType: policyv1beta2.MustNotHave,
		Subscription:   policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"}}
	subscription := func(pkg string) *olm.Subscription {
		return &olm.Subscription{Spec: olm.SubscriptionSpec{Package: pkg}}
	}
	ns := state.NewNamespace("shop", state.NamespaceContents{Constraints: under(d),
		Policies:      []*operatorpolicy.Policy{NewOperatorPolicy(op)},
		Subscriptions: []*olm.Subscription{subscription("etcd"), subscription("grafana")},
		CSVs:          []state.Installed{{Bundle: olm.Bundle{Name: "strange.v1"}}}})
	for pkg, want := range map[string]string{"etcd": "spec.deletion.action of Constraint keep", "grafana": "", "": ""} {
		if got := KeptBy(ns, pkg); got != want {
			t.Errorf("package %q is kept by %q, want %q", pkg, got, want)
		}
	}
	if got := ns.Operators(); !slices.Equal(got, []string{"", "etcd", "grafana"}) {
		t.Errorf("operators are %q", got)
	}
}
