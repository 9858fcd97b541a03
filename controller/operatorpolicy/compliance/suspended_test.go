package compliance

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

func pending(in *fixture) {
	in.Policy.Annotations = map[string]string{metakey.Pending: "policies/app"}
}

// TestSuspended covers a policy whose Policy has unmet dependencies: it reports, and writes nothing except that
// Subscriptions require approval.
func TestSuspended(t *testing.T) {
	manual := func(s *olm.Subscription) {
		s.Spec.InstallPlanApproval = olm.ApprovalManual
	}
	foreign := func(s *olm.Subscription) { s.Spec.Package = "vault" }
	for _, tc := range []struct {
		name  string
		given []given
		// waits are the Subscriptions that are switched to manual approval.
		waits []string
	}{
		{"nothing is made", []given{ready, enforced, pending}, nil},
		{"nothing is removed", []given{ready, enforced, pending, subscription("etcd", manual), csv("etcd.v1.2.0"),
			spec(func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave })}, nil},
		{"an Automatic Subscription waits", []given{ready, enforced, pending, subscription("etcd")}, []string{"etcd"}},
		{"so does one with another name", []given{ready, enforced, pending, subscription("renamed"),
			subscription("etcd", manual)}, []string{"renamed"}},
		{"other packages are left alone", []given{ready, enforced, pending, subscription("vault", foreign)}, nil},
		{"an informing policy writes nothing", []given{ready, pending, subscription("etcd")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.given...)
			out := Evaluate(in)
			var waits []string
			for _, a := range out.Actions {
				meta := a.Object["metadata"].(map[string]any)
				before, after := a.Live["spec"].(map[string]any), a.Object["spec"].(map[string]any)
				if verbOf(a) != "update" || after["installPlanApproval"] != olm.ApprovalManual ||
					before["installPlanApproval"] != "Automatic" || before["channel"] != after["channel"] {
					t.Errorf("action %s of %v to %v", verbOf(a), before, after)
				}
				waits = append(waits, meta["name"].(string))
			}
			if len(waits) != len(tc.waits) || len(waits) > 0 && waits[0] != tc.waits[0] {
				t.Errorf("made to wait are %v, want %v", waits, tc.waits)
			}
			status, event := Finish(in, out, 10)
			const message = "Pending; the policy waits for what Policy policies/app depends on; until then nothing is approved, created or removed for it"
			if status.Compliant != policyv1beta2.Pending || status.History[0].Message != message {
				t.Errorf("status is %s, %v", status.Compliant, status.History)
			}
			if event == nil || event.Message != message || event.Type != "Warning" {
				t.Errorf("event is %+v", event)
			}
			if c := meta.FindStatusCondition(status.Conditions, TypeDependencies); c == nil || c.Status != metav1.ConditionFalse ||
				c.Reason != dependency.ReasonDependencyPending {
				t.Errorf("condition is %+v", c)
			}
		})
	}
}

// TestResumed covers a policy whose dependencies are met again: no trace of the suspension is left.
func TestResumed(t *testing.T) {
	waiting := input(ready, enforced, pending, subscription("etcd"))
	status, _ := Finish(waiting, Evaluate(waiting), 10)
	in := input(ready, enforced, subscription("etcd"))
	in.Policy.Status = status
	out := Evaluate(in)
	resumed, event := Finish(in, out, 10)
	if resumed.Compliant == policyv1beta2.Pending || meta.FindStatusCondition(resumed.Conditions, TypeDependencies) != nil ||
		event == nil {
		t.Errorf("status is %s, %v", resumed.Compliant, resumed.Conditions)
	}
}

// TestSuspendedAndInvalid is NonCompliant, which takes precedence over pending.
func TestSuspendedAndInvalid(t *testing.T) {
	in := input(ready, enforced, pending, asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Name = "" }))
	status, _ := Finish(in, Evaluate(in), 10)
	if status.Compliant != policyv1beta2.NonCompliant {
		t.Errorf("it is %s", status.Compliant)
	}
}

// TestRequestedApproval covers what is noted when a policy changes installPlanApproval of a Subscription.
func TestRequestedApproval(t *testing.T) {
	with := func(approval string, noted ...string) given {
		return subscription("etcd", func(s *olm.Subscription) {
			s.Spec.InstallPlanApproval = approval
			for _, value := range noted {
				s.Metadata.Annotations = olm.Annotations{RequestedApproval: value}
			}
		})
	}
	created := func(in *fixture) {
		s := in.Subscriptions[0]
		related := policyv1beta2.RelatedObject{Properties: &policyv1beta2.ObjectProperties{UID: s.Metadata.UID,
			CreatedByPolicy: new(true)}}
		related.Object.Kind, related.Object.Metadata.Name = kindSubscription, s.Metadata.Name
		in.Policy.Status.RelatedObjects = append(in.Policy.Status.RelatedObjects, related)
	}
	for name, tc := range map[string]struct {
		given []given
		want  any
	}{
		"a list makes Automatic wait":     {[]given{listed("etcd.v1.2.0"), with("Automatic")}, "Automatic"},
		"a list makes what is unset wait": {[]given{listed("etcd.v1.2.0"), with("")}, "Automatic"},
		"Manual is made Automatic":        {[]given{with("Manual")}, "Manual"},
		"Automatic is given back":         {[]given{with("Manual", "Automatic")}, nil},
		"Manual is given back":            {[]given{listed("etcd.v1.2.0"), with("Automatic", "Manual")}, nil},
		"what waits goes on": {[]given{listed("etcd.v1.2.0"), with("Manual", "Automatic")},
			"Automatic"},
		"what the policy has created has no own": {[]given{listed("etcd.v1.2.0"), with("Automatic"), created}, nil},
		"a suspended policy makes it wait":       {[]given{pending, with("Automatic")}, "Automatic"},
	} {
		t.Run(name, func(t *testing.T) {
			out := Evaluate(input(append([]given{ready, enforced}, tc.given...)...))
			if len(out.Actions) != 1 {
				t.Fatalf("the actions are %v, want one", out.Actions)
			}
			if got := object(out.Actions[0].Object, "metadata",
				"annotations")[metakey.RequestedApproval]; got != tc.want {
				t.Errorf("noted is %v, want %v", got, tc.want)
			}
		})
	}
}
