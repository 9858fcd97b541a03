package backstop

import (
	"fmt"
	"strings"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
)

// The texts by which an expression finds the package of a bundle, as OLM marshals them.
const (
	packageProperty = `{"type":"olm.package","value":{`
	propertiesKey   = `"` + olm.PropertiesAnnotation + `":"`
)

// A candidate is a ClusterServiceVersion as one place of an object describes it: the list of its name, package and the
// contents of its property. The gate reads the same, or, if places disagree, holds it: one place is enough to refuse.

// described is an expression for the contents of the first olm.package property of a bundle; ” if there is none. OLM
// marshals properties compactly.
func described(properties string) string {
	return properties + ".split(" + quote(packageProperty) + ", 2)[?1].orValue('').split('}', 2)[0]"
}

// describedInManifest is described for the manifest of a step, in which the annotation with the properties is a string
// with escaped quotes. It ends before the next quote that is not escaped, which another key follows. The cost is six
// tenths of the size.
func describedInManifest(manifest string) string {
	return "[" + manifest + ".split(" + quote(propertiesKey) + ", 2)[?1].orValue('').split(" +
		quote(strings.ReplaceAll(packageProperty, `"`, `\"`)) +
		", 2)].map(p, size(p) < 2 || p[0].contains('\",\"') || p[0].contains('\"},\"') ? '' : " +
		"p[1].split('}', 2)[0].replace(" + quote(`\"`) + `, '"'))[0]`
}

// member is an expression for a string in the contents of a property.
func member(contents, key string) string {
	return contents + ".split(" + quote(`"`+key+`":"`) + ", 2)[?1].orValue('').split('\"', 2)[0]"
}

// candidates is an expression for the candidates, from a list of pairs of a name and the contents of a property.
func candidates(pairs string) string {
	return pairs + ".map(b, b[1] != '', [b[0], " + member("b[1]", "packageName") + ", b[1]])"
}

// version is an expression for the version of candidate c.
var version = member("c[2]", "version")

// refuses is an expression that reports whether row r refuses candidate c.
func (p *program) refuses() string {
	const named = "('" + prefixName + "' + c[0]) in r"
	// What most rows say comes first.
	e := "r[1].startsWith('" + checkAllow + "') ? !(" + named + ") : r[1] == '" + checkUnreadable +
		"' || r[1].startsWith('" + checkForbidAll + "')" +
		" || r[1].startsWith('" + checkPending + "') && !(" + onCSV + ")" // one that is written now waits for nothing
	e += " || r[1].startsWith('" + checkForbid + "') && " + named
	if p.in.Features.Semver {
		// A range admits what is in it, or refuses that; neither admits what is no version.
		e += " || r[1].matches('^[" + checkAllowIn + checkForbidIn + "]') && (r[1].startsWith('" + checkAllowIn +
			"') ? !(" + named + ") : " + named + " || !r.exists(x, x.startsWith('" + prefixName + "'))) && [" + version +
			"].exists(s, !isSemver(s) || " + inRange + " != r[1].startsWith('" + checkAllowIn + "'))"
	}
	if p.table.excepted { // exceptions are about what plans bring
		e = "(" + onCSV + " || !(('" + prefixExcepted + "' + c[0]) in r)) && (" + e + ")"
	}
	return p.about("c[1]") + " && (" + e + ")"
}

// about is an expression that reports whether row r is about a package.
func (p *program) about(pkg string) string {
	if p.table.anyPackage {
		return "r[0] in ['" + everyPackage + "', " + pkg + "]"
	}
	return "r[0] == " + pkg
}

// inPlan is an expression for the pairs of which the candidates of a plan are made: one or two for each
// ClusterServiceVersion.
const inPlan = "(variables.inLookups + variables.inSteps)"

