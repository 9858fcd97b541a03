package compliance

import (
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
)

// reviewed returns, to follow a sentence, who has consented to what an approved plan changes, and what the policy only
// warns of; "" if there is nothing to say. What holds a plan is among its blockers. Of a finished plan only its
// annotation is known.
func (e *evaluation) reviewed(plan *olm.InstallPlan) string {
	review := bundle.ReviewPlan(e.Rules, plan, e.Namespace, e.Now)
	var parts []string
	if plan.Spec.Approved {
		for _, c := range review.Consents {
			parts = append(parts, "consent: "+c.String())
		}
		if annotations := &plan.Metadata.Annotations; len(review.Consents) == 0 && annotations.Consent != "" {
			part := "annotation " + metakey.Consent + " consents to " +
				text.Truncate(text.Escape(annotations.Consent), foreignText)
			if annotations.ConsentBy != "" {
				part += " for user " + text.Quote(annotations.ConsentBy)
			}
			parts = append(parts, part)
		}
	}
	if parts = append(parts, review.Warnings...); len(parts) == 0 {
		return ""
	}
	return "; " + sentences(parts)
}
