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

// ApprovalMode says what becomes of a Subscription whose installPlanApproval is not what its policies compute.
type ApprovalMode string

const (
	// MutateApproval changes the field and says so in a warning.
	MutateApproval ApprovalMode = "mutate"
	// DenyApproval refuses and names the value to write: for GitOps tools, which would fight a changed field.
	DenyApproval ApprovalMode = "deny"
)

// RequestedApprovalAnnotation is where a Subscription keeps what it asked for before a Constraint made it wait for
// approval: the loop approves for it what the Constraints allow, and gives it back when none binds any more. Who
// wants to approve by hand removes it.
const RequestedApprovalAnnotation = "opgate.io/requested-approval"

// wantsAutomatic reports whether OLM would approve plans for a Subscription by itself, had no Constraint made it wait.
func wantsAutomatic(s *olm.Subscription) bool {
	return s.Spec.InstallPlanApproval != olm.ApprovalManual || s.Metadata.Annotations.RequestedApproval == olm.ApprovalAutomatic
}

// NudgedAtAnnotation of a Subscription is written by the loop to trigger re-resolution by OLM.
const NudgedAtAnnotation = "opgate.io/nudged-at"

const (
	pathApproval    = "/spec/installPlanApproval"
	pathAnnotations = "/metadata/annotations"
	pathRequested   = pathAnnotations + "/opgate.io~1requested-approval"
)

// applicableText names what makes plans of a namespace wait for judgement.
func (n *Namespace) applicableText() string {
	source, applies := n.firstApplicable()
	if !applies {
		return ""
	}
	return "each plan has to be judged by " + source.String() + " first"
}

// firstApplicable is the first Constraint that may refuse something here.
func (n *Namespace) firstApplicable() (source PolicyRef, applies bool) {
	binding := n.Constraints().Applicable(n.Facts())
	if len(binding) == 0 {
		return PolicyRef{}, false
	}
	return constraintRef(binding[0]), true
}

// decides reports whether an enforcing policy decides on installPlanApproval of a Subscription.
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
	source, applies := ns.firstApplicable()
	switch {
	case applies && s.Spec.InstallPlanApproval != olm.ApprovalManual:
		return holdApproval(s, source)
	case !applies && turnedManual(s) && !ns.awaitsApproval():
		return []Change{
			{Rule: RuleSubscriptionApproval, Path: pathApproval, Value: olm.ApprovalAutomatic,
				Message: sentence("spec.installPlanApproval was changed back to "+olm.ApprovalAutomatic, RuleSubscriptionApproval, "no Constraint applies here any more")},
			{Rule: RuleSubscriptionApproval, Path: pathRequested, Remove: true},
		}
	}
	return nil
}

// awaitsApproval reports whether the newest plan waits for approval. OLM has made it one that does, and never looks at Subscriptions
// again: were these Automatic by now, the loop would leave the plan alone. It may have no Subscription yet
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

// judgeApproval computes installPlanApproval from all enforcing policies (one that wants Manual is
// enough) or, where none decides, from the Constraints, records what is to be done about another value, and returns
// the value that will be stored.
func judgeApproval(in *SubscriptionInput, policies []*Policy, v *Verdict) string {
	have := in.Subscription.Spec.InstallPlanApproval
	var decider *Policy
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

// judgeUngovernedApproval makes a Subscription that no policy decides on wait, where a Constraint binds: OLM judges by
// none, and a plan that is approved from the start tells too little to be judged.
func judgeUngovernedApproval(in *SubscriptionInput, v *Verdict) string {
	have := in.Subscription.Spec.InstallPlanApproval
	source, applies := in.Namespace.firstApplicable()
	if !applies || have == olm.ApprovalManual {
		return have
	}
	if in.Mode == MutateApproval {
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
