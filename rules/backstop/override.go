package backstop

import (
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/evidence"
)

var (
	reason      = "string(" + reasonOf("object") + ")"
	reasonAdded = reason + " != '' && (!" + update + " || " + reason + " != " + reasonOf("oldObject") + ")"
	// overrideAsked is true for an approval that comes with a reason.
	overrideAsked = "(" + reasonAdded + " && " + approves + ")"
	// overrideMoved is true for an update that changes when the override on a plan ends, except to now.
	overrideMoved = reason + " != '' && " + reason + " == " + reasonOf("oldObject") + " && " + expiresOf("object") +
		" != " +
		expiresOf("oldObject") + " && !(" + expiresOf("object") + " in ['ended', 'ended ' + " + expiresOf("oldObject") +
		"])"
)

func expiresOf(object string) string {
	return object + ".metadata.?annotations[?" + quote(evidence.OverrideExpiresAnnotation) + "].orValue('')"
}

func reasonOf(object string) string {
	return object + ".metadata.?annotations[?" + quote(evidence.OverrideReasonAnnotation) + "].orValue('').trim()"
}

// addOverride adds break-glass, as the gate has it: the reason comes with the approval, and the user has the verb
// override on every policy that refuses. What the gate alone refuses is left to it.
func (p *program) addOverride() {
	p.set("refusing", "variables.rules.filter(r, r[3] == '*' && variables.offending.exists(o, o[1].exists(q, q[2] == r[2]))).map(r, r[2])")
	rights := fmt.Sprintf("size(variables.refusing) <= %d", maxPolicies)
	for i := 0; i < maxPolicies; i += 2 {
		name := fmt.Sprintf("right%d", i/2)
		p.set(name, right(i)+" && "+right(i+1))
		rights += " && variables." + name
	}
	p.set("mayOverride", rights)
}

// right is an expression that reports whether the user may override one of the refusing policies, or there is none.
func right(i int) string {
	policy := fmt.Sprintf("variables.refusing[%d]", i)
	return fmt.Sprintf("(size(variables.refusing) <= %d || authorizer.group('%s').resource('operatorpolicies').namespace(%s.split('/')[0])"+
		".name(%s.split('/')[1]).check('override').allowed())", i, policyv1beta2.Group, policy, policy)
}
