package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Override is the override that a write asks for.
type Override struct {
	// Rule is the one that the refusals become warnings of.
	Rule verdict.RuleID
	// Reason is empty if the write asks for none.
	Reason string
	// Until follows the reason in messages; empty if it does not end.
	Until string
	// Ended is why the override does not count any more, and what would be accepted; empty if it counts.
	Ended string
}

// overrideAsked returns the override that a write adds by a new reason; before is empty on create.
func overrideAsked(rule verdict.RuleID, after, before *olm.ObjectMeta, now time.Time) Override {
	reason, expires := evidence.OverrideReason(after), evidence.OverrideExpiry(after)
	if reason == "" || reason == evidence.OverrideReason(before) {
		return Override{}
	}
	asked := Override{Rule: rule, Reason: reason, Until: expires.Until()}
	if ended := expires.Ended(now); ended != "" {
		asked.Ended = "it " + ended + "; " + expires.Accepted()
	}
	return asked
}

// OverrideAsked returns the override that an update adds. It must be added with the approval itself: an earlier reason
// on the plan does not count.
func (in *PlanUpdateInput) OverrideAsked() Override {
	if !in.New.Spec.Approved || in.Old.Spec.Approved {
		return Override{}
	}
	return overrideAsked(RulePlanOverride, &in.New.Metadata, &in.Old.Metadata, in.Now)
}

// overrideMoved reports whether an update changes when the override on the plan ends, except to now. A mark keeps the
// end: what is stored is judged by it.
func (in *PlanUpdateInput) overrideMoved() bool {
	reason, expires, was := evidence.OverrideReason(&in.New.Metadata), evidence.OverrideExpiry(&in.New.Metadata),
		evidence.OverrideExpiry(&in.Old.Metadata)
	return reason != "" && reason == evidence.OverrideReason(&in.Old.Metadata) && expires != was && expires.Value != evidence.EndedMark &&
		expires.Value != was.Mark()
}

// OverrideText returns why a user has approved a plan that was refused, and whether that has ended, to follow a
// sentence; "" if the plan has no override. Of a plan that is complete it does not depend on the time. Who that was is
// in the plan's event, and not in the plan.
func OverrideText(p *olm.InstallPlan, now time.Time) string {
	if !evidence.Overridden(p) {
		return ""
	}
	given := "; a user approved the InstallPlan " + p.Metadata.Key() + " although it is refused, and gave the reason " +
		text.Quote(p.Metadata.Annotations.OverrideReason)
	if ended := evidence.OverrideEnd(p, now); ended != "" && p.Status.Phase != olm.PhaseComplete {
		return given + "; the override " + ended
	}
	return given + evidence.OverrideExpiry(&p.Metadata).Until()
}

// refuseOverrideReason keeps the reason of an override out of all writes but checked approvals, since the reason also
// allows the steps of the plan. That applies in every namespace: the policy that a planted reason would set aside may
// be created later.
func refuseOverrideReason(v *verdict.Verdict) {
	v.Add(RulePlanOverrideReason, verdict.Finding{Decision: verdict.Deny, Field: "metadata.annotations[" +
		metakey.OverrideReason + "]", What: "annotation " + metakey.OverrideReason + " is not allowed here",
		Accepted: "set it together with spec.approved, and only where the approval is refused without it"})
}

// refuseOverrideMoved keeps an override to the end that it was approved with: one that has ended would open again.
func refuseOverrideMoved(v *verdict.Verdict) {
	v.Add(RulePlanOverrideReason, verdict.NotAllowed("changing annotation "+metakey.OverrideExpires,
		"an override ends when its approval states; to end it now, write "+
			evidence.EndedMark).At("metadata.annotations["+metakey.OverrideExpires+"]"))
}

// OverrideNeeds returns the objects on which an approver needs the RBAC verb override to set this refusal aside; ok is
// false if that is not possible. A reason without a single source needs all objects that may refuse in the namespace.
func OverrideNeeds(v *verdict.Verdict, ns *state.Namespace) (needs []verdict.PolicyRef, ok bool) {
	for _, r := range v.Reasons {
		from := []verdict.PolicyRef{r.From}
		switch {
		case !RuleOf(r.Rule).Override:
			return nil, false
		case r.From == verdict.PolicyRef{} || r.Rule == bundle.RuleUnknown:
			from = ns.Sources()
		}
		for _, g := range from {
			if !slices.Contains(needs, g) {
				needs = append(needs, g)
			}
		}
	}
	return needs, len(needs) > 0
}