// addCandidates adds the variables about candidates, of a plan or the one that a ClusterServiceVersion is.
func (p *program) addCandidates() {
	// Each of the two may cost most of what one expression may cost.
	p.set("inLookups", lookups+".map(l, [string(l.?identifier.orValue('')), "+
		described("string(l.?properties.orValue(''))")+"])")
	p.set("inSteps", csvSteps+".map(s, [string(s.resource.?name.orValue('')), "+
		describedInManifest("string(s.resource.?manifest.orValue(''))")+"])")
	// A copy runs nothing, so a write that makes something else of it installs the operator.
	p.set("installs", "!"+update+" || "+copiedFrom("oldObject")+" != '' && "+copiedFrom("oldObject")+" != "+
		copiedFrom("object"))
	packageBefore := member(described(propertiesOf("oldObject")), "packageName")
	p.set("candidates", candidates("("+onCSV+" ? "+self("object")+" : "+inPlan+")")+
		".filter(c, !("+onCSV+") || "+installs+" || "+packageBefore+" != '' && "+packageBefore+" != c[1])")
	p.set("offending", p.offending())
	p.set("reasons", p.reasons())
}

// anyOffending is an expression that reports whether a policy refuses any candidate.
const anyOffending = "size(variables.offending) > 0"

// offends is anyOffending for a plan, without variables.
func (p *program) offends() string {
	return candidates(inPlan) + ".exists(c, variables.rules.exists(r, " + p.refuses() + "))"
}

// offending is an expression for those candidates that a policy refuses, each as a pair of lists: of the candidate, and
// of the rows that refuse it. All that is said of them is made of it: the API server takes long to check the types of
// what compares candidates with rows.
func (p *program) offending() string {
	return "variables.candidates.map(c, [[c], variables.rules.filter(r, " + p.refuses() +
		")]).filter(o, size(o[1]) > 0)"
}

// reasons is an expression for why the first offending candidates are refused, and the number of the others.
func (p *program) reasons() string {
	first := "["
	for i := range maxShown {
		if i > 0 {
			first += ", "
		}
		first += fmt.Sprintf("variables.offending[?%d]", i)
	}
	return first + "].filter(o, o.hasValue()).map(o, o.value()).map(o, o[1].map(r, o[0].map(c, " + p.reason() +
		")[0]).join('; ')).join('; ') + " +
		fmt.Sprintf("(size(variables.offending) > %d ? '; and ' + string(size(variables.offending) - %d) + ' more' : '')", maxShown, maxShown)
}

// reason is an expression for why row r refuses candidate c, in the words of the gate. What several of its parts need
// is l, the names or the text of the row, and v, the version.
func (p *program) reason() string {
	names := "r.filter(x, x.startsWith('" + prefixName + "')).map(x, x.substring(1))"
	list := "[" + p.data.value() + ".split('|', 2)[?1].orValue('')].map(m, m != '' ? m : " + names + ".join(', '))"
	id := func(id verdict.RuleID) string { return by("r[2]", id) }
	allowed := "(r.exists_one(x, x.startsWith('" + prefixName + "')) ? 'allowed is ' : 'allowed are ') + l"
	forbidden := "' is forbidden' + " + id(bundle.RuleMustNotHave) + " + 'the policy is mustnothave for ' + "
	says := func(checks, what string) string { return "r[1].matches('^[" + checks + "]') ? " + what + " : " }
	return list + ".map(l, " + show("c[0]") + " + (" +
		says(checkAllow, "' is not allowed' + "+id(bundle.RuleVersion)+" + "+allowed) +
		says(checkAllowIn, "["+version+"].map(v, ' (version ' + "+show("v")+" + ') is not allowed')[0] + "+
			id(bundle.RuleVersionRange)+
			" + 'allowed is versionRange ' + l") +
		says(checkForbidAll, forbidden+"'package ' + c[1]") +
		says(checkForbid+checkForbidIn, forbidden+"l") +
		says(checkUnreadable, "' is held' + "+id(bundle.RulePolicyUnreadable)+
			" + 'waits until the policy can be read'") +
		"' is held' + " + id(bundle.RuleDependencyPending) +
		" + 'waits until what its Policy depends on is met'))[0]"
}
