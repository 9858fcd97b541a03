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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
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

// judgeBy judges what a policy governs by the rules of a kind: by each policy, of which one that cannot be read lets
// nothing through, and once for all of them.
func judgeBy[In any](kind []rule[In], in In, what string, policies []*operatorpolicy.Policy, v *verdict.Verdict) {
	for _, p := range policies {
		if p.Unreadable() != "" {
			p.Record(v, bundle.RulePolicyUnreadable, bundle.Unreadable(p, what))
		}
	}
	for i := range kind {
		r := &kind[i]
		for _, p := range policies {
			p.Record(v, r.ID, r.byPolicy.Judge(in, p))
		}
		if r.judge != nil {
			r.judge(in, r.ID, v)
		}
	}
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

// Write is a write of an object, and what it is judged by: of that, rules on a kind read what that kind has.
type Write[T any] struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old *T
	// Namespace is that of the object; nil if it has no known objects. Of a ClusterExtension it is spec.namespace, whose
	// Constraints are not read: it may be excluded from judging, and the user who writes the object chooses it.
	Namespace *state.Namespace
	// Constraints are those of the cluster, for an object without a namespace.
	Constraints *constraint.Set
	// Package returns a package of a catalog of OLM v0, which provides the versions of listed names; nil if it is not
	// known. Default: none is known.
	Package func(pkg string, source olm.Catalog) *catalog.Package
	// Offered is the package in the catalog that a Subscription names; nil if it is not known. InstalledElsewhere reports
	// whether another namespace has it installed for all namespaces.
	Offered            *catalog.Package
	InstalledElsewhere bool
	// Mode is how to handle installPlanApproval of a Subscription. The validating webhook always denies: it cannot change
	// fields. AppliesManual reports whether an update applies Manual where MayHideManual is true.
	Mode          ApprovalMode
	AppliesManual bool
	// ByOLM and ByOpgate report whether the write comes from OLM's or from Opgate's own identity.
	ByOLM, ByOpgate bool
	// User is the name of the user who writes, and Groups are those of the user.
	User   string
	Groups []string
	// UserUnknown is set where neither is known, as in files.
	UserUnknown bool
	// Stored reports whether the object may exist already although Old is nil, as in files: operators that are installed
	// do not show that it was deleted before.
	Stored bool
	// Now is that of PlanInput.
	Now time.Time
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}

	// policy is set for the Subscription that a policy asks for, whose fields are in spec.subscription.
	policy bool
}

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
		if source := r.From.String(); source != "" {
			causes = append(causes, metav1.StatusCause{Type: metakey.CausePolicy, Message: source})
		}
		if r.Digest != "" {
			causes = append(causes, metav1.StatusCause{Type: metakey.CauseDigest, Message: r.Digest})
		}
	}
	return causes
}

// refusedBy matches what the API server writes before the text of what refuses at admission.
var refusedBy = regexp.MustCompile(`admission webhook "([^"]*)" denied the request: |` +
	`ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: `)

// RefusedBy returns, by an error of the API server, the name of the webhook or of the ValidatingAdmissionPolicy that
// refused a write at admission; two times "" if none did.
func RefusedBy(err error) (webhook, policy string) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) {
		return "", ""
	}
	found := refusedBy.FindStringSubmatch(status.Status().Message)
	if found == nil {
		return "", ""
	}
	return found[1], found[2]
}

// Override is the override that a write asks for.
type Override struct {
	// Rule is the one that the refusals become warnings of.
	Rule verdict.RuleID
	// Reason is empty if the write asks for none.
	Reason string
	// Until follows the reason in messages; empty if it does not end.
	Until string
	// Ended is why the override does not count any more, and what would be accepted; empty if it counts.
	Ended string
}

// orOverride is what else allows a write that is refused.
const orOverride = "or give a reason in annotation " + metakey.OverrideReason + " as a user with the verb override"

// overrideAsked returns the override that a write adds by a new reason; before is empty on create.
func overrideAsked(rule verdict.RuleID, after, before *olm.ObjectMeta, now time.Time) Override {
	reason, expires := evidence.OverrideReason(after), evidence.OverrideExpiry(after)
	if reason == "" || reason == evidence.OverrideReason(before) {
		return Override{}
	}
	asked := Override{Rule: rule, Reason: reason, Until: expires.Until()}
	if ended := expires.Ended(now); ended != "" {
		asked.Ended = "it " + ended + "; " + expires.Accepted()
	}
	return asked
}

// OverrideAsked returns the override that an update adds. It must be added with the approval itself: an earlier reason
// on the plan does not count.
func (in *PlanUpdateInput) OverrideAsked() Override {
	if !in.New.Spec.Approved || in.Old.Spec.Approved {
		return Override{}
	}
	return overrideAsked(RulePlanOverride, &in.New.Metadata, &in.Old.Metadata, in.Now)
}

// overrideMoved reports whether an update changes when the override on the plan ends, except to now. A mark keeps the
// end: what is stored is judged by it.
func (in *PlanUpdateInput) overrideMoved() bool {
	reason, expires, was := evidence.OverrideReason(&in.New.Metadata), evidence.OverrideExpiry(&in.New.Metadata),
		evidence.OverrideExpiry(&in.Old.Metadata)
	return reason != "" && reason == evidence.OverrideReason(&in.Old.Metadata) && expires != was && expires.Value != evidence.EndedMark &&
		expires.Value != was.Mark()
}

// OverrideText returns why a user has approved a plan that was refused, and whether that has ended, to follow a
// sentence; "" if the plan has no override. Of a plan that is complete it does not depend on the time. Who that was is
// in the plan's event, and not in the plan.
func OverrideText(p *olm.InstallPlan, now time.Time) string {
	if !evidence.Overridden(p) {
		return ""
	}
	given := "; a user approved the InstallPlan " + p.Metadata.Key() + " although it is refused, and gave the reason " +
		text.Quote(p.Metadata.Annotations.OverrideReason)
	if ended := evidence.OverrideEnd(p, now); ended != "" && p.Status.Phase != olm.PhaseComplete {
		return given + "; the override " + ended
	}
	return given + evidence.OverrideExpiry(&p.Metadata).Until()
}

// refuseOverrideReason keeps the reason of an override out of all writes but checked approvals, since the reason also
// allows the steps of the plan. That applies in every namespace: the policy that a planted reason would set aside may
// be created later.
func refuseOverrideReason(v *verdict.Verdict) {
	refuseAnnotation(v, RulePlanOverrideReason, metakey.OverrideReason, "is not allowed here",
		"set it together with spec.approved, and only where the approval is refused without it")
}

// OverrideNeeds returns the objects on which an approver needs the RBAC verb override to set this refusal aside; ok is
// false if that is not possible. A reason without a single source needs all objects that may refuse in the namespace.
func OverrideNeeds(v *verdict.Verdict, ns *state.Namespace) (needs []verdict.PolicyRef, ok bool) {
	for _, r := range v.Reasons {
		from := []verdict.PolicyRef{r.From}
		switch {
		case !RuleOf(r.Rule).Override:
			return nil, false
		case r.From == verdict.PolicyRef{} || r.Rule == bundle.RuleUnknown:
			from = ns.Sources()
		}
		for _, g := range from {
			if !slices.Contains(needs, g) {
				needs = append(needs, g)
			}
		}
	}
	return needs, len(needs) > 0
}
