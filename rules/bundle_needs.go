package rules

import (
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on a bundle's dependencies and cluster requirements, and on the consent of the operator that it replaces.
const (
	RuleBundleOwnConstraint    verdict.RuleID = "bundle/own-constraint"
	RuleBundleKubeVersion      verdict.RuleID = "bundle/kube-version"
	RuleBundleOpenShiftVersion verdict.RuleID = "bundle/openshift-version"
	RuleBundleNotUpgradeable   verdict.RuleID = "bundle/not-upgradeable"
)

var (
	bundleOwnConstraint = verdict.Rule{ID: RuleBundleOwnConstraint, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a bundle of the plan has a constraint of its own that neither the plan, nor what is installed, nor the cluster satisfies"}
	bundleKubeVersion = verdict.Rule{ID: RuleBundleKubeVersion, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a ClusterServiceVersion of the plan needs a newer Kubernetes than the cluster has"}
	bundleOpenShiftVersion = verdict.Rule{ID: RuleBundleOpenShiftVersion, Outcomes: verdict.HoldsOrWarns,
		Override: true,
		Summary:  "a ClusterServiceVersion of the plan is not for an OpenShift as new as the cluster's"}
	bundleNotUpgradeable = verdict.Rule{ID: RuleBundleNotUpgradeable, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "the plan replaces an operator whose OperatorCondition says that it is not upgradeable now"}
)

// judgeNeeds judges a bundle's dependencies, its cluster requirements, and the consent of the operator that it
// replaces. OLM's resolver has checked the first alone: OLM installs the bundle, and then it stays Pending, for ever or
// until the other operator consents.
func (j *planJudge) judgeNeeds(c *Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	held := func(id verdict.RuleID, what, accepted string) {
		if j.strict {
			v.Refuse(verdict.Reason{Rule: id, Decision: verdict.Hold,
				Message: verdict.Sentence(text.Name(c.name)+" "+what+" and is held", id, accepted)})
			return
		}
		v.Warn(verdict.Reason{Rule: id, Message: verdict.Sentence(text.Name(c.name)+" "+what, id, accepted)})
	}
	if constraint.BringsOwn(c.properties) {
		for _, f := range set.Own(c.forConstraints(j.Namespace), j.candidates(), j.Namespace.ForConstraints(),
			j.budget) {
			held(RuleBundleOwnConstraint, "has a constraint that nothing satisfies", missing(&f))
		}
	}
	cluster := j.Namespace.Facts()
	if what, accepted := tooOldFor(c.minKubeVersion(), cluster.Version); what != "" {
		held(RuleBundleKubeVersion, what, accepted)
	}
	if what, accepted := tooNewFor(c, cluster.OpenShift); what != "" {
		held(RuleBundleOpenShiftVersion, what, accepted)
	}
	if old := j.Namespace.NotUpgradeable(c.pkg, c.name); old != nil { // R-AP-7
		name := text.Name(old.CSV)
		held(RuleBundleNotUpgradeable, "cannot replace "+name+" now", "OperatorCondition "+name+": "+old.NotUpgradeable+
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

func (c *Bundle) minKubeVersion() string {
	if c.spec == nil {
		return ""
	}
	return c.spec.MinKubeVersion
}

// tooOldFor returns how spec.minKubeVersion conflicts with this cluster, and what would be accepted.
func tooOldFor(minKube, kubernetes string) (what, accepted string) {
	if minKube == "" || kubernetes == "" {
		return "", ""
	}
	has, err := semver.ParseTolerant(kubernetes)
	if err != nil {
		return "", "" // an unparsable version of the API server is not the bundle's fault
	}
	needs, err := semver.ParseTolerant(minKube)
	switch {
	case err != nil:
		return "has minKubeVersion " + text.Quote(minKube) + ", which is not a version,",
			"OLM would install it, and it would wait for ever"
	case has.LT(needs):
		return "needs Kubernetes " + minKube + " or newer", "this cluster has " + kubernetes +
			"; OLM would install it, and it would wait for ever"
	}
	return "", ""
}

// tooNewFor returns how property olm.maxOpenShiftVersion conflicts with this cluster.
func tooNewFor(c *Bundle, openshift string) (what, accepted string) {
	if openshift == "" {
		return "", ""
	}
	has, err := semver.ParseTolerant(openshift)
	if err != nil {
		return "", ""
	}
	limit, problem := (&constraint.Bundle{Properties: c.allProperties()}).MaxOpenShift()
	if problem != "" {
		return "has a property olm.maxOpenShiftVersion that cannot be read", problem
	}
	most, err := semver.ParseTolerant(limit)
	if limit == "" || err != nil {
		return "", ""
	}
	if olm.NewerOpenShift(has, most) {
		return "is for OpenShift " + limit + " at most", "this cluster has " + openshift
	}
	return "", ""
}

// allProperties returns the properties of the bundle and those that its author wrote into the ClusterServiceVersion.
func (c *Bundle) allProperties() []olm.Property {
	if strings.TrimSpace(c.authored) == "" {
		return c.properties
	}
	written, err := olm.ParseProperties(`{"properties":` + c.authored + `}`)
	if err != nil {
		return c.properties // OLM's own check of catalogs warns of it
	}
	all := slices.Clone(c.properties)
	for _, p := range written {
		if !slices.ContainsFunc(all, func(o olm.Property) bool { return sameProperty(o, p) }) {
			all = append(all, p)
		}
	}
	return all
}
