package bundle

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on a bundle's dependencies and cluster requirements, and on the consent of the operator that it replaces.
const (
	RuleOwnConstraint    verdict.RuleID = "bundle/own-constraint"
	RuleKubeVersion      verdict.RuleID = "bundle/kube-version"
	RuleOpenShiftVersion verdict.RuleID = "bundle/openshift-version"
	RuleNotUpgradeable   verdict.RuleID = "bundle/not-upgradeable"
)

var (
	bundleOwnConstraint = verdict.Rule{ID: RuleOwnConstraint, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a bundle of the plan has a constraint of its own that neither the plan, nor what is installed, nor the cluster satisfies"}
	bundleKubeVersion = verdict.Rule{ID: RuleKubeVersion, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a ClusterServiceVersion of the plan needs a newer Kubernetes than the cluster has"}
	bundleOpenShiftVersion = verdict.Rule{ID: RuleOpenShiftVersion, Outcomes: verdict.HoldsOrWarns,
		Override: true,
		Summary:  "a ClusterServiceVersion of the plan is not for an OpenShift as new as the cluster's"}
	bundleNotUpgradeable = verdict.Rule{ID: RuleNotUpgradeable, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "the plan replaces an operator whose OperatorCondition says that it is not upgradeable now"}
)

// judgeNeeds judges a bundle's dependencies, its cluster requirements, and the consent of the operator that it
// replaces. OLM's resolver has checked the first alone: OLM installs the bundle, and then it stays Pending, for ever or
// until the other operator consents.
func (j *Plan) judgeNeeds(c *carrier.Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	held := func(id verdict.RuleID, what, accepted string) {
		if j.strict {
			v.Refuse(verdict.Reason{Rule: id, Decision: verdict.Hold,
				Message: verdict.Sentence(text.Name(c.Name)+" "+what+" and is held", id, accepted)})
			return
		}
		v.Warn(verdict.Reason{Rule: id, Message: verdict.Sentence(text.Name(c.Name)+" "+what, id, accepted)})
	}
	if constraint.BringsOwn(c.Properties) {
		for _, f := range set.Own(c.ForConstraints(j.Namespace), j.candidates(), j.Namespace.ForConstraints(),
			j.budget) {
			held(RuleOwnConstraint, "has a constraint that nothing satisfies", missing(&f))
		}
	}
	cluster := j.Namespace.Facts()
	if c.Spec != nil {
		if what, accepted := cluster.TooOldFor(c.Spec.MinKubeVersion); what != "" {
			held(RuleKubeVersion, what, accepted)
		}
	}
	if what, accepted := tooNewFor(c, cluster); what != "" {
		held(RuleOpenShiftVersion, what, accepted)
	}
	if old := j.Namespace.NotUpgradeable(c.Package, c.Name); old != nil { // R-AP-7
		name := text.Name(old.CSV)
		held(RuleNotUpgradeable, "cannot replace "+name+" now", "OperatorCondition "+name+": "+old.NotUpgradeable+
			"; waits until the operator sets Upgradeable to True, or an admin does in spec.overrides")
	}
}

// missing returns what a bundle's own constraint requires.
func missing(f *constraint.Finding) string {
	why := "neither the plan, nor what is installed here, nor the cluster satisfies " + text.Escape(f.Rule)
	if f.Outcome == constraint.Failed {
		why = "it cannot be judged: " + text.Escape(f.Why)
	}
	if f.Message != "" {
		return text.Quote(f.Message) + "; " + why
	}
	return why
}

// tooNewFor returns how property olm.maxOpenShiftVersion conflicts with a cluster.
func tooNewFor(c *carrier.Bundle, cluster *facts.Cluster) (what, accepted string) {
	if cluster.OpenShift == "" {
		return "", ""
	}
	limit, problem := (&constraint.Bundle{Properties: c.AllProperties()}).MaxOpenShift()
	if problem != "" {
		return "has a property olm.maxOpenShiftVersion that cannot be read", problem
	}
	return cluster.TooNewFor(limit)
}
