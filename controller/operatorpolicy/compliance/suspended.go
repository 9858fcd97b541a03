package compliance

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// suspended modifies an outcome while the dependencies of the policy's Policy are not met: conditions are
// reported, and nothing is created, changed or removed. Subscriptions that the policy manages are switched to manual
// approval, since an Automatic one would make OLM write plans that are refused.
func (e *evaluation) suspended(out Outcome) Outcome {
	out.Actions, out.Intervention, out.After = nil, nil, 0
	out.Conditions = append(out.Conditions, condition(TypeDependencies, metav1.ConditionFalse,
		dependency.ReasonDependencyPending,
		cmp.Or(e.Rules.Waits, "the policy waits for what Policy "+e.Rules.Pending+" depends on")+
			"; until then nothing is approved, created or removed for it"))
	if !e.enforced {
		return out
	}
	for _, s := range e.Namespace.Subscriptions() {
		if s.Spec.Package == e.wanted.name &&
			e.Policy.Spec.ComplianceType == policyv1beta2.MustHave {
			out.Actions = append(out.Actions, e.madeToWait(s)...)
		}
	}
	return out
}

func (e *evaluation) madeToWait(s *olm.Subscription) []Action {
	if s.Spec.InstallPlanApproval == olm.ApprovalManual {
		return nil
	}
	live := subscriptionContent(s)
	waiting := with(live, olm.ApprovalManual, "spec", "installPlanApproval")
	return []Action{{Object: e.remembering(s, live, waiting), Live: live}}
}
