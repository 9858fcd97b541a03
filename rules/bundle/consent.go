package bundle

import (
	"strings"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// maxSummary bounds the text of a change in a message, in bytes.
const maxSummary = 2 << 10

// judgeChange judges what a ClusterServiceVersion of a plan changes; more follows what would be accepted.
func judgeChange(
	ns *state.Namespace, plan *olm.InstallPlan, c *carrier.Bundle, now time.Time, more string, v *verdict.Verdict,
) {
	for _, p := range ns.Governing(c.Package) {
		for _, r := range reviewChange(ns, plan, c, now, p, v) {
			r.Accepted += more
			recordReview(c, now, v, p, r)
		}
	}
}

// review is a finding on a change. It refuses if the policy holds such a change, else it warns.
type review struct {
	id verdict.RuleID
	verdict.Finding
	hold bool
}

// recordReview records a review of a bundle.
func recordReview(c *carrier.Bundle, now time.Time, v *verdict.Verdict, p *operatorpolicy.Policy, r review) {
	id, f := r.id, r.Finding
	if r.hold || !p.Enforced {
		recordOn(p, c, now, v, id, f)
		return
	}
	what := f.What + " by " + p.Source() + ", which only warns of that"
	if held, would := strings.CutSuffix(f.What, " is held"); would {
		what = held + " passes with a warning by " + p.Source()
	}
	v.Add(id, verdict.Finding{From: p.Ref(), Field: f.Field, What: what, Accepted: f.Accepted})
}

// reviewChange returns the findings of a policy on what a ClusterServiceVersion of a plan changes at a time, and
// records consent by which it passes.
func reviewChange(
	ns *state.Namespace, plan *olm.InstallPlan, c *carrier.Bundle, now time.Time, p *operatorpolicy.Policy,
	v *verdict.Verdict,
) []review {
	if !p.ReviewsChanges() {
		return nil
	}
	name := text.Name(c.Name)
	replaced, ends := ns.ReplacedBy(c.Package, c.Name)
	first := replaced == ""
	if !p.Consent.Reviews(first) {
		return nil
	}
	held, warned := p.Consent.Classes(policyv1beta2.ConsentHold, first),
		p.Consent.Classes(policyv1beta2.ConsentWarn, first)
	set, unknown := carrier.ChangeOf(ns, plan, c)
	if unknown != "" {
		if len(held) > 0 {
			unknown += "; waits until the contents of this InstallPlan are known"
		}
		return []review{{id: RuleContents, hold: len(held) > 0, Finding: verdict.OnHold(name+
			", whose changes are not known,", unknown+ends)}}
	}
	heldText, warnedText := set.Summary(held), set.Summary(warned)
	if heldText == "" && warnedText == "" {
		return nil
	}
	digest := set.Digest()
	given, ended, ok := consentBy(p, digest, plan, now)
	if ok {
		if given.CSV = c.Name; heldText != "" {
			v.Consents = append(v.Consents, given)
		}
		return nil
	}
	verb := "it changes "
	if ends != "" {
		verb = "in place of " + text.Name(replaced) + ", which was deleted, it adds "
	}
	if first {
		verb = "its first installation adds "
	}
	var found []review
	for _, part := range []struct {
		text   string
		hold   bool
		accept string
	}{{heldText, true, "accept "}, {warnedText, false, "to end the warning, accept "}} {
		if part.text != "" {
			// The digest comes first, since a status cuts long messages.
			accepted := part.accept + digest + " in " + verdict.AcceptedPath + ", or annotate the plan with " +
				metakey.Consent + ended + "; " + verb + text.Truncate(text.Escape(part.text), maxSummary) + ends
			found = append(found, review{id: RuleConsent, hold: part.hold,
				Finding: verdict.OnHold(name, accepted).Accepting(digest)})
		}
	}
	return found
}

// consentBy returns the consent to a change at a time: by the policy, or by the annotation of the plan, of which
// admission has checked the right. Ended follows what would be accepted, if the annotation has consented until a time
// that has come.
func consentBy(
	p *operatorpolicy.Policy, digest string, plan *olm.InstallPlan, now time.Time,
) (given verdict.Consent, ended string, ok bool) {
	given = verdict.Consent{Rule: RuleConsent, Digest: digest, Policy: p.Source(), From: verdict.AcceptedPath}
	if _, accepted := p.Consent.Accepted[digest]; accepted {
		return given, "", true
	}
	if digests, problem := evidence.Consented(&plan.Metadata); problem != "" || !digests[digest] {
		return verdict.Consent{}, "", false
	}
	e := evidence.ConsentExpiry(&plan.Metadata)
	if why := e.Ended(now); why != "" {
		return verdict.Consent{}, " (the consent to it " + why + "; " + e.Accepted() + ")", false
	}
	given.From, given.By, given.Until = metakey.Consent, plan.Metadata.Annotations.ConsentBy, e.Until()
	return given, "", true
}

// ReviewPlan returns what a policy states on the changes of an unfinished plan, apart from what holds it: the consents by
// which changes pass that the policy holds, and warnings on those that it only warns of.
func ReviewPlan(p *operatorpolicy.Policy, plan *olm.InstallPlan, ns *state.Namespace, now time.Time) (v verdict.Verdict) {
	if !p.ReviewsChanges() || plan.Finished() {
		return v
	}
	for _, c := range carrier.OfPlan(plan, ns) {
		if c.Package != p.Package {
			continue
		}
		for _, r := range reviewChange(ns, plan, &c, now, p, &v) {
			if !r.hold || !p.Enforced {
				recordReview(&c, now, &v, p, r)
			}
		}
	}
	return v.Sorted()
}

// judgeStepContents compares what OLM writes with what was read for the plan, which is what a user has consented to: it
// may come from a ConfigMap that was edited since. What was not read at all is held by reviewChange.
func judgeStepContents(c *carrier.Bundle, ns *state.Namespace, v *verdict.Verdict) {
	set, unknown := carrier.ChangeOf(ns, c.Plan, c)
	if c.Stored || unknown != "" || c.Spec == nil || set.Spec == c.Spec.ContentsDigest() {
		return
	}
	first := set.From == ""
	for _, p := range ns.Governing(c.Package) {
		if !p.ReviewsChanges() || !p.Consent.Reviews(first) {
			continue
		}
		hold := len(p.Consent.Classes(policyv1beta2.ConsentHold, first)) > 0
		// As an override, an exception does not set this aside.
		recordReview(c, time.Time{}, v, p, review{id: RuleContents, hold: hold, Finding: verdict.NotAllowed("the spec of "+
			text.Name(c.Name), "it is not what was read for InstallPlan "+text.Name(c.Plan.Metadata.Name)+
			"; delete that plan, so that OLM unpacks the bundle again, and have the new one reviewed").At("spec")})
	}
}

// judgeUnreviewed holds a ClusterServiceVersion that bypasses OLM: what it changes is compared with nothing.
func judgeUnreviewed(c *carrier.Bundle, p *operatorpolicy.Policy, v *verdict.Verdict) {
	if !p.ReviewsChanges() {
		return
	}
	// Exceptions are about what plans bring, so none counts here.
	recordReview(c, time.Time{}, v, p, review{id: RuleContents, hold: p.Consent.Holds(),
		Finding: verdict.OnHold(text.Name(c.Name)+", which no InstallPlan installs,",
			"spec.consent reviews what InstallPlans change; let OLM install it, from a Subscription")})
}
