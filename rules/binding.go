package rules

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// RequestedApprovalAnnotation is where a Subscription keeps what it asked for before a Constraint made it wait for
// approval: the loop approves for it what the Constraints allow, and gives it back when none binds any more. Who
// wants to approve by hand removes it.
const RequestedApprovalAnnotation = "opgate.io/requested-approval"

// wantsAutomatic reports whether OLM would approve plans for a Subscription by itself, had no Constraint made it wait.
func wantsAutomatic(s *olm.Subscription) bool {
	return s.Spec.InstallPlanApproval != olm.ApprovalManual || s.Metadata.Annotations.RequestedApproval == olm.ApprovalAutomatic
}

// NudgedAtAnnotation of a Subscription is written by the loop to have OLM look again.
const NudgedAtAnnotation = "opgate.io/nudged-at"

const (
	pathApproval    = "/spec/installPlanApproval"
	pathAnnotations = "/metadata/annotations"
	pathRequested   = pathAnnotations + "/opgate.io~1requested-approval"
)

// bindingText names what makes plans of a namespace wait for judgement.
func (n *Namespace) bindingText() string {
	guard, bound := n.bindingGuard()
	if !bound {
		return ""
	}
	return "each plan has to be judged by " + guard.String() + " first"
}

// bindingGuard is the first Constraint that may refuse something here.
func (n *Namespace) bindingGuard() (guard Guard, bound bool) {
	binding := n.Constraints().Binding(n.Facts())
	if len(binding) == 0 {
		return Guard{}, false
	}
	return constraintGuard(binding[0]), true
}

// decides tells whether an enforcing policy decides on installPlanApproval of a Subscription.
func (n *Namespace) decides(pkg string) bool {
	for _, p := range n.governing(pkg) {
		if p.Enforced {
			return true
		}
	}
	return false
}

// ApprovalChanges are the changes that a stored Subscription needs because of Constraints: Manual where one binds,
// and back to what it asked for where none does any more. Where a policy decides there are none.
func ApprovalChanges(s *olm.Subscription, ns *Namespace) []Change {
	if ns.decides(s.Spec.Package) {
		return nil
	}
	if ns.Facts().Unknown || ns.Constraints().Cluster().Version == "" {
		return nil // what binds may change when that is known, in a moment
	}
	guard, bound := ns.bindingGuard()
	switch {
	case bound && s.Spec.InstallPlanApproval != olm.ApprovalManual:
		return holdApproval(s, guard)
	case !bound && madeManual(s) && !ns.awaitsApproval():
		return []Change{
			{Rule: RuleSubscriptionApproval, Path: pathApproval, Value: olm.ApprovalAutomatic,
				Message: sentence("spec.installPlanApproval was changed back to "+olm.ApprovalAutomatic, RuleSubscriptionApproval, "no Constraint applies here any more")},
			{Rule: RuleSubscriptionApproval, Path: pathRequested, Remove: true},
		}
	}
	return nil
}

// awaitsApproval tells whether the newest plan waits for approval. OLM has made it one that does, and never looks at Subscriptions
// again: were these Automatic by now, the loop would leave the plan alone, and so would everybody. It may have no Subscription yet
// that names it. Plans that came before are leftovers.
func (n *Namespace) awaitsApproval() bool {
	newest := int64(0)
	for _, p := range n.plans {
		newest = max(newest, p.Spec.Generation)
	}
	return slices.ContainsFunc(n.plans, func(p *olm.InstallPlan) bool {
		return p.Spec.Generation == newest && !p.Spec.Approved && p.Status.Phase != olm.PhaseComplete && p.Status.Phase != olm.PhaseFailed
	})
}

// holdApproval makes a Subscription wait, and notes that it had not asked for that.
func holdApproval(s *olm.Subscription, guard Guard) []Change {
	changes := []Change{{Rule: RuleSubscriptionApproval, Source: guard.String(), Path: pathApproval, Value: olm.ApprovalManual,
		Message: sentence("spec.installPlanApproval was changed from "+text.Quote(s.Spec.InstallPlanApproval)+" to "+olm.ApprovalManual+" by "+guard.String(),
			RuleSubscriptionApproval, "it has to judge each plan first; what is allowed is approved for it as long as annotation "+RequestedApprovalAnnotation+" says "+olm.ApprovalAutomatic)}}
	note := Change{Rule: RuleSubscriptionApproval, Source: guard.String(), Path: pathRequested, Value: olm.ApprovalAutomatic}
	if !s.Metadata.Annotations.Present {
		note.Path, note.Value = pathAnnotations, map[string]string{RequestedApprovalAnnotation: olm.ApprovalAutomatic}
	}
	return append(changes, note)
}
