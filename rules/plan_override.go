package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on break-glass approvals.
const (
	RulePlanOverride       verdict.RuleID = "plan/override"
	RulePlanOverrideReason verdict.RuleID = "plan/override-reason"
)

var (
	planOverride = verdict.Rule{ID: RulePlanOverride, Outcomes: verdict.Warns,
		Summary: "a refused plan is approved by a user with the RBAC verb override, for the reason given"}
	planOverrideReason = verdict.Rule{ID: RulePlanOverrideReason, Outcomes: verdict.Denies, Backstop: true,
		Summary: "annotation opgate.io/override-reason is set on a plan without an approval that needs an override"}
)

// OverrideReasonAnnotation holds the reason of a break-glass approval (R-AP-6).
const OverrideReasonAnnotation = "opgate.io/override-reason"

// OverrideAsked returns the reason that an update adds in annotation opgate.io/override-reason. It must be added with
// the approval itself: an earlier reason on the plan does not count.
func (in *PlanUpdateInput) OverrideAsked() string {
	if !in.overrideReasonAdded() || !in.New.Spec.Approved || in.Old.Spec.Approved {
		return ""
	}
	return overrideReason(&in.New.Metadata)
}

// overrideReasonAdded reports whether an update adds or changes the reason on the plan.
func (in *PlanUpdateInput) overrideReasonAdded() bool {
	reason := overrideReason(&in.New.Metadata)
	return reason != "" && reason != overrideReason(&in.Old.Metadata)
}

func overrideReason(m *olm.ObjectMeta) string {
	return strings.TrimSpace(m.Annotations.OverrideReason)
}

// overridden reports whether the approval of a plan was allowed by an override. The reason on an approved plan proves
// that, since refuseOverrideReason keeps every other write from adding one.
func overridden(p *olm.InstallPlan) bool {
	return p.Spec.Approved && overrideReason(&p.Metadata) != ""
}

// refuseOverrideReason keeps the reason of an override out of all writes but checked approvals, since the reason also
// allows the steps of the plan. That applies in every namespace: the policy that a planted reason would set aside may
// be created later.
func refuseOverrideReason(v *verdict.Verdict) {
	v.Refuse(verdict.Reason{Rule: RulePlanOverrideReason, Decision: verdict.Deny,
		Field: "metadata.annotations[" + OverrideReasonAnnotation + "]",
		Message: verdict.Sentence("annotation "+OverrideReasonAnnotation+" is not allowed here", RulePlanOverrideReason,
			"give it together with spec.approved, and only where the approval is refused without it")})
}

// OverrideNeeds returns the objects on which an approver needs the RBAC verb override to set this refusal aside; ok is
// false if that is not possible. A reason without a single source needs all objects that may refuse in the namespace.
func OverrideNeeds(v *verdict.Verdict, ns *Namespace) (needs []verdict.PolicyRef, ok bool) {
	for _, r := range v.Reasons {
		from := []verdict.PolicyRef{r.From}
		switch {
		case !RuleOf(r.Rule).Override:
			return nil, false
		case r.From == verdict.PolicyRef{} || r.Rule == RuleBundleUnknown:
			from = ns.sources()
		}
		for _, g := range from {
			if !slices.Contains(needs, g) {
				needs = append(needs, g)
			}
		}
	}
	return needs, len(needs) > 0
}
