package backstop

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/evidence"
)

// UnpackedName is the name of the ValidatingAdmissionPolicy on unpacked bundles, and of its binding.
const UnpackedName = "opgate-unpacked"

// unpackedNames matches the names of the ConfigMaps into which OLM unpacks bundle images: the digest of the image
// reference, without its last digit. Bundles bring ConfigMaps of other names with the same label, which operators and
// users may change.
const unpackedNames = "^[0-9a-f]{63,64}$"

// unpacked returns the ValidatingAdmissionPolicy that keeps the contents of unpacked bundles as OLM has written them:
// what a plan installs, and what users consent to, is read from there. It does not depend on policies. Deletes are not
// matched: OLM unpacks again.
func (in *Input) unpacked() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	fail, equivalent, forbidden := admissionv1.Fail, admissionv1.Equivalent, metav1.StatusReasonForbidden
	reason := func(object string) string {
		return "string(" + object + ".metadata.?annotations[?" + quote(evidence.OverrideReasonAnnotation) +
			"].orValue('')).trim()"
	}
	const heldByUnpacked = "; held by the API server (ValidatingAdmissionPolicy " + UnpackedName + ")"
	meta := metav1.ObjectMeta{Name: UnpackedName, Labels: in.Labels}
	namespaced := admissionv1.NamespacedScope
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{},
				// The object before counts as well as the one after, so a write that removes the label is matched.
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{olm.ManagedLabel: "true"}},
				MatchPolicy:    &equivalent,
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
						Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"},
							Resources: []string{"configmaps"}, Scope: &namespaced}}}},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "unpacked", Expression: "object.metadata.?name.orValue('').matches(" + quote(unpackedNames) +
					")"},
				// The garbage collector changes owners and finalizers, and a migration of storage nothing.
				{Name: "changed", Expression: "request.operation == 'CREATE' || object.?data != oldObject.?data || " +
					"object.?binaryData != oldObject.?binaryData || object.?immutable != oldObject.?immutable || " +
					"object.metadata.?annotations != oldObject.metadata.?annotations || object.metadata.?labels != oldObject.metadata.?labels"},
				{Name: "not-olm", Expression: "!(" + in.byOLM() + ")"},
			},
			Variables: []admissionv1.Variable{
				{Name: "name", Expression: "request.namespace + '/' + object.metadata.name"},
				// The Job runs as an account of its own, with the name of the ConfigMap, which alone it may write.
				{Name: "job", Expression: "'system:serviceaccount:' + request.namespace + ':' + object.metadata.name"},
				{Name: "reason", Expression: reason("object")},
				{Name: "asked", Expression: "variables.reason != '' && (request.operation == 'CREATE' || variables.reason != " + reason("oldObject") + ")"},
			},
			Validations: []admissionv1.Validation{{
				Expression: "request.userInfo.username == variables.job || variables.asked && " +
					"authorizer.group('').resource('configmaps').namespace(request.namespace).name(object.metadata.name).check('override').allowed()",
				MessageExpression: "'configmap ' + variables.name + ': changing the contents of an unpacked bundle is not allowed: " +
					"only OLM writes them, and its Job as ' + variables.job + (variables.asked ? " +
					"'; the override needs the verb override on configmaps ' + variables.name : '') + " +
					quote(heldByUnpacked),
				Message: "changing the contents of an unpacked bundle is not allowed" + heldByUnpacked,
				Reason:  &forbidden,
			}},
			AuditAnnotations: []admissionv1.AuditAnnotation{{Key: OverrideAnnotation,
				ValueExpression: "variables.asked && request.userInfo.username != variables.job ? 'override of " +
					UnpackedName +
					" with reason ' + strings.quote(variables.reason) : ''"}},
		},
	}
	return policy, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: UnpackedName,
			ValidationActions: in.actions()},
	}
}

// actions are what the API server does about a write that an expression refuses.
func (in *Input) actions() []admissionv1.ValidationAction {
	if in.Audit {
		return []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Warn}
	}
	return []admissionv1.ValidationAction{admissionv1.Deny}
}
