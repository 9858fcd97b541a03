package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/verdict"
)

// Causes returns the reasons of a refusal for programs, which read no message: the status.details.causes of a webhook's
// answer.
func Causes(v *verdict.Verdict) (causes []metav1.StatusCause) {
	for _, r := range v.Reasons {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(r.Rule), Field: r.Field, Message: r.Message},
			metav1.StatusCause{Type: metakey.CauseDecision, Message: r.Decision.String()})
		if r.Source != "" {
			causes = append(causes, metav1.StatusCause{Type: metakey.CausePolicy, Message: r.Source})
		}
		if r.Digest != "" {
			causes = append(causes, metav1.StatusCause{Type: metakey.CauseDigest, Message: r.Digest})
		}
	}
	return causes
}

// fromCauses returns the reasons that Causes wrote; none for those of another webhook.
func fromCauses(causes []metav1.StatusCause) (reasons []verdict.Reason) {
	for _, c := range causes {
		if rule := RuleOf(verdict.RuleID(c.Type)); rule.ID != "" {
			r := verdict.Reason{Decision: verdict.Deny, Field: c.Field, Message: c.Message}
			r.Rule = rule.ID
			reasons = append(reasons, r)
		}
		if len(reasons) == 0 {
			continue
		}
		switch r := &reasons[len(reasons)-1]; c.Type {
		case metakey.CauseDecision:
			if c.Message == verdict.Hold.String() {
				r.Decision = verdict.Hold
			}
		case metakey.CausePolicy:
			r.Source = c.Message
		case metakey.CauseDigest:
			r.Digest = c.Message
		}
	}
	return reasons
}

// What the API server writes before the text of what refuses at admission, or cannot be asked.
var (
	refusedBy = regexp.MustCompile(`admission webhook "([^"]*)" denied the request: |` +
		`ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: `)
	notCalled = regexp.MustCompile(`failed calling webhook "([^"]*)"`)
	ruleIn    = regexp.MustCompile(`\(([a-z]+/[a-z]+(?:-[a-z]+)*)\)`)
)

// Refusal is what admission refused a write by.
type Refusal struct {
	// Webhook or Policy is the name of the webhook or ValidatingAdmissionPolicy that refused; the other is empty.
	Webhook, Policy string
	// Verdict has the reasons. One without a rule is of something else than Opgate.
	Verdict verdict.Verdict
}

// RefusalOf returns what an error of the API server states of a refusal; nil if admission refused nothing. A webhook
// of Opgate states its reasons in the status. An admission policy has text alone, in a fixed form: the reason names its
// rule in parentheses, and is held if all rules in the text only hold.
func RefusalOf(err error) *Refusal {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) {
		return nil
	}
	answer := status.Status()
	at := refusedBy.FindStringSubmatchIndex(answer.Message)
	if at == nil {
		return nil
	}
	found, words := &Refusal{}, refusedBy.FindStringSubmatch(answer.Message[at[0]:])
	found.Webhook, found.Policy = words[1], words[2]
	if answer.Details != nil {
		found.Verdict.Reasons = fromCauses(answer.Details.Causes)
	}
	if len(found.Verdict.Reasons) == 0 {
		found.Verdict.Reasons = append(found.Verdict.Reasons, reasonIn(strings.TrimSpace(answer.Message[at[1]:])))
	}
	for _, r := range found.Verdict.Reasons {
		found.Verdict.Decision = max(found.Verdict.Decision, r.Decision)
	}
	return found
}

// reasonIn returns the reason that a refusal without causes is the text of.
func reasonIn(refusal string) verdict.Reason {
	r := verdict.Reason{Decision: verdict.Hold, Message: refusal}
	for _, match := range ruleIn.FindAllStringSubmatch(refusal, -1) {
		rule := RuleOf(verdict.RuleID(match[1]))
		if r.Rule == "" {
			r.Rule = rule.ID
		}
		if slices.Contains(rule.Outcomes, verdict.OutcomeDeny) {
			r.Decision = verdict.Deny
		}
	}
	if r.Rule == "" {
		r.Decision = verdict.Deny
	}
	return r
}

// uncalled returns the webhook that the API server could not call, by a message that quotes it; "" for none.
func uncalled(message string) string {
	if words := notCalled.FindStringSubmatch(message); words != nil {
		return words[1]
	}
	return ""
}
