package backstop

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// OverrideAnnotation is the key, after the name of the policy, of the audit annotation that records an override.
const OverrideAnnotation = "override"

// program is the ValidatingAdmissionPolicy while it is built.
type program struct {
	in *Input
	// rows are those of the table, by namespace, data those of its checks.
	rows, data  shards
	variables   []admissionv1.Variable
	validations []admissionv1.Validation
}

// validating returns the ValidatingAdmissionPolicy. Variables are evaluated when an expression needs them, at most once for all
// validations, and once more for all messages, which also are evaluated for writes that are admitted: so each says first whether it is
// about this write.
func (in *Input) validating(t *table) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	p := &program{in: in, rows: shard("t", lines(t.rows)), data: t.dataShards()}
	p.variables = slices.Concat(p.rows.variables, p.data.variables)
	p.addRequest()
	p.addPlans()
	p.addCSVs()
	p.addSubscriptions()
	fail, equivalent := admissionv1.Fail, admissionv1.Equivalent
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: in.meta(),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: in.namespaces(),
				ObjectSelector:    &metav1.LabelSelector{},
				MatchPolicy:       &equivalent,
				ResourceRules: []admissionv1.NamedRuleWithOperations{
					rule([]string{"installplans", "subscriptions", "clusterserviceversions"}, admissionv1.Create, admissionv1.Update),
					rule([]string{"installplans/status"}, admissionv1.Update),
				},
			},
			MatchConditions: []admissionv1.MatchCondition{{
				// Writes that change nothing that is judged here, as the webhooks skip them.
				Name: "changed", Expression: "request.operation == 'CREATE' || " + subresource + " || " +
					"object.?spec != oldObject.?spec || object.metadata.?annotations != oldObject.metadata.?annotations || " +
					"object.metadata.?labels != oldObject.metadata.?labels"}},
			Variables:   p.variables,
			Validations: p.validations,
			AuditAnnotations: []admissionv1.AuditAnnotation{{Key: OverrideAnnotation,
				// Audit annotations cannot ask for rights. The event tells by its response whether the override was accepted.
				ValueExpression: "variables.overrideAsked && size(variables.offending) > 0 ? 'override of ' + " +
					"variables.refusing.join(', ') + ' with reason ' + strings.quote(variables.reason) : ''"}},
		},
	}
	return policy, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: in.meta(),
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: Name, ValidationActions: in.actions()},
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: kind}
}

func (in *Input) meta() metav1.ObjectMeta { return metav1.ObjectMeta{Name: Name, Labels: in.Labels} }

// namespaces selects those that the webhook configurations select.
func (in *Input) namespaces() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if len(in.ExcludedNamespaces) > 0 {
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: sorted(in.ExcludedNamespaces)}}
	}
	return selector
}

func rule(resources []string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	namespaced := admissionv1.NamespacedScope
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{Operations: operations,
		Rule: admissionv1.Rule{APIGroups: []string{olm.Group}, APIVersions: []string{"*"}, Resources: resources, Scope: &namespaced}}}
}

// set adds a variable.
func (p *program) set(name, expression string) {
	p.variables = append(p.variables, admissionv1.Variable{Name: name, Expression: expression})
}

// refuse adds a validation: it refuses if an expression is true, with a message that is an expression too. The fallback stands in for a
// message that the API server cannot show: one of several lines, or of more than 5 KiB.
func (p *program) refuse(id rules.RuleID, refused, message, fallback string) {
	forbidden := metav1.StatusReasonForbidden
	p.validations = append(p.validations, admissionv1.Validation{
		Expression:        "!(" + refused + ")",
		MessageExpression: message + " + " + quote(heldBy),
		Message:           fallback + " (" + string(id) + ")" + heldBy,
		Reason:            &forbidden,
	})
}

// heldBy ends each message.
const heldBy = "; held by the API server (ValidatingAdmissionPolicy " + Name + ")"

// subresource is an expression that reports whether the request is for status, the only subresource that is matched.
const subresource = "request.?subResource.orValue('') == 'status'"

// addRequest adds what all kinds of requests need.
func (p *program) addRequest() {
	// The rows of the namespace, each a list of its columns, and then the data of its check.
	p.set("rules", p.rows.values("request.namespace")+".map(v, v.split(' ')).map(r, r + "+p.data.value("r[1]")+".split('|', 2)[0].split(' '))")
	p.set("governed", "size(variables.rules) > 0")
	p.set("resource", "request.resource.resource + ("+subresource+" ? '/status' : '')")
	p.set("update", "request.operation == 'UPDATE'")
	p.set("olmName", "request.userInfo.username in "+quoteList(sorted(p.in.OLM)))
	p.set("olm", p.in.byOLM())
	p.set("name", "request.namespace + '/' + (object.metadata.?name.orValue('') != '' ? "+
		"object.metadata.name : object.metadata.?generateName.orValue('') + '*')")
	// The first of the policies, in whose name the gate refuses what no single policy is about.
	p.set("first", "variables.rules.map(r, r[2]).min()")
}

// byOLM is an expression that reports whether OLM writes. It is a superset of the gate's OLM, which also verifies the account.
func (in *Input) byOLM() string {
	if len(in.OLM) == 0 {
		return "false"
	}
	return "request.userInfo.username in " + quoteList(sorted(in.OLM)) +
		" && authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()"
}

// sorted returns a list in order, without duplicates.
func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// by is an expression for the end of what a refusal says, before what is accepted instead.
func by(policy string, id rules.RuleID) string {
	return "' by OperatorPolicy ' + " + policy + " + ' (" + string(id) + "): '"
}

// show is an expression for a name from an object, as internal/text shows it.
func show(name string) string {
	return "(" + name + ".matches('^[!-~]{1,253}$') ? " + name + " : size(" + name + ") > 120 ? strings.quote(" + name +
		".substring(0, 120)) + '...' : strings.quote(" + name + "))"
}

// all is the conjunction of expressions.
func all(conditions ...string) string { return strings.Join(conditions, " && ") }
