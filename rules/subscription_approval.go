package rules

import (
	"fmt"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// RuleSubscriptionApproval is on spec.installPlanApproval.
const RuleSubscriptionApproval RuleID = "subscription/approval"

var subscriptionApproval = Rule{RuleSubscriptionApproval, OutcomeDeny, "spec.installPlanApproval is not what the policy computes; the mutating webhook changes it, this rule refuses what is still wrong afterwards"}

// ApprovalMode is how to handle a Subscription whose installPlanApproval differs from the one that its policies require.
type ApprovalMode string

const (
	// MutateApproval changes the field and adds a warning.
	MutateApproval ApprovalMode = "mutate"
	// DenyApproval refuses and names the required value: for GitOps tools, which would revert a changed field.
	DenyApproval ApprovalMode = "deny"
)

// RequestedApprovalAnnotation holds the installPlanApproval of a Subscription before Opgate changed it to Manual
// although no policy governs its package: the loop approves for it what is allowed, and restores the value when nothing
// judges plans of the namespace any more. Users who want to approve themselves remove it.
const RequestedApprovalAnnotation = "opgate.io/requested-approval"

// wantsAutomatic reports whether a Subscription would be Automatic if Opgate had not changed it.
func wantsAutomatic(s *olm.Subscription) bool {
	return s.Spec.InstallPlanApproval != olm.ApprovalManual || s.Metadata.Annotations.RequestedApproval == olm.ApprovalAutomatic
}

const (
	resyncRequestedAtAnnotation = "opgate.io/resync-requested-at"
	// earlierResyncAnnotation is that of earlier releases, to be removed.
	earlierResyncAnnotation = "opgate.io/nudged-at"
)

// ResyncRequest returns the annotations of a merge patch of a Subscription that makes OLM resolve the namespace again, which it does when a
// Subscription changes. The value is the time of the request.
func ResyncRequest(at string) map[string]any {
	return map[string]any{resyncRequestedAtAnnotation: at, earlierResyncAnnotation: nil}
}

const (
	pathApproval    = "/spec/installPlanApproval"
	pathAnnotations = "/metadata/annotations"
	pathRequested   = pathAnnotations + "/opgate.io~1requested-approval"
)

// judgeText names what requires plans of a namespace to be judged.
func (n *Namespace) judgeText() string {
	source, found := n.firstJudge()
	if !found {
		return ""
	}
	return "each plan has to be judged by " + source.String() + " first"
}

// firstJudge returns what has to judge each plan of a namespace before OLM runs it: a Constraint that may refuse
// something here, or a policy.
func (n *Namespace) firstJudge() (source PolicyRef, found bool) {
	if source, found = n.firstApplicable(); !found && n != nil && n.judging != nil {
		return n.judging.ref(), true
	}
	return source, found
}

// firstApplicable returns the first Constraint that may refuse something here.
func (n *Namespace) firstApplicable() (source PolicyRef, applies bool) {
	applicable := n.Constraints().Applicable(n.ForConstraints())
	if len(applicable) == 0 {
		return PolicyRef{}, false
	}
	return constraintRef(applicable[0]), true
}

// decides reports whether an enforcing policy determines installPlanApproval of a Subscription.
func (n *Namespace) decides(pkg string) bool {
	for _, p := range n.governing(pkg) {
		if p.Enforced {
			return true
		}
	}
	return false
}

// ApprovalChanges returns the changes that a stored Subscription needs because a Constraint, or a policy for another
// package, has to judge each plan of the namespace: Manual, or the requested value if nothing judges plans any more. If
// a policy decides there are none.
func ApprovalChanges(s *olm.Subscription, ns *Namespace) []Change {
	if ns.decides(s.Spec.Package) {
		return nil
	}
	if !ns.Exists() || ns.Constraints().Cluster().Version == "" {
		return nil // what applies may change once that is known, which is soon
	}
	source, found := ns.firstJudge()
	switch {
	case found && s.Spec.InstallPlanApproval != olm.ApprovalManual:
		return holdApproval(s, source)
	case !found && turnedManual(s) && !ns.awaitsApproval() && !ns.incomplete():
		return []Change{
			{Rule: RuleSubscriptionApproval, Path: pathApproval, Value: olm.ApprovalAutomatic,
				Message: sentence("spec.installPlanApproval was changed back to "+olm.ApprovalAutomatic, RuleSubscriptionApproval, "nothing has to judge plans here any more")},
			{Rule: RuleSubscriptionApproval, Path: pathRequested, Remove: true},
		}
	}
	return nil
}

// incomplete reports whether it is not known yet what some enforced policy says.
func (n *Namespace) incomplete() bool {
	return slices.ContainsFunc(n.enforced, func(p *OperatorPolicy) bool { return p.Incomplete })
}

// awaitsApproval reports whether the newest plan waits for approval. OLM created it as Manual, and never reads Subscriptions again: if
// these were Automatic now, the loop would ignore the plan. It may not be named by a Subscription yet. Earlier plans are outdated.
func (n *Namespace) awaitsApproval() bool {
	newest := int64(0)
	for _, p := range n.plans {
		newest = max(newest, p.Spec.Generation)
	}
	return slices.ContainsFunc(n.plans, func(p *olm.InstallPlan) bool {
		return p.Spec.Generation == newest && !p.Spec.Approved && p.Status.Phase != olm.PhaseComplete && p.Status.Phase != olm.PhaseFailed
	})
}

// holdApproval changes a Subscription to Manual, and records that it did not request that.
func holdApproval(s *olm.Subscription, source PolicyRef) []Change {
	changes := []Change{{Rule: RuleSubscriptionApproval, Source: source.String(), Path: pathApproval, Value: olm.ApprovalManual,
		Message: sentence("spec.installPlanApproval was changed from "+text.Quote(s.Spec.InstallPlanApproval)+" to "+olm.ApprovalManual+" by "+source.String(),
			RuleSubscriptionApproval, "it has to judge each plan first; what is allowed is approved for it as long as annotation "+RequestedApprovalAnnotation+" says "+olm.ApprovalAutomatic)}}
	note := Change{Rule: RuleSubscriptionApproval, Source: source.String(), Path: pathRequested, Value: olm.ApprovalAutomatic}
	if !s.Metadata.Annotations.Present {
		note.Path, note.Value = pathAnnotations, map[string]string{RequestedApprovalAnnotation: olm.ApprovalAutomatic}
	}
	return append(changes, note)
}

// judgeApproval computes installPlanApproval from all enforcing policies (one that requires Manual is enough) or, if none decides, from the
// Constraints; it records how another value is handled, and returns the value that will be stored.
func judgeApproval(in *SubscriptionInput, policies []*OperatorPolicy, v *Verdict) string {
	have := in.Subscription.Spec.InstallPlanApproval
	var decider *OperatorPolicy
	var want, because string
	for _, p := range policies {
		mode, why := p.Approval(in.Namespace)
		if !p.Enforced {
			if mode == olm.ApprovalManual && have != mode {
				v.record(RuleSubscriptionApproval, p, approvalFinding(have, mode, why))
			}
			continue
		}
		if decider == nil || want == olm.ApprovalAutomatic && mode == olm.ApprovalManual {
			decider, want, because = p, mode, why
		}
	}
	switch {
	case decider == nil:
		return judgeUngovernedApproval(in, v)
	case have == want:
		return have
	case in.Mode == MutateApproval:
		v.Changes = append(v.Changes, Change{
			Rule: RuleSubscriptionApproval, Source: decider.Source(), Path: pathApproval, Value: want,
			Message: sentence(fmt.Sprintf("spec.installPlanApproval was changed from %s to %s by %s", text.Quote(have), want, decider.Source()),
				RuleSubscriptionApproval, because),
		})
		return want
	}
	v.record(RuleSubscriptionApproval, decider, approvalFinding(have, want, because))
	return have
}

// judgeUngovernedApproval makes a Subscription without a deciding policy Manual if something has to judge each plan of
// the namespace: a plan that is born approved contains too little to be judged, and may bring what a policy forbids as
// a dependency (threat O52).
func judgeUngovernedApproval(in *SubscriptionInput, v *Verdict) string {
	have := in.Subscription.Spec.InstallPlanApproval
	source, found := in.Namespace.firstJudge()
	if !found || have == olm.ApprovalManual {
		return have
	}
	if in.Mode == MutateApproval {
		if spec := &in.Subscription.Spec; spec.Package == "" && spec.Source == "" && have == "" {
			return have // there may be no spec to change, and the API server refuses it
		}
		v.Changes = append(v.Changes, holdApproval(in.Subscription, source)...)
		return olm.ApprovalManual
	}
	f := approvalFinding(have, olm.ApprovalManual, "it has to judge each plan first")
	f.accepted += "; with annotation " + RequestedApprovalAnnotation + ": " + olm.ApprovalAutomatic + " Opgate approves what is allowed"
	v.recordAs(RuleSubscriptionApproval, source, true, f)
	return have
}

func approvalFinding(have, want, because string) finding {
	return finding{
		decision: Deny,
		field:    "spec.installPlanApproval",
		what:     "spec.installPlanApproval " + text.Quote(have) + " is not allowed",
		accepted: "write " + want + ", since " + because,
	}
}
