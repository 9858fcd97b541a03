// Package rules makes every decision of Opgate. It is pure: no client, no HTTP, no clock, no logger and no error
// return. A caller collects its input in a struct and gets a Verdict; what could not be read is an input state that
// denies or holds, never one that allows.
//
// Admission, the background loop and `opgate check` call the same entry points with the same inputs, so that the three
// never disagree:
//
//	JudgeSubscription       creating and updating a Subscription
//	JudgePlan               may this InstallPlan be approved, by anyone?
//	JudgePlanCreate         creating an InstallPlan
//	JudgePlanUpdate         updating one: approvals, overrides, what is frozen
//	JudgePlanStatusUpdate   writing its status
//	JudgeApproval           should the loop approve this plan by itself?
//	JudgeCSV                creating and updating a ClusterServiceVersion, as a step of a plan or not
//	JudgeEscape             a stored ClusterServiceVersion that admission was not asked about
//	bundle.JudgeInstalled   an installed operator, whatever installed it
//	JudgeCatalogSource      creating a CatalogSource, and changing its spec
//	JudgeOperatorGroup      creating an OperatorGroup, and changing its spec
//	JudgeClusterExtension   creating a ClusterExtension of OLM v1, and changing its source
//	JudgeClusterCatalog     creating a ClusterCatalog of OLM v1, and changing its image or priority
//	JudgeOperatorPolicy     creating and updating an OperatorPolicy
//	JudgeConstraint         creating and updating a Constraint
//	dependency.JudgePolicy  creating and updating a Policy; JudgePolicySet a PolicySet
//
// Package bundle judges what a plan or a ClusterServiceVersion brings, dependency Policies and PolicySets. What rules
// judge by is in packages below, which have no rule: carrier extracts bundles from what brings them, facts has what is
// known of the cluster, state of a namespace and its policies, and evidence what a plan states of overrides and
// consents.
//
// The code behind a refusal is found by the ID in its message: the list of its kind, in reading order, is the only place
// of the product that spells it. An element has the rule's outcomes and summary, and the function that judges by it; the
// entry point of the kind runs all of them. A rule without a function is judged where its constant is used. A new rule
// is a new element of a list and a function. What a rule and a verdict are is in package verdict.
package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// rule is a rule with what judges by it. It is an element of the list of its kind, in reading order; a constant has the
// ID of a rule that other code refers to. Each has a line in docs/rules.md and, except for those of the gate itself, a
// sample in manifests/samples and a scenario in e2e/scenarios; tests keep the four consistent.
type rule[In any] struct {
	verdict.Rule
	// byPolicy judges a write by each policy of the package, judge once for all of them. A rule without either is
	// judged by functions that refer to it.
	byPolicy bundle.ByPolicy[In]
	judge    func(In, verdict.RuleID, *verdict.Verdict)
	// previews is when judge also judges the Subscription that a policy asks for.
	previews moment
}

// moment is when a policy that is written previews what its Subscription will be told.
type moment int

const (
	never moment = iota
	always
	// ifCreated is where the policy makes a Subscription, ifAllowed where a user still has to.
	ifCreated
	ifAllowed
)

func plain[In any](kind []rule[In]) []verdict.Rule {
	rules := make([]verdict.Rule, len(kind))
	for i := range kind {
		rules[i] = kind[i].Rule
	}
	return rules
}

// GateRules returns the rules by which the gate refuses before any policy is read.
func GateRules() []verdict.Rule { return slices.Clone(gateRules) }

// RuleOf returns the rule with an ID; the zero value if there is none.
func RuleOf(id verdict.RuleID) verdict.Rule {
	for _, r := range slices.Concat(gateRules, Rules()) {
		if r.ID == id {
			return r
		}
	}
	return verdict.Rule{}
}

// Rules returns every rule of policies and Constraints, in reading order. The caller may keep the slice.
func Rules() []verdict.Rule {
	return slices.Concat(plain(subscriptionRules), bundle.Rules(), planRules, csvRules, catalogSourceRules,
		plain(operatorGroupRules), plain(clusterExtensionRules), clusterCatalogRules, deletionRules,
		operatorPolicyRules, constraintRules, dependency.Rules())
}

const (
	RuleGateNotReady    verdict.RuleID = "gate/not-ready"
	RuleGateStale       verdict.RuleID = "gate/stale"
	RuleGateUnreadable  verdict.RuleID = "gate/unreadable"
	RuleGateUnexpected  verdict.RuleID = "gate/unexpected"
	RuleGateOLMIdentity verdict.RuleID = "gate/olm-identity"
	RuleGateInternal    verdict.RuleID = "gate/internal"
)

// gateRules are those by which the gate refuses before any policy is read. Package admission applies them.
var gateRules = []verdict.Rule{
	{ID: RuleGateNotReady, Outcomes: verdict.Holds,
		Summary: "the gate has not read all policies and operators, or verified OLM's identity, yet, a few seconds after its start"},
	{ID: RuleGateStale, Outcomes: verdict.Holds,
		Summary: "a watch of the gate has shown no progress for longer than --max-staleness, or not what the gate itself wrote: policies and " +
			"operators may have changed since"},
	{ID: RuleGateUnreadable, Outcomes: verdict.Denies,
		Summary: "the review, or the object in it, cannot be read"},
	{ID: RuleGateUnexpected, Outcomes: verdict.Denies,
		Summary: "the API server asks about an operation or a subresource that this version of the gate does not know"},
	{ID: RuleGateOLMIdentity, Outcomes: verdict.Holds,
		Summary: "the write has OLM's user name, but the account is not trusted as OLM's, or it has the form of OLM's, by a user that is not configured as OLM: " +
			"it is judged like any other write"},
	{ID: RuleGateInternal, Outcomes: verdict.Holds,
		Summary: "the gate panicked while it judged; its log has the stack"},
}

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
