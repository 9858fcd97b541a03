package backstop

import (
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// maxCondition is the size in bytes of the longest match condition. The compiler of CEL reads up to 100,000
	// characters.
	maxCondition = 96 << 10
	// What a match condition judges of a plan, since all of it may cost what one expression may: some steps, few of
	// which are ClusterServiceVersions or bundles, and some bytes of each. Most plans are smaller.
	maxSteps, maxBundles, maxEntry = 200, 8, 48 << 10
)

// large is an expression that reports whether a plan is too large for a match condition.
var large = fmt.Sprintf("%s && (size(%s) > %d || %s > %d || size(%s) + size(%s) > %d || %s || %s)", update,
	steps, maxSteps, names, maxSteps, csvSteps, lookups, maxBundles, anyLonger(steps, "resource.?manifest"),
	anyLonger(lookups, "properties"))

func anyLonger(list, field string) string {
	return fmt.Sprintf("%s.exists(e, size(string(e.?%s.orValue(''))) > %d)", list, field, maxEntry)
}

// matchConditions returns the condition under which the API server looks at anything else: that a rule may refuse the
// write of a plan, or that something else is written. Most plans that are approved are admitted, and are evaluated once
// by it instead of three times, for the validation, its message and the audit annotation. It cannot use variables, so
// it has the table a second time. If that is too long there is no condition, and the same writes are refused. Rules on
// other writes would make the API server compile it for longer, which delays every edit of a policy.
func (p *program) matchConditions() []admissionv1.MatchCondition {
	values := map[string]string{}
	for _, v := range p.variables {
		values["variables."+v.Name] = v.Expression
	}
	rows := inline(values["variables.rules"], values)
	values["variables.rules"] = "rules"
	refused := strings.ReplaceAll(mayRefuse(p.refusals[onPlan]), anyOffending, p.offends())
	expression := fmt.Sprintf("!(%s) || %s || [%s].exists(rules, %s)", onPlan, large, rows, inline(refused, values))
	if len(expression) > maxCondition {
		return nil
	}
	return []admissionv1.MatchCondition{{Name: "may-be-refused", Expression: expression}}
}

var reference = regexp.MustCompile(`variables\.\w+`)

// inline returns an expression with what variables are in place of them.
func inline(expression string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(expression, func(name string) string {
		if value := values[name]; name != value {
			return "(" + inline(value, values) + ")"
		}
		return name
	})
}
