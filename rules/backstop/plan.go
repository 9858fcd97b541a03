package backstop

import (
	"fmt"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/evidence"
)

// maxPolicies bounds the policies for which an override is checked. The API server allows two checks of rights in an
// expression, and some twenty for a request. What more policies refuse can be overridden through the gate only.
const maxPolicies = 8

// maxShown bounds the ClusterServiceVersions that a message shows.
const maxShown = 3

// maxCSVs bounds the ClusterServiceVersions of a plan, for the API server's limit of cost. Plans in use have some
// dozens. A larger one is held here although the gate might admit it: who may subscribe to that many packages would get
// anything past the rules with it.
const maxCSVs = 1000

// Expressions that are about InstallPlans, and cheaper than a variable.
const (
	oldPhase    = "string(oldObject.?status.?phase.orValue(''))"
	newPhase    = "string(object.?status.?phase.orValue(''))"
	wasApproved = "oldObject.?spec.?approved.orValue(false) == true"
	isApproved  = "object.?spec.?approved.orValue(false) == true"
	// approves is true for an approval.
	approves = "(" + update + " && " + isApproved + " && !(" + wasApproved + ") && " + governed + ")"
	// changesPhase is true if the phase is another one than before.
	changesPhase = oldPhase + " != " + newPhase + " && " + governed
	// starts is true for the one move of a phase that others than OLM may make: what it leads to is judged like an
	// approval.
	starts = "(" + newPhase + " == '" + olm.PhaseInstalling + "' && " + oldPhase + " == '" + olm.PhaseRequiresApproval +
		"' && " +
		wasApproved + " && " + governed + ")"
	lookups = "oldObject.?status.?bundleLookups.orValue([])"
	steps   = "oldObject.?status.?plan.orValue([])"
	names   = "size(oldObject.?spec.?clusterServiceVersionNames.orValue([]))"
	// csvSteps are the steps of ClusterServiceVersions.
	csvSteps = steps + ".filter(s, s.?resource.?kind.orValue('') == '" + olm.KindClusterServiceVersion + "')"
)

// isUnfinished is true for a plan of which OLM has not written everything, or that is too large to be judged here.
var isUnfinished = fmt.Sprintf("%s in ['', '%s'] || [[%s, size(%s), size(%s)]].exists(n, n[0] + n[1] + n[2] > %d || "+
	"n[1] + n[2] > %[7]d && size(%[8]s) + n[2] > %[7]d || n[0] + n[2] == 0 && size(%[8]s) == 0)",
	oldPhase, olm.PhasePlanning, names, steps, lookups, olm.MaxPlanEntries, maxCSVs, csvSteps)

// addPlans adds the rules on InstallPlans, judged as the gate judges them: by what is stored, which OLM has written.
func (p *program) addPlans() {
	p.set("unfinished", isUnfinished)
	p.addOverride()
	p.refuse(onPlan, refusal{
		id:     rules.RulePlanCreate,
		when:   "!" + update + " && " + governed,
		except: "variables.olm",
		message: aboutPlan + "'creating an InstallPlan by hand is not allowed' + " +
			by("variables.first", rules.RulePlanCreate) +
			" + 'OLM creates plans from Subscriptions; create or change one of these'",
		fallback: "creating an InstallPlan by hand is not allowed",
	}, refusal{
		id:     rules.RulePlanOverrideReason,
		may:    reason + " != ''",
		when:   reasonAdded + " && !(" + update + " && " + isApproved + " && !(" + wasApproved + "))",
		except: "!" + update + " && variables.olm",
		message: aboutPlan + "'annotation " + evidence.OverrideReasonAnnotation + " is not allowed here (" +
			string(rules.RulePlanOverrideReason) +
			"): give it together with spec.approved, and only where the approval is refused without it'",
		fallback: "annotation " + evidence.OverrideReasonAnnotation + " is not allowed here",
	}, refusal{
		id:   rules.RulePlanOverrideReason,
		may:  reason + " != ''",
		when: update + " && " + overrideMoved,
		message: aboutPlan + "'changing annotation " + evidence.OverrideExpiresAnnotation + " is not allowed (" +
			string(rules.RulePlanOverrideReason) +
			"): an override ends when its approval states; to end it now, write ended'",
		fallback: "changing annotation " + evidence.OverrideExpiresAnnotation + " is not allowed",
	}, frozen(changesSpec, frozenSpec, ""),
		unfinished(approves, ""),
		offending(approves, overrideAsked+" && variables.mayOverride", "("+overrideAsked+
			" ? '; the override needs the verb override on operatorpolicies ' + variables.refusing.join(', ') : '')"))

	// Opgate repeats a plan that an outage has failed; each step is judged when it is written.
	repeats := oldPhase + " == '" + olm.PhaseFailed + "' && " + newPhase + " == '" + olm.PhaseInstalling +
		"' && request.userInfo.username == " + quote(p.in.Opgate)
	p.set("frozenLookups", frozenLookups)
	p.set("frozenSteps", frozenSteps)
	p.set("frozen", "variables.frozenLookups + variables.frozenSteps + "+frozenStatus)
	p.refuse(onPlanStatus, frozen("size(variables.frozen) > 0", "variables.frozen", "variables.olm"),
		unfinished(starts, "variables.olm"), offending(starts, "variables.olm", "''"),
		refusal{
			id:     rules.RulePlanStatusPhase,
			when:   changesPhase + " && !" + starts,
			except: "variables.olm || " + repeats,
			message: aboutPlan + "'changing status.phase from \"' + " + oldPhase + " + '\" to \"' + " + newPhase +
				" + '\" is not allowed' + " +
				by("variables.first", rules.RulePlanStatusPhase) +
				" + 'only OLM moves the phase of a plan; set spec.approved instead'",
			fallback: "changing status.phase is not allowed",
		})
}

