package backstop

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// addSubscriptions adds the rule that a Subscription of which a policy must judge each plan is Manual. The MutatingAdmissionPolicy and the
// webhook change it before, so this refuses what is still wrong, and everything that is wrong in mode deny. What OLM generates for
// dependencies is changed only: OLM would repeat a refused one for ever.
func (p *program) addSubscriptions() {
	const deciding = "r[0] == object.spec.name && r[1] != '" + checkNothing + "'"
	p.refuse(onSubscription, refusal{
		id: rules.RuleSubscriptionApproval,
		when: changedSubscription + " && " + notManual + " && has(object.spec.name) && " + governed +
			" && variables.rules.exists(r, " + deciding + ")",
		except: "variables.olm",
		message: "'subscription ' + variables.name + ': spec.installPlanApproval ' + strings.quote(string(" + approval +
			")) + ' is not allowed' + " + by("variables.rules.filter(r, "+deciding+")[0][2]", rules.RuleSubscriptionApproval) +
			" + 'write " + olm.ApprovalManual + ", since the policy has to judge each plan first'",
		fallback: "spec.installPlanApproval is not allowed: write " + olm.ApprovalManual,
	})
}

const (
	approval            = "object.?spec.?installPlanApproval.orValue('')"
	notManual           = approval + " != '" + olm.ApprovalManual + "'"
	changedSubscription = "(request.operation == 'CREATE' || object.?spec != oldObject.?spec)"
)

// mutating returns the MutatingAdmissionPolicy, which makes Subscriptions Manual.
func (in *Input) mutating(t *table) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	manual := shard("m", byNamespace, lines(t.manual))
	conditions := []admissionv1.MatchCondition{{Name: "not-manual", Expression: changedSubscription + " && " + notManual}}
	if in.ApprovalMode == rules.DenyApproval {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "generated-by-olm", Expression: in.byOLM()})
	}
	fail, equivalent, reinvoke := admissionv1.Fail, admissionv1.Equivalent, admissionv1.IfNeededReinvocationPolicy
	policy := &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   typeMeta("MutatingAdmissionPolicy"),
		ObjectMeta: in.meta(),
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      &fail,
			ReinvocationPolicy: reinvoke,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: in.namespaces(),
				ObjectSelector:    &metav1.LabelSelector{},
				MatchPolicy:       &equivalent,
				ResourceRules:     []admissionv1.NamedRuleWithOperations{rule([]string{"subscriptions"}, admissionv1.Create, admissionv1.Update)},
			},
			MatchConditions: conditions,
			Variables:       manual.variables,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
				Expression: "object.?spec.?name.orValue('') in " + manual.values("") +
					" ? [JSONPatch{op: 'add', path: '/spec/installPlanApproval', value: '" + olm.ApprovalManual + "'}] : []"}}},
		},
	}
	return policy, &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("MutatingAdmissionPolicyBinding"),
		ObjectMeta: in.meta(),
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: Name},
	}
}
