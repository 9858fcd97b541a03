package backstop

import "github.com/opgate/opgate/rules"

// A candidate is a ClusterServiceVersion as one place of an object describes it: the list of its name, package and version. The gate reads
// the same, or, if places disagree, holds it: one place is enough to refuse.

// described is an expression for the contents of the first olm.package property of a bundle, with plain quotes; ” if there is none. OLM
// marshals properties compactly. In properties that are a string inside of JSON, each quote is escaped.
func described(properties string, escaped bool) string {
	property := `{"type":"olm.package","value":{`
	unescape := ""
	if escaped {
		property = `{\"type\":\"olm.package\",\"value\":{`
		unescape = `.replace(` + quote(`\"`) + `, '"')`
	}
	return properties + ".split(" + quote(property) + ", 2)[?1].orValue('').split('}', 2)[0]" + unescape
}

// member is an expression for a string in the contents of a property.
func member(contents, key string) string {
	return contents + ".split(" + quote(`"`+key+`":"`) + ", 2)[?1].orValue('').split('\"', 2)[0]"
}

// candidates is an expression for the candidates of a governed package, from a list of pairs of a name and the contents of a property.
func candidates(pairs string) string {
	return pairs + ".filter(b, b[1] != '').map(b, [b[0], " + member("b[1]", "packageName") + ", " + member("b[1]", "version") +
		"]).filter(c, c[1] in variables.policies)"
}

// checksOf is an expression for the checks in an entry of the table, and policyOf for the policy.
func checksOf(entry string) string { return entry + ".split(' ')[0].split('+')" }
func policyOf(entry string) string { return entry + ".split(' ')[1]" }

// refuses is an expression that reports whether check i refuses candidate c.
func (p *program) refuses(plan bool) string {
	names := p.names.get("i", "[]")
	e := "i == '" + checkUnreadable + "' || i == '" + checkForbidAll + "'"
	if plan {
		e += " || i == '" + checkPending + "'" // a ClusterServiceVersion that is written now waits for nothing
	}
	e += " || i.startsWith('" + checkAllow + "') && !(c[0] in " + names + ")" +
		" || i.startsWith('" + checkForbid + "') && c[0] in " + names
	if p.in.Features.Semver {
		in := inRange("c[2]", p.ranges.get("i", "[]"))
		e += " || i.startsWith('" + checkAllowIn + "') && !(c[0] in " + names + ") && !" + in +
			" || i.startsWith('" + checkForbidIn + "') && (size(" + names + ") == 0 || c[0] in " + names + ") && " +
			"(!isSemver(c[2]) || " + in + ")"
	}
	return e
}

// offends is an expression that reports whether a policy, entry r, refuses candidate c.
func (p *program) offends(plan bool) string {
	return checksOf("r") + ".exists(i, " + p.refuses(plan) + ")"
}

// reasons is an expression for why the policies refuse candidate c.
func (p *program) reasons(plan bool) string {
	return "variables.policies[c[1]].filter(r, " + p.offends(plan) + ").map(r, " +
		checksOf("r") + ".filter(i, " + p.refuses(plan) + ").map(i, " + p.reason(plan) + ").join('; ')).join('; ')"
}

// reason is an expression for why check i of entry r refuses candidate c, in the words of the gate.
func (p *program) reason(plan bool) string {
	names, more := p.names.get("i", "[]"), p.texts.get("i", "''")
	list := "(" + more + " != '' ? " + more + " : " + names + ".join(', '))"
	id := func(id rules.RuleID) string {
		if !plan {
			id = rules.RuleCSVPolicy
		}
		return by(policyOf("r"), id)
	}
	name := show("c[0]")
	says := func(check, what, end string) string { return "i.startsWith('" + check + "') ? " + name + " + " + what + " + " + end + " : " }
	forbidden := "' is forbidden' + " + id(rules.RulePlanMustNotHave)
	e := says(checkAllow, "' is not allowed' + "+id(rules.RulePlanVersion), "(size("+names+") == 1 ? 'allowed is ' : 'allowed are ') + "+list) +
		says(checkAllowIn, "' (version ' + "+show("c[2]")+" + ') is not allowed' + "+id(rules.RulePlanVersionRange), "'allowed is versionRange ' + "+list) +
		says(checkForbidAll, forbidden, "'the policy is mustnothave for package ' + c[1]") +
		says(checkForbid, forbidden, "'the policy is mustnothave for ' + "+list) +
		says(checkForbidIn, forbidden, "'the policy is mustnothave for ' + "+list) +
		says(checkUnreadable, "' is held' + "+by(policyOf("r"), rules.RulePolicyUnreadable), "'waits until the policy can be read'")
	return e + name + " + ' is held' + " + id(rules.RulePlanDependencyPending) + " + 'waits until what its Policy depends on is met'"
}
