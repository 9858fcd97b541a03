package rules

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
)

// judgeStepContents compares what OLM writes with what was read for the plan, which is what a user has consented to: it may come from a
// ConfigMap that was edited since. What was not read at all is held by reviewChange.
func judgeStepContents(c *Bundle, ns *Namespace, v *Verdict) {
	set, unknown := ns.changeOf(c.plan, c)
	if c.stored || unknown != "" || c.spec == nil || set.Spec == c.spec.ContentsDigest() {
		return
	}
	first := set.From == ""
	for _, p := range ns.governing(c.pkg) {
		if !p.consents() || !p.consent.reviews(first) {
			continue
		}
		hold := len(p.consent.classes(policyv1beta2.ConsentHold, first)) > 0
		v.recordReview(RuleBundleContents, p, hold, finding{decision: Deny, field: "spec", what: "the spec of " + text.Name(c.name) + " is not allowed",
			accepted: "it is not what was read for InstallPlan " + text.Name(c.plan.Metadata.Name) +
				"; delete that plan, so that OLM unpacks the bundle again, and have the new one reviewed"})
	}
}

// judgeUnreviewed holds a ClusterServiceVersion that bypasses OLM: what it changes is compared with nothing.
func judgeUnreviewed(c *Bundle, p *OperatorPolicy, v *Verdict) {
	if !p.consents() {
		return
	}
	v.recordReview(RuleBundleContents, p, p.consent.holds(), finding{decision: Hold, what: text.Name(c.name) + ", which no InstallPlan brings, is held",
		accepted: "spec.consent reviews what InstallPlans change; let OLM install it, from a Subscription"})
}
