package compliance

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// suspended modifies an outcome while the dependencies of the policy's Policy are not met (R-DP-4): findings are
// reported, and nothing is created, changed or removed. Subscriptions are switched to manual approval, since an Automatic one would
// make OLM write plans that are refused.
func (e *evaluation) suspended(out Outcome) Outcome {
	out.Actions, out.Intervention, out.After = nil, nil, 0
	out.Findings = append(out.Findings, Finding{Type: TypeDependencies, Status: metav1.ConditionFalse, Reason: dependency.ReasonDependencyPending,
		Message: cmp.Or(e.Rules.Waits, "the policy waits for what Policy "+e.Rules.Pending+" depends on") +
			"; until then nothing is approved, made or removed for it"})
	if !e.enforced {
		return out
	}
	for i := range e.Subscriptions {
		if s := &e.Subscriptions[i]; s.Package == e.wanted.name {
			out.Actions = append(out.Actions, madeToWait(s)...)
		}
	}
	return out
}

func madeToWait(s *Subscription) []Action {
	path := []string{"spec", "installPlanApproval"}
	if mode, _, _ := unstructured.NestedString(s.Content, path...); mode == olm.ApprovalManual {
		return nil
	}
	object := runtime.DeepCopyJSON(s.Content)
	if err := unstructured.SetNestedField(object, olm.ApprovalManual, path...); err != nil {
		return nil // it has no spec, so OLM ignores it
	}
	return []Action{{Verb: Update, Object: object, Live: s.Content}}
}