const aboutPlan = "'installplan ' + variables.name + ': ' + "

// frozen refuses changes of fields; changes is an expression that reports whether there are any, fields one for their
// paths.
func frozen(changes, fields, except string) refusal {
	return refusal{
		id:     rules.RulePlanFrozen,
		when:   update + " && " + changes + " && " + governed,
		except: except,
		message: aboutPlan + "'changing ' + (" + fields + ").join(', ') + ' is not allowed' + " +
			by("variables.first", rules.RulePlanFrozen) +
			" + 'what a plan holds is what was judged; OLM writes a new plan when there is something new'",
		fallback: "changing what a plan holds is not allowed",
	}
}

// unfinished refuses to start a plan of which OLM has not written everything.
func unfinished(starts, except string) refusal {
	return refusal{
		id:    rules.RulePlanPhase,
		guard: starts,
		// What is too large is in the match condition already.
		may:    oldPhase + " != '" + olm.PhaseRequiresApproval + "' || " + names + " == 0",
		when:   "variables.unfinished",
		except: except,
		message: aboutPlan + "'the plan is not ready, or too large, and is held' + " +
			by("variables.first", rules.RulePlanPhase) +
			" + 'waits until OLM has written its steps and asks for approval (phase " + olm.PhaseRequiresApproval +
			")'",
		fallback: "the plan is not ready and is held",
	}
}

// offending refuses to start a plan that holds what no policy allows; more is an expression for the end of the message.
// It follows unfinished, without which it would be evaluated for plans that are too large.
func offending(starts, except, more string) refusal {
	return refusal{
		id:       bundle.RuleVersion,
		guard:    starts,
		when:     anyOffending,
		except:   except,
		message:  aboutPlan + "variables.reasons + " + more,
		fallback: "the plan holds what no policy allows",
	}
}

// These are expressions for the fields that a write changes although they are what was judged. changesSpec reports
// whether it changes those of the spec: it is evaluated for each write.
var (
	frozenSpec = changed("spec.clusterServiceVersionNames", "[]") + " + " + changed("spec.approval", "''") + " + " +
		changed("spec.generation", "0")

	changesSpec = specOf("object") + " != " + specOf("oldObject")

	frozenLookups = changedList("status.bundleLookups", "l", []string{"path", "identifier", "replaces",
		"catalogSourceRef.?namespace", "catalogSourceRef.?name", "properties"})
	frozenSteps = changedList("status.plan", "s", []string{"resolving", "status", "resource.?group",
		"resource.?version", "resource.?kind", "resource.?name", "resource.?sourceName", "resource.?sourceNamespace",
		"resource.?manifest"})
	frozenStatus = changedInstalled + " + " + changed("status.attenuatedServiceAccountRef.name", "''") + " + " +
		changed("status.attenuatedServiceAccountRef.namespace", "''")

	// changedInstalled compares when OLM completed the plan.
	changedInstalled = "(" + installed("object") + " != " + installed("oldObject") + " ? ['status.conditions'] : [])"
)

func specOf(object string) string {
	return "[" + optional(object, "spec.clusterServiceVersionNames", "[]") + ", " +
		optional(object, "spec.approval", "''") + ", " +
		optional(object, "spec.generation", "0") + "]"
}

// changed is an expression for a list of the path of a field if a write changes it; missing is what a missing field
// means.
func changed(path, missing string) string {
	return fmt.Sprintf("(%s != %s ? [%s] : [])", optional("object", path, missing),
		optional("oldObject", path, missing), quote(path))
}

func installed(object string) string {
	return object + ".?status.?conditions.orValue([]).filter(c, c.?type.orValue('') == 'Installed' && c.?status.orValue('') == 'True')" +
		".map(c, c.?lastTransitionTime.orValue(''))[?0].orValue('')"
}
