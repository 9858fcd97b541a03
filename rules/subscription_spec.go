package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
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
	s, old := in.New, in.Old
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
	requested, noted := in.requested(), in.New.Metadata.Annotations.RequestedApproval
	if requested != requestedApproval(in.New) {
		v.Changes = []verdict.Change{{Rule: RuleSubscriptionApproval, Path: pathRequested, Remove: true}}
	}
	if requested == requestedApproval(in.Old) || noted == "" && in.Old.Metadata.Annotations.RequestedApproval == "" {
		return
	}
	f := verdict.Finding{Field: "spec.installPlanApproval", What: "this Subscription asks for " + requested + " from now on"}
	policies := in.Namespace.Governing(in.New.Spec.Package)
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
	set := verdict.Change{Rule: RuleSubscriptionApproval, Path: pathApproval, Value: want,
		Message: verdict.Sentence(what, RuleSubscriptionApproval, because)}
	note := verdict.Change{Rule: RuleSubscriptionApproval, Path: pathRequested, Value: requested}
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
	spec := &in.New.Spec
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
		v.Changes = append(v.Changes, changeApproval(in.New, requested, want, source.String(), because)...)
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

// maxConfigText bounds the config of a policy in a message, in bytes.
const maxConfigText = 512

// foreignConfig judges spec.config, which exchanges images after a plan was judged: OLM puts it into force
// without another plan. Where the policy sets a config, it has to be that one; else it may be anything that keeps the
// images, the volumes, the sources of variables and the annotations of the pods. What is stored for the same package
// already stays, and OLM sets none itself.
func foreignConfig(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	config, before := &in.New.Spec.Config, in.configBefore()
	switch {
	case *config == before && (in.keepsPackage() || in.ByOLM):
		return verdict.Finding{}
	case p.Config.Fault != "":
		return verdict.OnHold("spec.config", "waits until spec.subscription.config of the policy can be read: "+
			text.Escape(p.Config.Fault)+"; "+orOverride).At("spec.config")
	case p.Config.JSON != "" && config.Written == p.Config.Written:
		return verdict.Finding{}
	case p.Config.JSON != "":
		return otherConfig(config.Read(), &p.Config)
	}
	reserved, fault := config.Reserved()
	if fault != "" {
		return unreadableConfig(fault)
	}
	had, _ := before.Reserved()
	maps.DeleteFunc(reserved, func(part, value string) bool { return had[part] == value })
	if len(reserved) == 0 {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("spec.config with "+text.Names(slices.Sorted(maps.Keys(reserved)), verdict.MaxListed),
		"let spec.subscription.config of the policy set it, "+orOverride).At("spec.config")
}

func unreadableConfig(fault string) verdict.Finding {
	return verdict.OnHold("spec.config", "it cannot be read: "+text.Escape(fault)+"; correct it, "+orOverride).
		At("spec.config")
}

// otherConfig refuses a config that does not have the effect of the one of the policy.
func otherConfig(config olm.SubscriptionConfig, want *olm.SubscriptionConfig) verdict.Finding {
	what := "spec.config is not allowed"
	switch fields := config.Parts().Fields; {
	case config.Fault != "":
		return unreadableConfig(config.Fault)
	case config.JSON == want.JSON:
		return verdict.Finding{}
	case config.JSON == "":
		what = "leaving out spec.config is not allowed"
	case !slices.Equal(fields, want.Parts().Fields):
		what = "spec.config with " + text.Names(fields, verdict.MaxListed) + " is not allowed"
	}
	return verdict.Finding{Decision: verdict.Deny, Field: "spec.config", What: what,
		Accepted: "allowed is " + text.Escape(text.Truncate(want.JSON, maxConfigText)) + ", " + orOverride}
}

// judgeInstalled judges the installed ClusterServiceVersions with a config that is written, by the Constraints that
// read it and have not spoken: OLM puts the config into force without a plan. What was violated before is excused only
// if the images of the config stay as they are: else one violation would cover all.
func (in *SubscriptionInput) judgeInstalled(
	spoken map[*constraint.Constraint]bool, budget *constraint.Budget, v *verdict.Verdict,
) {
	set, before := in.Namespace.Constraints(), in.configBefore()
	if in.New.Spec.Config == before {
		return
	}
	config, before := in.New.Spec.Config.Read(), before.Read()
	had, has := before.Parts(), config.Parts()
	excused := config.Fault == "" && slices.Equal(had.Images(), has.Images())
	for _, c := range in.Namespace.Installed() {
		if c.Package != in.New.Spec.Package || c.Spec == nil {
			continue
		}
		was, is := c.ForConstraints(in.Namespace), c.ForConstraints(in.Namespace)
		was.Config, is.Config = before, config
		was.Unknown &^= constraint.Config
		if is.Unknown &^= constraint.Config; config.Fault != "" {
			is.Unknown |= constraint.Config
		}
		known := set.Judge(was, in.Namespace.ForConstraints(), budget)
		for _, f := range set.Judge(is, in.Namespace.ForConstraints(), budget) {
			if f.Constraint == nil || f.Constraint.Uses()&constraint.Config == 0 || spoken[f.Constraint] ||
				excused && sameIn(known, &f) || f.Outcome == constraint.Undecided &&
				f.Attributes&constraint.Config == 0 {
				continue
			}
			state.RecordConstraint(v, RuleSubscriptionConstraint, "spec.config for "+text.Name(c.Name), &f)
		}
	}
}

// configBefore returns the config that is stored for the same package; none for a new Subscription.
func (in *SubscriptionInput) configBefore() olm.SubscriptionConfig {
	if !in.keepsPackage() {
		return olm.SubscriptionConfig{}
	}
	return in.Old.Spec.Config
}

// keepsPackage reports whether an update leaves the Subscription to its package.
func (in *SubscriptionInput) keepsPackage() bool {
	return in.Old != nil && in.Old.Spec.Package == in.New.Spec.Package
}

// OverrideAsked returns the override that a write adds.
func (in *SubscriptionInput) OverrideAsked() Override {
	return overrideAsked(RuleSubscriptionOverride, &in.New.Metadata,
		&cmp.Or(in.Old, &olm.Subscription{}).Metadata, in.Now)
}
