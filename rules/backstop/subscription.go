package backstop

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// addSubscriptions adds the rule that Subscriptions are Manual where a policy must judge each plan: a plan of another
// package may bring the governed one as a dependency, and is born approved if no Subscription of its namespace is
// Manual (threat O52). The MutatingAdmissionPolicy and the webhook change them before, so this refuses what is still
// wrong, and everything that is wrong in mode deny. What OLM generates for dependencies is changed only: OLM would
// repeat a refused one for ever. What Opgate writes back when no policy is left must not wait for the table.
func (p *program) addSubscriptions() {
	const judging = "r[1] != '" + checkNothing + "'"
	p.refuse(onSubscription, refusal{
		id: rules.RuleSubscriptionApproval,
		when: changedSubscription + " && " + notManual + " && " + governed + " && variables.rules.exists(r, " +
			judging + ")" +
			" && request.userInfo.username != " + quote(p.in.Opgate),
		except: "variables.olm",
		message: "'subscription ' + variables.name + ': spec.installPlanApproval ' + strings.quote(string(" + approval +
			")) + ' is not allowed' + " + by("variables.rules.filter(r, "+judging+")[0][2]",
			rules.RuleSubscriptionApproval) +
			" + 'write " + olm.ApprovalManual + ", since the policy has to judge each plan first; with annotation " +
			rules.RequestedApprovalAnnotation + ": " + olm.ApprovalAutomatic + " Opgate approves what is allowed'",
		fallback: "spec.installPlanApproval is not allowed: write " + olm.ApprovalManual,
	})
}

const (
	approval            = "object.?spec.?installPlanApproval.orValue('')"
	notManual           = approval + " != '" + olm.ApprovalManual + "'"
	changedSubscription = "(request.operation == 'CREATE' || object.?spec != oldObject.?spec)"
)

// mutating returns the MutatingAdmissionPolicy, which makes Subscriptions Manual and notes that they asked for
// Automatic, as the webhook does. It runs before webhooks, so that these see what it has written.
func (in *Input) mutating(
	t *table,
) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	manual := shard("m", byNamespace, lines(t.manual))
	conditions := []admissionv1.MatchCondition{{Name: "not-manual", Expression: changedSubscription + " && " +
		notManual +
		" && request.userInfo.username != " + quote(in.Opgate)}}
	if in.ApprovalMode == rules.DenyApproval {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "generated-by-olm", Expression: in.byOLM()})
	}
	fail, equivalent, reinvoke := admissionv1.Fail, admissionv1.Equivalent, admissionv1.IfNeededReinvocationPolicy
	const annotations = "object.metadata.?annotations.orValue(null)"
	note := "(" + annotations + " == null ? [JSONPatch{op: 'add', path: '/metadata/annotations', value: {" +
		quote(rules.RequestedApprovalAnnotation) + ": '" + olm.ApprovalAutomatic +
		"'}}] : [JSONPatch{op: 'add', path: '/metadata/annotations/' + " +
		"jsonpatch.escapeKey(" + quote(rules.RequestedApprovalAnnotation) + "), value: '" + olm.ApprovalAutomatic +
		"'}])"
	unjudged := ""
	if len(t.everywhere) == 0 {
		unjudged = " || " + manual.value() + " == ''"
	}
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
				ResourceRules: []admissionv1.NamedRuleWithOperations{rule([]string{"subscriptions"},
					admissionv1.Create, admissionv1.Update)},
			},
			MatchConditions: conditions,
			Variables:       manual.variables,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{
					Expression: "!has(object.spec)" + unjudged + " ? [] : " +
						"[JSONPatch{op: 'add', path: '/spec/installPlanApproval', value: '" + olm.ApprovalManual +
						"'}] + " + note}}},
		},
	}
	return policy, &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("MutatingAdmissionPolicyBinding"),
		ObjectMeta: in.meta(),
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: Name},
	}
}
