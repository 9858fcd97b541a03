package backstop

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// addCSVs adds the rules on ClusterServiceVersions that others than OLM write. They are judged by their own properties. What OLM itself
// writes as a step of a plan is left to the gate: the plan was judged when it was approved, or overridden.
func (p *program) addCSVs() {
	byOthers := governed + " && request.userInfo.username != " + quote(p.in.Opgate)
	// A copy runs nothing, so a write that makes something else of it installs the operator.
	installs := "(!" + update + " || " + copiedFrom("oldObject") + " != '' && " + copiedFrom("oldObject") + " != " + copiedFrom("object") + ")"
	// An update is judged if it only changes the properties: with another spec, it may restore what a plan brought.
	redescribes := "(" + update + " && !" + installs + " && " + propertiesOf("object") + " != " + propertiesOf("oldObject") +
		" && object.?spec == oldObject.?spec)"
	packageBefore := member(described(propertiesOf("oldObject")), "packageName")
	p.set("described", candidates(self("oldObject"))+".filter(c, variables.rules.exists(r, r[0] == c[1]))")
	p.set("offendingCSV", candidates(self("object"))+".filter(c, ("+installs+" || "+packageBefore+" != '' && "+packageBefore+" != c[1]) && "+
		p.offends(false)+")")
	p.set("reasonsCSV", "variables.offendingCSV.map(c, "+p.reasons(false)+").join('; ')")
	const object = "'clusterserviceversion ' + variables.name + ': ' + "
	p.refuse(onCSV, refusal{
		id:       rules.RuleCSVPolicy,
		when:     "(" + installs + " || " + redescribes + ") && " + byOthers + " && size(variables.offendingCSV) > 0",
		except:   installs + " && " + p.stepAccount() + " || variables.olm",
		message:  object + "variables.reasonsCSV",
		fallback: "this ClusterServiceVersion is not one that a policy allows",
	}, refusal{
		id:     rules.RuleCSVFrozen,
		when:   redescribes + " && " + byOthers + " && size(variables.described) > 0",
		except: "variables.olm",
		message: object + "'changing metadata.annotations[" + olm.PropertiesAnnotation + "] of ' + " + show("variables.described[0][0]") +
			" + ' is not allowed' + " + by("variables.rules.filter(r, r[0] == variables.described[0][1])[0][2]", rules.RuleCSVFrozen) +
			" + 'it stays as OLM installed it; let OLM install another version'",
		fallback: "changing a governed ClusterServiceVersion is not allowed",
	})
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

// stepAccount is an expression that reports whether a ServiceAccount writes as which OLM may write steps of plans. The gate admits what it
// writes if the plan was overridden.
func (p *program) stepAccount() string {
	const prefix = "'system:serviceaccount:' + request.namespace + ':'"
	if p.in.Accounts == nil {
		return "request.userInfo.username.startsWith(" + prefix + ")"
	}
	entries := map[string][]string{}
	for namespace, names := range p.in.Accounts {
		entries[namespace] = sorted(names)
	}
	accounts := shard("s", byNamespace, lines(entries))
	p.variables = append(p.variables, accounts.variables...)
	return "request.userInfo.username in " + accounts.values("") + ".map(a, " + prefix + " + a)"
}
