package rules

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/verdict"
)

// RulePlanConsentRight is on writes of the annotations by which users consent.
const RulePlanConsentRight verdict.RuleID = "plan/consent-right"

var planConsentRight = verdict.Rule{ID: RulePlanConsentRight, Outcomes: verdict.Denies,
	Summary: "annotation opgate.io/consent, consent-by or consent-expires is written by a user who may not consent, in another name, or in a form that is no consent"}

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
		refuseConsent(v, evidence.ConsentExpiresAnnotation, "is not a time, "+
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
		refuseConsent(v, evidence.ConsentAnnotation, "is not a list of digests", problem+"; separate several by commas")
	case len(in.ConsentNeeds()) == 0:
		refuseConsent(v, evidence.ConsentAnnotation, "is not allowed here",
			"no OperatorPolicy with spec.consent governs a package of the plan")
	case expires.Ended(in.Now) != "":
		refuseConsent(v, evidence.ConsentExpiresAnnotation, "is not allowed: the consent "+expires.Ended(in.Now),
			expires.Accepted())
	case in.ConsentRefused != "":
		refuseConsent(v, evidence.ConsentAnnotation, "is not allowed", in.ConsentRefused)
	case by != "" && by != in.User:
		refuseConsent(v, evidence.ConsentByAnnotation, "names "+text.Quote(by), "allowed is the name of the user who consents, "+
			text.Quote(in.User))
	}
}

func refuseConsent(v *verdict.Verdict, annotation, what, accepted string) {
	v.Refuse(verdict.Reason{Rule: RulePlanConsentRight, Decision: verdict.Deny,
		Field:   "metadata.annotations[" + annotation + "]",
		Message: verdict.Sentence("annotation "+annotation+" "+what, RulePlanConsentRight, accepted)})
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
