package backstop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// OverrideAnnotation is the key, after the name of the policy, of the audit annotation that records an override.
const OverrideAnnotation = "override"

// program is the ValidatingAdmissionPolicy while it is built.
type program struct {
	in *Input
	// rows are those of the table, by namespace, data those of its checks.
	rows, data shards
	// table is what the policies say.
	table *table
	// accounts are those that write steps, by namespace.
	accounts  map[string][]string
	variables []admissionv1.Variable
	// refusals are the rules, by the expression that selects the requests they are about.
	refusals map[string][]refusal
}

// The expressions that select requests. They exclude each other.
const (
	onPlan         = "request.resource.resource == 'installplans' && !has(request.subResource)"
	onPlanStatus   = "request.resource.resource == 'installplans'" // status is the only subresource that is matched
	onCSV          = "request.resource.resource == 'clusterserviceversions'"
	onSubscription = "request.resource.resource == 'subscriptions'"
)

// Expressions that are about every request, and cheaper than a variable.
const (
	governed = "(size(variables.rules) > 0)"
	update   = "(request.operation == 'UPDATE')"
)

// refusal is one rule.
type refusal struct {
	id verdict.RuleID
	// when is an expression that reports whether the rule refuses a request, except for what another expression allows,
	// which may ask for rights. Messages and audit annotations cannot ask for them. No exception is "".
	when, except string
	// guard is the first part of when, which rules that follow one another may share. No guard is "".
	guard string
	// may is true whenever the rest of when is, for the match condition: less for the API server to compile, and true
	// for few writes that are admitted. "" is when itself.
	may string
	// message is an expression for what is said. The fallback stands in for one that the API server cannot show: of
	// several lines, or of more than 5 KiB.
	message, fallback string
}

// validating returns the ValidatingAdmissionPolicy. The API server evaluates a variable when an expression needs it, at
// most once for all validations, but again for all messages, and again for the audit annotations, also for a write that
// is admitted. Each evaluation costs some microseconds, whatever the expression, and most writes are admitted: so a
// match condition lets these pass, there are few variables, and all that is said depends on the one that reports
// whether anything is refused.
func (in *Input) validating(
	t *table,
) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	p := &program{in: in, rows: shard("t", byNamespace, lines(t.rows)), data: t.dataShards(), table: t,
		accounts: t.accounts,
		refusals: map[string][]refusal{}}
	p.variables = slices.Concat(p.rows.variables, p.data.variables)
	p.addRequest()
	p.addCandidates()
	p.addPlans()
	p.addCSVs()
	p.addSubscriptions()
	validation := p.validation()
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
					rule([]string{"installplans", "subscriptions", "clusterserviceversions"}, admissionv1.Create,
						admissionv1.Update),
					rule([]string{"installplans/status"}, admissionv1.Update),
				},
			},
			MatchConditions: p.matchConditions(),
			Variables:       p.variables,
			Validations:     []admissionv1.Validation{validation},
			AuditAnnotations: []admissionv1.AuditAnnotation{{Key: OverrideAnnotation,
				// Audit annotations cannot ask for rights. The event tells by its response whether the override was
				// accepted.
				ValueExpression: onPlan + " && " + overrideAsked + " && " + anyOffending + " ? 'override of ' + " +
					"variables.refusing.join(', ') + ' with reason ' + strings.quote(" + reason + ") : ''"}},
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
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn,
				Values: sorted(in.ExcludedNamespaces)}}
	}
	return selector
}

func rule(resources []string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	namespaced := admissionv1.NamespacedScope
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations, Rule: admissionv1.Rule{APIGroups: []string{olm.Group}, APIVersions: []string{"*"}, Resources: resources,
			Scope: &namespaced}}}
}

// set adds a variable.
func (p *program) set(name, expression string) {
	p.variables = append(p.variables, admissionv1.Variable{Name: name, Expression: expression})
}

// refuse adds rules for some requests.
func (p *program) refuse(on string, refusals ...refusal) {
	p.refusals[on] = append(p.refusals[on], refusals...)
}

// maxMessage is the size in bytes of what a message says before heldBy: the API server shows up to 5 KiB, and no line
// feeds.
const maxMessage = 5<<10 - len(heldBy)

