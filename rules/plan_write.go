package rules

import (
	"regexp"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// PlanCreateInput is the input of JudgePlanCreate. The API server drops the status of new objects, so only the spec is
// known.
type PlanCreateInput Write[olm.InstallPlanHead]

// JudgePlanCreate decides on creating an InstallPlan. Only OLM creates plans in a governed namespace: OLM adopts a
// forged plan with the generation that it would use next. OLM itself is refused only if the plan is born
// approved although a policy must judge it first; refusing any other create would stall the whole namespace. The webhook
// configurations do not send those.
func JudgePlanCreate(in PlanCreateInput) verdict.Verdict {
	v := verdict.Verdict{Object: "installplan " + in.New.Metadata.Key()}
	if !in.ByOLM && evidence.OverrideReason(&in.New.Metadata) != "" {
		refuseOverrideReason(&v)
	}
	if a := &in.New.Metadata.Annotations; !in.ByOLM && (a.Consent != "" || a.ConsentBy != "") {
		refuseConsent(&v, metakey.Consent, "is not allowed here",
			"consent to what a plan changes once OLM has written it")
	}
	switch {
	case in.ByOLM && !in.New.Spec.Approved, !in.Namespace.Judged():
	case !in.ByOLM:
		state.RecordForNamespace(&v, in.Namespace, RulePlanCreate, verdict.NotAllowed("creating an InstallPlan by hand",
			"OLM creates plans from Subscriptions; create or change one of these"))
	default:
		judgeBornApproved(&in, &v)
	}
	return v.Sorted()
}

// judgeBornApproved judges a plan that OLM will run at once. Only names are known, so a CSV passes if every policy of
// its package allows it by name, and an unknown one passes if no Subscription of the namespace is under a policy that
// must judge plans first. Switching a Subscription to Manual makes OLM create the plan again, and then all its contents
// are judged.
func judgeBornApproved(in *PlanCreateInput, v *verdict.Verdict) {
	if in.Namespace.Constrained() {
		state.RecordForNamespace(v, in.Namespace, RulePlanBornApproved,
			verdict.OnHold("a plan that is approved from the start",
				"set spec.installPlanApproval of the Subscriptions in this namespace to "+olm.ApprovalManual+
					", since "+in.Namespace.JudgeText()).At("spec.approved"))
		return
	}
	for _, name := range in.New.Spec.CSVNames {
		pkg, disputed := in.Namespace.Claimed(name)
		policies, known := in.Namespace.Governing(pkg), pkg != ""
		for _, s := range in.Namespace.Subscriptions() {
			if pkg == "" && !disputed && s.Spec.StartingCSV == name {
				policies, known = append(policies, in.Namespace.Governing(s.Spec.Package)...), true
			}
		}
		what := text.Name(name) + " in a plan that is approved from the start is held"
		if !known {
			// It may come from any Subscription, even one that is Manual now: OLM does not create such a plan beside a Manual
			// Subscription, so it read this one before it was changed, most likely by the loop.
			policies = in.Namespace.Enforcing()
			what = text.Name(name) +
				", whose package is not known yet, in a plan that is approved from the start is held"
		}
		for _, p := range policies {
			passes := p.PassesByName(name) && in.Namespace.NotUpgradeable(p.Package, name) == nil ||
				!known && !in.Namespace.Subscribed(p)
			if mode, because := in.Namespace.Approval(p); mode == olm.ApprovalManual && !passes {
				p.Record(v, RulePlanBornApproved, verdict.Finding{Decision: verdict.Hold, Field: "spec.approved",
					What: what,
					Accepted: "set spec.installPlanApproval of the Subscriptions to " + p.PackageText() + " to " +
						olm.ApprovalManual + ", since " + because})
			}
		}
	}
}

// PlanUpdateInput is the input of JudgePlanUpdate.
type PlanUpdateInput struct {
	// New is the object as it would be stored; its status is the stored one, so it is not read.
	New *olm.InstallPlanHead
	// Old is the stored object.
	Old       *olm.InstallPlan
	Namespace *state.Namespace
	// User is the name of the user who writes, and ConsentRefused why that user may not consent, which is asked if
	// ConsentAsked; empty if the user has the right on all of ConsentNeeds.
	User, ConsentRefused string
	// Now is that of PlanInput.
	Now time.Time
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgePlanUpdate decides on an update of an InstallPlan: setting spec.approved gets the full verdict for every user,
// cluster admins and OLM included; the contents of the plan must not change.
func JudgePlanUpdate(in PlanUpdateInput) verdict.Verdict {
	v := verdict.Verdict{Object: "installplan " + in.Old.Metadata.Key()}
	if in.New.Spec.Approved && !in.Old.Spec.Approved {
		approval := JudgePlan(PlanInput{Plan: in.judgedPlan(), Namespace: in.Namespace, Now: in.Now,
			Interrupt: in.Interrupt})
		v.CSVs, v.Consents = approval.CSVs, approval.Consents
		v.Warnings = append(v.Warnings, approval.Warnings...)
		for _, r := range approval.Reasons {
			v.Refuse(r)
		}
	}
	if in.Namespace.Judged() {
		frozen(&v, in.Namespace, !slices.Equal(in.New.Spec.CSVNames, in.Old.Spec.CSVNames), "spec.clusterServiceVersionNames")
		frozen(&v, in.Namespace, in.New.Spec.Approval != in.Old.Spec.Approval, "spec.approval")
		frozen(&v, in.Namespace, in.New.Spec.Generation != in.Old.Spec.Generation, "spec.generation")
	}
	in.judgeConsentWrite(&v)
	added := overrideAsked(RulePlanOverride, &in.New.Metadata, &in.Old.Metadata, in.Now).Reason != ""
	if added && (v.Decision == verdict.Allow || in.OverrideAsked().Reason == "") {
		refuseOverrideReason(&v)
	}
	if in.overrideMoved() { // one that has ended would open again
		v.Add(RulePlanOverrideReason, verdict.NotAllowed("changing annotation "+metakey.OverrideExpires,
			"an override ends when its approval states; to end it now, write "+
				evidence.EndedMark).At("metadata.annotations["+metakey.OverrideExpires+"]"))
	}
	return v.Sorted()
}

// frozen refuses to change a field of a plan.
func frozen(v *verdict.Verdict, ns *state.Namespace, changed bool, field string) {
	if changed {
		state.RecordForNamespace(v, ns, RulePlanFrozen, verdict.NotAllowed("changing "+field,
			"the contents of a plan are what was judged; OLM writes a new plan when something changes").At(field))
	}
}

// PlanStatusInput is the input of JudgePlanStatusUpdate.
type PlanStatusInput Write[olm.InstallPlan]

// JudgePlanStatusUpdate decides on a write to an InstallPlan's status. Only OLM may change what the plan will write or
// its phase, since OLM runs a plan in phase Installing without checking spec.approved; a refused write of OLM would leave
// an orphan plan, and is not sent. The one transition allowed to others is from RequiresApproval to Installing, for an
// approved plan that passes; Opgate repeats interrupted plans, of which each step is judged again.
func JudgePlanStatusUpdate(in PlanStatusInput) verdict.Verdict {
	v := verdict.Verdict{Object: "installplan " + in.Old.Metadata.Key()}
	if in.ByOLM || !in.Namespace.Judged() {
		return v
	}
	is, was := &in.New.Status, &in.Old.Status
	frozen(&v, in.Namespace, !slices.Equal(is.BundleLookups, was.BundleLookups), "status.bundleLookups")
	frozen(&v, in.Namespace, !slices.EqualFunc(is.Steps, was.Steps, olm.SameStep), "status.plan")
	// It records which definitions the plan created.
	frozen(&v, in.Namespace, is.InstalledAt != was.InstalledAt, "status.conditions")
	frozen(&v, in.Namespace, is.ServiceAccount != was.ServiceAccount, "status.attenuatedServiceAccountRef")
	from, to := was.Phase, is.Phase
	if from == to {
		return v.Sorted()
	}
	accepted := "only OLM changes the phase of a plan"
	if to == olm.PhaseInstalling {
		if in.ByOpgate && Interrupted(in.Old) {
			return v.Sorted()
		}
		approval := JudgePlan(PlanInput{Plan: in.Old, Namespace: in.Namespace, Now: in.Now, Interrupt: in.Interrupt})
		switch {
		case approval.Decision != verdict.Allow:
			for _, r := range approval.Reasons {
				v.Refuse(r)
			}
		case in.Old.Spec.Approved && from == olm.PhaseRequiresApproval:
			return v.Sorted()
		case in.Old.Spec.Approved: // users must not rerun a plan that has run
		default:
			accepted = "set spec.approved instead, then OLM starts the plan"
		}
	}
	state.RecordForNamespace(&v, in.Namespace, RulePlanStatusPhase, verdict.NotAllowed("changing status.phase from "+
		text.Quote(from)+" to "+text.Quote(to), accepted).At("status.phase"))
	return v.Sorted()
}

// Interrupted reports whether an approved plan failed because no replica answered when OLM wrote a step as the
// ServiceAccount that the plan names. That account belongs to a tenant, so its writes are refused then, unlike those of
// OLM itself, and OLM fails a plan whose steps have failed for a minute. OLM repeats such a plan by itself only when
// rights in the namespace change.
func Interrupted(p *olm.InstallPlan) bool {
	return p.Status.Phase == olm.PhaseFailed && p.Spec.Approved && p.Status.ServiceAccount.Name != "" &&
		stepNotJudged.MatchString(p.Status.Message)
}

// stepNotJudged matches what the API server writes if it cannot call a webhook that receives what such an account writes.
var stepNotJudged = regexp.MustCompile(`failed calling webhook "(clusterserviceversions|subscriptions)\.opgate\.io"`)

// ConsentAsked reports whether an update consents to changes, which needs the RBAC verb approve: it adds a digest to
// the annotation, moves its end to a later time, or changes the name of the user. Removing any digest, or the name,
// needs no right, nor does an earlier end.
func (in *PlanUpdateInput) ConsentAsked() bool {
	was, _ := evidence.Consented(&in.Old.Metadata)
	is, problem := evidence.Consented(&in.New.Metadata)
	if problem != "" {
		return in.New.Metadata.Annotations.Consent != in.Old.Metadata.Annotations.Consent
	}
	for digest := range is {
		if !was[digest] {
			return true
		}
	}
	if len(is) > 0 && evidence.ConsentExpiry(&in.New.Metadata).Later(evidence.ConsentExpiry(&in.Old.Metadata)) {
		return true
	}
	by := in.New.Metadata.Annotations.ConsentBy
	return by != "" && by != in.Old.Metadata.Annotations.ConsentBy
}

// ConsentNeeds returns the policies on which a user needs the RBAC verb approve to consent to what a plan changes:
// those with spec.consent of the packages in the plan.
func (in *PlanUpdateInput) ConsentNeeds() []verdict.PolicyRef {
	in.Old.ParseBundles() // several rules ask, and the plan is this review's alone
	var needs []verdict.PolicyRef
	seen := map[verdict.PolicyRef]bool{}
	for _, c := range carrier.OfPlan(in.Old, in.Namespace) {
		for _, p := range in.Namespace.Governing(c.Package) {
			if ref := p.Ref(); p.ReviewsChanges() && !seen[ref] {
				seen[ref] = true
				needs = append(needs, ref)
			}
		}
	}
	return needs
}

// judgeConsentWrite keeps consent to users with the right: any other who could write the annotation would consent
// for them. That applies in every namespace, since the policy that needs consent may be created later.
func (in *PlanUpdateInput) judgeConsentWrite(v *verdict.Verdict) {
	expires := evidence.ConsentExpiry(&in.New.Metadata)
	if expires.Malformed() && expires != evidence.ConsentExpiry(&in.Old.Metadata) {
		refuseConsent(v, metakey.ConsentExpires, "is not a time, "+
			text.Quote(text.Truncate(expires.Value, evidence.MaxShown)), expires.Accepted())
		return
	}
	if !in.ConsentAsked() {
		return
	}
	_, problem := evidence.Consented(&in.New.Metadata)
	by := in.New.Metadata.Annotations.ConsentBy
	switch {
	case problem != "":
		refuseConsent(v, metakey.Consent, "is not a list of digests", problem+"; separate several by commas")
	case len(in.ConsentNeeds()) == 0:
		refuseConsent(v, metakey.Consent, "is not allowed here",
			"no OperatorPolicy with spec.consent governs a package of the plan")
	case expires.Ended(in.Now) != "":
		refuseConsent(v, metakey.ConsentExpires, "is not allowed: the consent "+expires.Ended(in.Now),
			expires.Accepted())
	case in.ConsentRefused != "":
		refuseConsent(v, metakey.Consent, "is not allowed", in.ConsentRefused)
	case by != "" && by != in.User:
		refuseConsent(v, metakey.ConsentBy, "names "+text.Quote(by), "allowed is the name of the user who consents, "+
			text.Quote(in.User))
	}
}

func refuseConsent(v *verdict.Verdict, annotation, what, accepted string) {
	refuseAnnotation(v, RulePlanConsentRight, annotation, what, accepted)
}

func refuseAnnotation(v *verdict.Verdict, id verdict.RuleID, annotation, what, accepted string) {
	v.Add(id, verdict.Finding{Decision: verdict.Deny, Field: "metadata.annotations[" + annotation + "]",
		What: "annotation " + annotation + " " + what, Accepted: accepted})
}

// judgedPlan returns the stored plan with the consent that the update leaves: what it removes does not count any more,
// and what it adds counts at once if the user has the right.
func (in *PlanUpdateInput) judgedPlan() *olm.InstallPlan {
	judged := *in.Old
	annotations := &judged.Metadata.Annotations
	annotations.Consent, annotations.ConsentBy = in.New.Metadata.Annotations.Consent,
		in.New.Metadata.Annotations.ConsentBy
	annotations.ConsentExpires = in.New.Metadata.Annotations.ConsentExpires
	return &judged
}
