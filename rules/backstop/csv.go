package backstop

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
)

// installs is an expression that reports whether a write of a ClusterServiceVersion installs an operator.
const installs = "variables.installs"

// addCSVs adds the rules on ClusterServiceVersions that others than OLM write. They are judged by their own properties,
// which have to name the package in a form that can be read here (threat O41). What OLM itself writes as a step of a
// plan is left to the gate: the plan was judged when it was approved, or overridden.
func (p *program) addCSVs() {
	byOthers := governed + " && request.userInfo.username != " + quote(p.in.Opgate)
	// An update is judged if it only changes the properties: with another spec, it may restore what a plan brought.
	p.set("redescribes", update+" && !variables.installs && "+propertiesOf("object")+" != "+propertiesOf("oldObject")+
		" && object.?spec == oldObject.?spec")
	const redescribes = "variables.redescribes"
	p.set("described", candidates(self("oldObject"))+".filter(c, variables.rules.exists(r, "+p.about("c[1]")+"))")
	const object = "'clusterserviceversion ' + variables.name + ': ' + "
	byStep := installs + " && " + p.stepAccount() + " || variables.olm"
	p.refuse(onCSV, refusal{
		id:       bundle.RuleVersion,
		when:     "(" + installs + " || " + redescribes + ") && " + byOthers + " && " + anyOffending,
		except:   byStep,
		message:  object + "variables.reasons",
		fallback: "this ClusterServiceVersion is not one that a policy allows",
	}, refusal{
		id:     rules.RuleCSVFrozen,
		when:   redescribes + " && " + byOthers + " && size(variables.described) > 0",
		except: "variables.olm",
		message: object + "'changing metadata.annotations[" + olm.PropertiesAnnotation + "] of ' + " +
			show("variables.described[0][0]") +
			" + ' is not allowed' + " + by("variables.rules.filter(r, "+p.about("variables.described[0][1]")+")[0][2]",
			rules.RuleCSVFrozen) +
			" + 'it stays as OLM installed it; let OLM install another version'",
		fallback: "changing a governed ClusterServiceVersion is not allowed",
	}, refusal{
		id: bundle.RuleUnknown,
		when: "(" + installs + " || " + redescribes + " && " + namesPackage("oldObject") + ") && " + byOthers +
			" && !" +
			namesPackage("object"),
		except: byStep,
		message: object + "'the package of ' + " + show("object.metadata.?name.orValue('')") +
			" + ' is not known and it is held' + " +
			by("variables.first", bundle.RuleUnknown) + " + 'let OLM install it, from a Subscription'",
		fallback: "the package of this ClusterServiceVersion is not known and it is held",
	})
}

// namesPackage is an expression for olm.NamesPackage of the properties of a ClusterServiceVersion.
func namesPackage(object string) string {
	const (
		contents = `!c[0].contains('\\') && c[0].contains('"packageName":"') && !c[0].contains('"packageName":""') && ` +
			`size(c[0].lowerAscii().split('"packagename"')) == 2 && size(c[0].lowerAscii().split('"version"')) <= 2`
		value = `p[1].startsWith(',"value":{') && [p[1].split('}', 3)].exists(c, size(c) == 3 && c[1] == '' && ` +
			`(c[2].startsWith(',') || c[2].startsWith(']')) && ` + contents + `)`
	)
	return "[" + propertiesOf(object) + `.split('"` + olm.TypePackage +
		`"')].exists(p, size(p) == 2 && p[0].endsWith('{"type":') && ` + value + ")"
}

func propertiesOf(object string) string {
	return "string(" + object + ".metadata.?annotations[?" + quote(olm.PropertiesAnnotation) + "].orValue(''))"
}

func copiedFrom(object string) string {
	return object + ".metadata.?labels[?" + quote(olm.CopiedFromLabel) + "].orValue('')"
}

// self is an expression for the list of the one candidate that a ClusterServiceVersion is.
func self(object string) string {
	return "[[string(" + object + ".metadata.?name.orValue('')), " + described(propertiesOf(object)) + "]]"
}

// stepAccount is an expression that reports whether a ServiceAccount writes as which OLM may write steps of plans. The
// gate admits what it writes if the plan was overridden.
func (p *program) stepAccount() string {
	const prefix = "'system:serviceaccount:' + request.namespace + ':'"
	if p.in.Accounts == nil || p.accounts == nil {
		return "request.userInfo.username.startsWith(" + prefix + ")"
	}
	accounts := shard("s", byNamespace, lines(p.accounts))
	p.variables = append(p.variables, accounts.variables...)
	return "request.userInfo.username in " + accounts.values("") + ".map(a, " + prefix + " + a)"
}