// validation returns the one of all rules, after the variables that are the number of the first rule that refuses the
// request, or 0. What a rule excepts, those after it except as well, or do not refuse: so it alone says whether the
// write is admitted, and the message is its own. A new rule has to keep that, or what an exception of a rule before it
// admits gets past it.
//
// At each change of a policy the API server checks types for a time that grows with the square of an expression: each
// kind of request has a variable of its own, and so has what each rule says, which repeats no condition.
func (p *program) validation() admissionv1.Validation {
	var first, excepted, said string
	number := 0
	for i, on := range []string{onPlan, onPlanStatus, onCSV, onSubscription} {
		name := fmt.Sprintf("rule%d", i)
		p.set(name, firstOf(p.refusals[on], number+1))
		first += on + " ? variables." + name + " : "
		for _, r := range p.refusals[on] {
			number++
			isFirst := fmt.Sprintf("variables.rule == %d", number)
			if r.except != "" {
				excepted += " || " + isFirst + " && (" + r.except + ")"
			}
			text := fmt.Sprintf("text%d", number)
			p.set(text, r.message)
			said += isFirst + " ? [variables." + text + ", " + quote(r.fallback+" ("+string(r.id)+")") + "] : "
		}
	}
	p.set("rule", first+"0")
	forbidden := metav1.StatusReasonForbidden
	return admissionv1.Validation{
		Expression: "variables.rule == 0" + excepted,
		MessageExpression: fmt.Sprintf(
			"variables.rule == 0 ? '' : [%s['', '']].map(m, size(bytes(m[0])) > %d || m[0].contains('\\n') ? m[1] : m[0])[0] + %s",
			said, maxMessage, quote(heldBy)),
		Message: "the write is not allowed" + heldBy,
		Reason:  &forbidden,
	}
}

func (r refusal) refuses() string   { return r.when }
func (r refusal) mayRefuse() string { return cmp.Or(r.may, r.when) }

// guarded are rules that follow one another and share a guard.
type guarded struct {
	guard string
	rules []refusal
}

// groups returns some rules in order, those that share a guard together.
func groups(refusals []refusal) (all []guarded) {
	for _, r := range refusals {
		if len(all) == 0 || all[len(all)-1].guard != r.guard {
			all = append(all, guarded{guard: r.guard})
		}
		last := &all[len(all)-1]
		last.rules = append(last.rules, r)
	}
	return all
}

// any is an expression that reports whether something is true of any of the rules, with the guard once.
func (g *guarded) any(of func(refusal) string) string {
	parts := make([]string, len(g.rules))
	for i, r := range g.rules {
		parts[i] = of(r)
	}
	e := "(" + strings.Join(slices.Compact(parts), " || ") + ")"
	if g.guard != "" {
		e = g.guard + " && " + e
	}
	return e
}

// mayRefuse is an expression that is true whenever any of some rules refuses.
func mayRefuse(refusals []refusal) string {
	var all []string
	for _, g := range groups(refusals) {
		all = append(all, g.any(refusal.mayRefuse))
	}
	return strings.Join(all, " || ")
}

// firstOf is an expression for the number of the first of some rules that refuses, the first of which has a number, or
// 0.
func firstOf(refusals []refusal, number int) string {
	var e strings.Builder
	for _, g := range groups(refusals) {
		last := -1
		if g.guard != "" { // what follows the group is written once
			e.WriteString(g.any(refusal.refuses) + " ? (")
			last = len(g.rules) - 1
		}
		for i, r := range g.rules {
			if i == last {
				fmt.Fprintf(&e, "%d) : ", number)
			} else {
				fmt.Fprintf(&e, "%s ? %d : ", r.when, number)
			}
			number++
		}
	}
	return e.String() + "0"
}

// heldBy ends each message.
const heldBy = "; held by the API server (ValidatingAdmissionPolicy " + Name + ")"

// addRequest adds what all kinds of requests need.
func (p *program) addRequest() {
	// The rows of the namespace, each a list of its columns, and then the data of its check.
	everywhere := ""
	for _, row := range p.table.everywhere {
		everywhere += " + [" + quote(row) + ".split(' ')]"
	}
	p.set("rules", p.rows.values(".split(' ')")+".map(r, r + "+p.data.value()+".split('|', 2)[0].split(' '))"+
		everywhere)
	p.set("olm", p.in.byOLM())
	p.set("name", "request.namespace + '/' + (object.metadata.?name.orValue('') != '' ? "+
		"object.metadata.name : object.metadata.?generateName.orValue('') + '*')")
	// The first of the policies, in whose name the gate refuses what no single policy is about.
	p.set("first", "variables.rules.map(r, r[2]).min()")
}

// byOLM is an expression that reports whether OLM writes. It is a superset of the gate's OLM, which also verifies the
// account.
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
func by(policy string, id verdict.RuleID) string {
	return "' by OperatorPolicy ' + " + policy + " + ' (" + string(id) + "): '"
}

// show is an expression for a name from an object, as internal/text shows it.
func show(name string) string {
	return "(" + name + ".matches('^[!-~]{1,253}$') ? " + name + " : size(" + name + ") > 120 ? strings.quote(" + name +
		".substring(0, 120)) + '...' : strings.quote(" + name + "))"
}
