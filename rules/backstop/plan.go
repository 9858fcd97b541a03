package backstop

import (
	"fmt"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// maxPolicies bounds the policies for which an override is checked. The API server allows two checks of rights in an expression, and some
// twenty for a request. What more policies refuse can be overridden through the gate only.
const maxPolicies = 8

// maxShown bounds the ClusterServiceVersions that a message shows.
const maxShown = 3

// maxCSVs bounds the ClusterServiceVersions of a plan, for the API server's limit of cost. Plans in use have some dozens. A larger one is
// held here although the gate might admit it: who may subscribe to that many packages would get anything past the rules with it.
const maxCSVs = 1000

// addPlans adds the rules on InstallPlans, judged as the gate judges them: by what is stored, which OLM has written.
func (p *program) addPlans() {
	p.addPlanVariables()
	p.addOverride()
	object := "'installplan ' + variables.name + ': ' + "
	p.refuse(rules.RulePlanCreate, all("variables.resource == 'installplans'", "!variables.update", "variables.governed", "!variables.olm"),
		"(variables.governed ? "+object+"'creating an InstallPlan by hand is not allowed' + "+by("variables.first", rules.RulePlanCreate)+
			" + 'OLM creates plans from Subscriptions; create or change one of these' : '')",
		"creating an InstallPlan by hand is not allowed")
	p.refuse(rules.RulePlanOverrideReason, "variables.planted && !(!variables.update && variables.olm)",
		object+"'annotation "+rules.OverrideReasonAnnotation+" is not allowed here ("+string(rules.RulePlanOverrideReason)+
			"): give it together with spec.approved, and only where the approval is refused without it'",
		"annotation "+rules.OverrideReasonAnnotation+" is not allowed here")
	p.refuse(rules.RulePlanFrozen, "size(variables.frozen) > 0 && !(variables.resource == 'installplans/status' && variables.olm)",
		"(size(variables.frozen) > 0 ? "+object+"'changing ' + variables.frozen.join(', ') + ' is not allowed' + "+
			by("variables.first", rules.RulePlanFrozen)+
			" + 'what a plan holds is what was judged; OLM writes a new plan when there is something new' : '')",
		"changing what a plan holds is not allowed")
	const byOthers = "(!variables.starts || !variables.olm)"
	p.refuse(rules.RulePlanPhase, all("variables.judged", byOthers, "variables.unfinished"),
		"(variables.judged && !"+startedByOLM+" ? "+object+"'the plan is not ready, or too large, and is held' + "+
			by("variables.first", rules.RulePlanPhase)+
			" + 'waits until OLM has written its steps and asks for approval (phase "+olm.PhaseRequiresApproval+")' : '')",
		"the plan is not ready and is held")
	p.refuse(rules.RulePlanVersion, all("variables.judged", byOthers, "size(variables.offending) > 0",
		"!(variables.overrideAsked && variables.mayOverride)"),
		"(variables.judged && !"+startedByOLM+" && size(variables.offending) > 0 ? "+object+p.offendingText(true)+
			" + (variables.overrideAsked ? "+
			"'; the override needs the verb override on operatorpolicies ' + variables.refusing.join(', ') : '') : '')",
		"the plan holds what no policy allows")
	p.refuse(rules.RulePlanStatusPhase, "variables.moved && !variables.olm",
		"(variables.moved ? "+object+"'changing status.phase from \"' + variables.phases[0] + '\" to \"' + variables.phases[1] + "+
			"'\" is not allowed' + "+
			by("variables.first", rules.RulePlanStatusPhase)+" + 'only OLM moves the phase of a plan; set spec.approved instead' : '')",
		"changing status.phase is not allowed")
}

// startedByOLM keeps messages, which cannot ask for rights, from judging what OLM itself writes.
const startedByOLM = "(variables.starts && variables.olmName)"

// offendingText is an expression for the reasons of the first offending candidates, and the number of the others.
func (p *program) offendingText(plan bool) string {
	first := "["
	for i := range maxShown {
		if i > 0 {
			first += ", "
		}
		first += fmt.Sprintf("variables.offending[?%d]", i)
	}
	return first + "].filter(o, o.hasValue()).map(o, o.value()).map(c, " + p.reasons(plan) + ").join('; ') + " +
		fmt.Sprintf("(size(variables.offending) > %d ? '; and ' + string(size(variables.offending) - %d) + ' more' : '')", maxShown, maxShown)
}

func (p *program) addPlanVariables() {
	p.set("phases", "variables.resource.startsWith('installplans') && variables.update ? "+
		"[string(oldObject.?status.?phase.orValue('')), string(object.?status.?phase.orValue(''))] : ['', '']")
	p.set("wasApproved", "variables.update && oldObject.?spec.?approved.orValue(false) == true")
	p.set("approves", "variables.governed && variables.resource == 'installplans' && variables.update && "+
		"object.?spec.?approved.orValue(false) == true && !variables.wasApproved")
	p.set("changesPhase", "variables.governed && variables.resource == 'installplans/status' && variables.phases[0] != variables.phases[1]")
	// The one move of a phase that others than OLM may make: what it leads to is judged like an approval.
	p.set("starts", "variables.changesPhase && variables.phases[1] == '"+olm.PhaseInstalling+"' && variables.phases[0] == '"+
		olm.PhaseRequiresApproval+"' && variables.wasApproved")
	p.set("moved", "variables.changesPhase && !variables.starts")
	p.set("judged", "variables.approves || variables.starts")
	p.set("lookups", "variables.judged ? oldObject.?status.?bundleLookups.orValue([]) : []")
	p.set("steps", "variables.judged ? oldObject.?status.?plan.orValue([]) : []")
	p.set("csvSteps", "variables.steps.filter(s, s.?resource.?kind.orValue('') == '"+olm.KindClusterServiceVersion+"')")
	names := "size(oldObject.?spec.?clusterServiceVersionNames.orValue([]))"
	p.set("unfinished", "variables.judged && (variables.phases[0] == '' || variables.phases[0] == '"+olm.PhasePlanning+"' || "+
		names+" + size(variables.csvSteps) + size(variables.lookups) == 0 || "+
		names+" + size(variables.steps) + size(variables.lookups) > "+fmt.Sprint(olm.MaxPlanEntries)+" || "+
		"size(variables.csvSteps) + size(variables.lookups) > "+fmt.Sprint(maxCSVs)+")")
	p.set("inLookups", "variables.unfinished ? [] : variables.lookups.map(l, [string(l.?identifier.orValue('')), "+
		described("string(l.?properties.orValue(''))")+"])")
	p.set("inSteps", "variables.unfinished ? [] : variables.csvSteps.map(s, [string(s.resource.?name.orValue('')), "+
		describedInManifest("string(s.resource.?manifest.orValue(''))")+"])")
	p.set("candidates", candidates("(variables.inLookups + variables.inSteps)"))
	p.set("offending", "variables.judged ? variables.candidates.filter(c, "+p.offends(true)+") : []")
	p.set("frozen", "!variables.governed || !variables.update ? [] : variables.resource == 'installplans' ? "+
		frozenSpec+" : variables.resource == 'installplans/status' ? "+frozenStatus+" : []")
}

// frozenSpec and frozenStatus are expressions for the fields that a write changes although they are what was judged.
var (
	frozenSpec = changed("spec.clusterServiceVersionNames", "[]") + " + " + changed("spec.approval", "''") + " + " +
		changed("spec.generation", "0")

	frozenStatus = changedList("status.bundleLookups", "l", []string{"path", "identifier", "replaces", "catalogSourceRef.?namespace",
		"catalogSourceRef.?name", "properties"}) + " + " + changedList("status.plan", "s", []string{"resolving", "status", "resource.?group",
		"resource.?version", "resource.?kind", "resource.?name", "resource.?sourceName", "resource.?sourceNamespace", "resource.?manifest"}) +
		" + " + changedInstalled + " + " + changed("status.attenuatedServiceAccountRef.name", "''") + " + " +
		changed("status.attenuatedServiceAccountRef.namespace", "''")

	// changedInstalled compares when OLM completed the plan.
	changedInstalled = "(" + installed("object") + " != " + installed("oldObject") + " ? ['status.conditions'] : [])"
)

// changed is an expression for a list of the path of a field if a write changes it; missing is what a missing field means.
func changed(path, missing string) string {
	return fmt.Sprintf("(%s != %s ? [%s] : [])", optional("object", path, missing), optional("oldObject", path, missing), quote(path))
}

func installed(object string) string {
	return object + ".?status.?conditions.orValue([]).filter(c, c.?type.orValue('') == 'Installed' && c.?status.orValue('') == 'True')" +
		".map(c, c.?lastTransitionTime.orValue(''))[?0].orValue('')"
}
