package rules

import (
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// ApprovalMode is how to handle a Subscription whose installPlanApproval differs from the one that its policies
// require.
type ApprovalMode string

const (
	// MutateApproval changes the field and adds a warning.
	MutateApproval ApprovalMode = "mutate"
	// DenyApproval refuses and names the required value: for GitOps tools, which would revert a changed field.
	DenyApproval ApprovalMode = "deny"
)

// RequestedApproval returns the installPlanApproval of a Subscription before Opgate changed it, by what it is now and
// by the annotation.
func RequestedApproval(have, noted string) string {
	switch {
	case noted == olm.ApprovalAutomatic || noted == olm.ApprovalManual:
		return noted
	case have == olm.ApprovalManual:
		return olm.ApprovalManual
	}
	return olm.ApprovalAutomatic
}

func requestedApproval(s *olm.Subscription) string {
	return RequestedApproval(s.Spec.InstallPlanApproval, s.Metadata.Annotations.RequestedApproval)
}

// MayHideManual reports whether a write leaves a Subscription as Manual as it is only for Opgate: whether its user wants
// Manual meanwhile is shown by what the write applies, and by nothing else.
func MayHideManual(s, old *olm.Subscription) bool {
	noted := s.Metadata.Annotations.RequestedApproval
	return old != nil && turnedManual(s) && turnedManual(old) && noted == old.Metadata.Annotations.RequestedApproval
}

// requested returns the installPlanApproval that the user of a write wants. The newest evidence counts: the annotation
// where the write changes it, a changed value, what is applied; without any, what was requested before.
func (in *SubscriptionInput) requested() string {
	s, old := in.Subscription, in.Old
	switch {
	case old == nil || s.Metadata.Annotations.RequestedApproval != old.Metadata.Annotations.RequestedApproval:
		return requestedApproval(s)
	case (s.Spec.InstallPlanApproval == olm.ApprovalManual) != (old.Spec.InstallPlanApproval == olm.ApprovalManual):
		return RequestedApproval(s.Spec.InstallPlanApproval, "")
	case in.AppliesManual:
		return olm.ApprovalManual
	}
	return requestedApproval(s)
}

// NoteRequest removes the annotation of an updated Subscription if its user wants something else now, and warns of what is
// understood unless that was changed, which is explained already.
func NoteRequest(in *SubscriptionInput, v *verdict.Verdict) {
	if in.Old == nil || len(v.Changes) > 0 {
		return
	}
	requested, noted := in.requested(), in.Subscription.Metadata.Annotations.RequestedApproval
	if requested != requestedApproval(in.Subscription) {
		v.Changes = []verdict.Change{{Rule: RuleSubscriptionApproval, Path: pathRequested, Remove: true}}
	}
	if requested == requestedApproval(in.Old) || noted == "" && in.Old.Metadata.Annotations.RequestedApproval == "" {
		return
	}
	f := verdict.Finding{Field: "spec.installPlanApproval", What: "this Subscription asks for " + requested + " from now on"}
	policies := in.Namespace.Governing(in.Subscription.Spec.Package)
	i := slices.IndexFunc(policies, func(p *operatorpolicy.Policy) bool {
		return p.Enforced && manages(p) || approvesAllowed(p)
	})
	switch {
	case i >= 0:
		f.Accepted = policies[i].Source() + " does not ask it, so that this counts once no such policy governs it"
	case requested == olm.ApprovalManual:
		f.Accepted = "a user approves its InstallPlans; to change that write annotation " + metakey.RequestedApproval + ": " +
			olm.ApprovalAutomatic
	default:
		f.Accepted = "Opgate approves what is allowed"
	}
	v.Add(RuleSubscriptionApproval, f)
}

// wantsAutomatic reports whether a Subscription would be Automatic if Opgate had not changed it.
func wantsAutomatic(s *olm.Subscription) bool { return requestedApproval(s) == olm.ApprovalAutomatic }

// ResyncRequest returns the annotations of a merge patch of a Subscription that makes OLM resolve the namespace again,
// which it does when a Subscription changes. The value is the time of the request.
func ResyncRequest(at string) map[string]any {
	return map[string]any{metakey.ResyncRequested: at, metakey.EarlierResync: nil}
}

const (
	pathApproval    = "/spec/installPlanApproval"
	pathAnnotations = "/metadata/annotations"
)

var pathRequested = pathAnnotations + "/" + strings.ReplaceAll(metakey.RequestedApproval, "/", "~1")

// manages reports whether Subscriptions to the package are as the policy wants them. A policy that only allows or
// forbids makes Automatic ones Manual where plans have to be judged, and leaves Manual alone, and so does one that
// cannot be read.
func manages(p *operatorpolicy.Policy) bool {
	return !p.MustNotHave && !p.AnyPackage && p.Object != nil && p.Object.Spec.ComplianceType != policyv1beta2.MayHave
}

// ApprovalChanges returns the changes that a stored Subscription needs that no policy manages: Manual, if something has
// to judge each plan of the namespace or what is installed must not be upgraded now, else what it requested.
func ApprovalChanges(s *olm.Subscription, ns *state.Namespace) []verdict.Change {
	managed := func(p *operatorpolicy.Policy) bool { return p.Enforced && manages(p) }
	if slices.ContainsFunc(ns.Governing(s.Spec.Package), managed) || !ns.Exists() || ns.Facts().Version == "" {
		return nil // what applies may change once the last two are known, which is soon
	}
	have, requested := s.Spec.InstallPlanApproval, requestedApproval(s)
	source, found := ns.FirstJudge()
	for _, p := range ns.Governing(s.Spec.Package) {
		if mode, _ := ns.Approval(p); !found && p.Enforced && !p.Incomplete && mode == olm.ApprovalManual {
			source, found = p.Ref(), true
		}
	}
	incomplete := slices.ContainsFunc(ns.Enforcing(), func(p *operatorpolicy.Policy) bool { return p.Incomplete })
	waits := awaitsApproval(ns) && !slices.ContainsFunc(ns.Subscriptions(), waitsForUser)
	switch {
	case found && have != olm.ApprovalManual:
		return changeApproval(s, requested, olm.ApprovalManual, source.String(), judgedFirst+approvedFor)
	case !found && have != requested && (turnedManual(s) || have == olm.ApprovalAutomatic) &&
		(requested == olm.ApprovalManual || !waits && !incomplete):
		changes := changeApproval(s, requested, requested, "", "no policy or Constraint needs another value")
		changes[0].Message = strings.Replace(changes[0].Message, " was changed ", " was changed back ", 1)
		return changes
	}
	return nil
}

// awaitsApproval reports whether the newest plan waits for approval. OLM created it as Manual, and never reads
// Subscriptions again: if these were Automatic now, the loop would ignore the plan. It may not be named by a
// Subscription yet. Earlier plans are outdated.
func awaitsApproval(n *state.Namespace) bool {
	newest := int64(0)
	for _, p := range n.Plans() {
		newest = max(newest, p.Spec.Generation)
	}
	return slices.ContainsFunc(n.Plans(), func(p *olm.InstallPlan) bool {
		return p.Spec.Generation == newest && !p.Spec.Approved && !p.Finished()
	})
}

const (
	judgedFirst = "it has to judge each plan first"
	// letsApprove is what makes Opgate approve for a Manual Subscription.
	letsApprove = "annotation " + metakey.RequestedApproval + ": " + olm.ApprovalAutomatic +
		", or spec.planApproval: " + string(policyv1beta2.PlanApprovalIfAllowed) + " in a policy for its package,"
	approvedFor = "; what is allowed is approved for it as long as annotation " + metakey.RequestedApproval +
		" says " + olm.ApprovalAutomatic
	unasked = "; with " + letsApprove + " Opgate approves what is allowed"
)

// changeApproval sets installPlanApproval, and records what was requested if that differs. The source is that of the
// change, empty for none.
func changeApproval(s *olm.Subscription, requested, want, source, because string) []verdict.Change {
	what := "spec.installPlanApproval was changed from " + text.Quote(s.Spec.InstallPlanApproval) + " to " + want
	if s.Spec.InstallPlanApproval == "" {
		what = "spec.installPlanApproval was set to " + want
	}
	if source != "" {
		what += " by " + source
	}
	set := verdict.Change{Rule: RuleSubscriptionApproval, Source: source, Path: pathApproval, Value: want,
		Message: verdict.Sentence(what, RuleSubscriptionApproval, because)}
	note := verdict.Change{Rule: RuleSubscriptionApproval, Source: source, Path: pathRequested, Value: requested}
	switch {
	case requested == want && s.Metadata.Annotations.RequestedApproval == "":
		return []verdict.Change{set}
	case requested == want:
		note.Value, note.Remove = nil, true
	case !s.Metadata.Annotations.Present:
		note.Path, note.Value = pathAnnotations, map[string]string{metakey.RequestedApproval: requested}
	}
	return []verdict.Change{set, note}
}

// judgeApproval computes installPlanApproval from all enforcing policies (one that requires Manual is enough) or, if
// none decides, from what has to judge each plan of the namespace: a plan that is born approved contains too little to be
// judged, and may bring what a policy forbids as a dependency. It records how another value is handled, and returns the
// value that will be stored, and the policy that decided; nil if none did.
func judgeApproval(in *SubscriptionInput, policies []*operatorpolicy.Policy, v *verdict.Verdict) (stored string,
	decider *operatorpolicy.Policy) {
	spec := &in.Subscription.Spec
	have, want, because := spec.InstallPlanApproval, "", ""
	for _, p := range policies {
		mode, why := in.Namespace.Approval(p)
		switch {
		case !p.Enforced:
			if mode == olm.ApprovalManual && have != mode {
				p.Record(v, RuleSubscriptionApproval, approvalFinding(have, mode, why))
			}
		case mode == olm.ApprovalAutomatic && !manages(p):
		case decider == nil || want == olm.ApprovalAutomatic && mode == olm.ApprovalManual:
			decider, want, because = p, mode, why
		}
	}
	var source verdict.PolicyRef
	if decider != nil {
		source = decider.Ref()
	} else if judge, found := in.Namespace.FirstJudge(); found {
		source, want, because = judge, olm.ApprovalManual, judgedFirst
	} else {
		return have, nil
	}
	switch {
	case have == want:
		return have, decider
	case in.Mode == MutateApproval && spec.Package == "" && spec.Source == "" && have == "":
		return have, decider // there may be no spec to change, and the API server refuses it
	case in.Mode == MutateApproval:
		requested := in.requested()
		if requested == olm.ApprovalAutomatic && !approvesAll(in.Namespace, spec.Package) {
			because += approvedFor
		}
		v.Changes = append(v.Changes, changeApproval(in.Subscription, requested, want, source.String(), because)...)
		return want, decider
	}
	if want == olm.ApprovalManual && !approvesAll(in.Namespace, spec.Package) {
		because += unasked
	}
	v.Record(RuleSubscriptionApproval, source, true, approvalFinding(have, want, because))
	return have, decider
}

func approvalFinding(have, want, because string) verdict.Finding {
	what := "spec.installPlanApproval " + text.Quote(have)
	if have == "" {
		what = "leaving out spec.installPlanApproval, which means " + olm.ApprovalAutomatic + ","
	}
	return verdict.NotAllowed(what, "write "+want+", since "+because).At("spec.installPlanApproval")
}
