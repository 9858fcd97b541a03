package backstop

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// addCSVs adds the rules on ClusterServiceVersions that others than OLM write. They are judged by their own properties. What OLM itself
// writes as a step of a plan is left to the gate: the plan was judged when it was approved, or overridden.
func (p *program) addCSVs() {
	properties := func(object string) string {
		return "string(" + object + ".metadata.?annotations[?" + quote(olm.PropertiesAnnotation) + "].orValue(''))"
	}
	copied := func(object string) string {
		return object + ".metadata.?labels[?" + quote(olm.CopiedFromLabel) + "].orValue('')"
	}
	p.set("csv", "variables.governed && variables.resource == 'clusterserviceversions' && "+
		"request.userInfo.username != "+quote(p.in.Opgate))
	// A copy runs nothing, so a write that makes something else of it installs the operator.
	p.set("installs", "variables.csv && (!variables.update || "+
		copied("oldObject")+" != '' && "+copied("oldObject")+" != "+copied("object")+")")
	p.set("stepAccount", p.stepAccount())
	// An update is judged if it only changes the properties: with another spec, it may restore what a plan brought.
	p.set("redescribes", "variables.csv && variables.update && !variables.installs && "+properties("object")+" != "+properties("oldObject")+
		" && object.?spec == oldObject.?spec")
	own := func(object string) string {
		return "[[string(object.metadata.?name.orValue('')), " + described(properties(object)) + "]]"
	}
	p.set("candidatesNow", "variables.installs || variables.redescribes ? "+candidates(own("object"))+" : []")
	p.set("candidatesBefore", "variables.redescribes ? "+candidates(own("oldObject"))+" : []")
	p.set("offendingCSV", "variables.candidatesNow.filter(c, (variables.installs || variables.redescribes && "+
		member(described(properties("oldObject")), "packageName")+" != '' && "+
		member(described(properties("oldObject")), "packageName")+" != c[1]) && "+p.offends(false)+")")
	object := "'clusterserviceversion ' + variables.name + ': ' + "
	p.refuse(rules.RuleCSVPolicy, "size(variables.offendingCSV) > 0 && !(variables.installs && variables.stepAccount) && !variables.olm",
		"(size(variables.offendingCSV) > 0 ? "+object+"variables.offendingCSV.map(c, "+p.reasons(false)+").join('; ') : '')",
		"this ClusterServiceVersion is not one that a policy allows")
	p.refuse(rules.RuleCSVFrozen, "size(variables.candidatesBefore) > 0 && !variables.olm",
		"(size(variables.candidatesBefore) > 0 ? "+object+"'changing metadata.annotations["+olm.PropertiesAnnotation+"] of ' + "+
			show("variables.candidatesBefore[0][0]")+" + ' is not allowed' + "+
			by("variables.rules.filter(r, r[0] == variables.candidatesBefore[0][1])[0][2]", rules.RuleCSVFrozen)+
			" + 'it stays as OLM installed it; let OLM install another version' : '')",
		"changing a governed ClusterServiceVersion is not allowed")
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
	accounts := shard("s", lines(entries))
	p.variables = append(p.variables, accounts.variables...)
	return "request.userInfo.username in " + accounts.values("request.namespace") + ".map(a, " + prefix + " + a)"
}
