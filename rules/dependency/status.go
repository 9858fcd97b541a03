package dependency

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/text"
)

// EventReason is the reason of all events of Policies.
const EventReason = "PolicyTemplateSync"

// Event is an event to record on the Policy.
type Event struct {
	// Warning selects type Warning instead of Normal.
	Warning bool
	Message string
}

// maxEvent bounds the text of an event, in bytes.
const maxEvent = 1000

// StatusInput is the input of NextStatus.
type StatusInput struct {
	// Policy has the present status.
	Policy *policyv1.Policy
	Read   *Policy
	// Outcomes has one entry per template, in their order.
	Outcomes []TemplateOutcome
	// Excluded is set where Opgate excludes the namespace of the Policy, so that the Policy has no effect.
	Excluded bool
	Now      time.Time
}

// NextStatus returns the status of a Policy and the events for what changed. It is idempotent: the same input yields
// the same status and no events.
func NextStatus(in StatusInput) (policyv1.PolicyStatus, []Event) {
	next := *in.Policy.Status.DeepCopy()
	now := metav1.NewTime(in.Now).Rfc3339Copy() // the precision that is stored
	next.ObservedGeneration = in.Policy.Generation
	if in.Excluded || in.Read.Disabled {
		s := summary{reason: ReasonDisabled, message: "the Policy is disabled"}
		if in.Excluded {
			s = summary{reason: ReasonExcluded, message: excluded}
		}
		next.ComplianceState, next.Details, next.Dependencies, next.PendingDependencies = "", nil, nil, 0
		setCondition(&next.Conditions, s, in.Policy.Generation, now)
		return next, nil
	}
	var events []Event
	before := next.Details
	next.Details = nil
	for i := range in.Outcomes {
		out := &in.Outcomes[i]
		detail := take(before, out.Template)
		if !out.Unread || detail.ComplianceState != policyv1.ComplianceState(out.State) {
			detail.ComplianceState, detail.Dependencies = policyv1.ComplianceState(out.State), out.Dependencies
			previous := newest(detail.History)
			detail.History = nextHistory(detail.History, out, now, maxDetails/len(in.Outcomes))
			if out.State != Unknown && !out.Notified && newest(detail.History) != previous {
				events = append(events, Event{Warning: out.State != Compliant,
					Message: text.Truncate(out.Template+": "+out.Message, maxEvent)})
			}
		}
		next.Details = append(next.Details, detail)
	}
	s := sumUp(in.Outcomes)
	next.ComplianceState = policyv1.ComplianceState(s.state)
	next.Dependencies, next.PendingDependencies = listPending(in.Outcomes, next.Dependencies)
	setCondition(&next.Conditions, s, in.Policy.Generation, now)
	return next, events
}

// maxConditionTemplates bounds the templates that the condition names.
const maxConditionTemplates = 10

// sumUp returns the overall state: NonCompliant takes precedence over Pending, then unknown, then Compliant.
func sumUp(outcomes []TemplateOutcome) summary {
	names := map[State][]string{}
	evaluating := true
	for i := range outcomes {
		out := &outcomes[i]
		names[out.State] = append(names[out.State], out.Template)
		if out.State == Unknown {
			evaluating = evaluating && out.Evaluating
		}
	}
	s := summary{state: Compliant, message: "all templates are Compliant"}
	says := ""
	switch {
	case len(outcomes) == 0:
		return summary{reason: ReasonNoTemplates, message: "the Policy has no templates"}
	case len(names[NonCompliant]) > 0:
		s.state, says = NonCompliant, "templates that are NonCompliant: "
	case len(names[Pending]) > 0:
		s.state, says = Pending, "templates that wait for their dependencies: "
	case len(names[Unknown]) > 0:
		s.state, says = Unknown, "templates whose compliance is not known: "
		if evaluating {
			s.reason, says = ReasonNotEvaluated, "templates that are not evaluated yet: "
		}
	default:
		return s
	}
	s.message = says + text.Names(names[s.state], maxConditionTemplates)
	return s
}

// take removes and returns the first of details with the name of a template, whose order may have changed, or returns
// new ones.
func take(details []*policyv1.DetailsPerTemplate, name string) *policyv1.DetailsPerTemplate {
	i := slices.IndexFunc(details,
		func(d *policyv1.DetailsPerTemplate) bool { return d != nil && d.TemplateMeta.Name == name })
	if i < 0 {
		return &policyv1.DetailsPerTemplate{TemplateMeta: metav1.ObjectMeta{Name: name}}
	}
	found := details[i]
	details[i] = nil
	return found
}

// maxTemplates bounds the templates of a Policy, as its definition does.
const maxTemplates = 500

// TrimStatus removes what nothing reads of the status of a Policy, which may be as large as etcd accepts.
// Differences are written, so what a hub wrote stays stored.
func TrimStatus(status *policyv1.PolicyStatus) {
	status.Placement, status.Status = nil, nil
	if len(status.Details) > maxTemplates { // Opgate writes fewer, and replaces these
		status.Details = nil
	}
	for _, detail := range status.Details {
		if detail != nil {
			detail.TemplateMeta = metav1.ObjectMeta{Name: detail.TemplateMeta.Name}
			detail.History = slices.Clone(detail.History[:min(len(detail.History), maxHistory)])
		}
	}
}

const (
	// maxHistory is how many messages are kept per template, newest first.
	maxHistory = 10
	// maxDetails bounds the messages of all templates together, in bytes, so that the object can be stored; minHistory
	// is what each template keeps in any case.
	maxDetails = 256 << 10
	minHistory = 512
)

// nextHistory adds a new message. The newest message is always that of the present state, unless that is unknown: then
// nothing is added, but that the dependencies are met.
func nextHistory(
	before []policyv1.ComplianceHistory, out *TemplateOutcome, now metav1.Time, size int,
) []policyv1.ComplianceHistory {
	size = max(size, minHistory)
	says := text.Truncate(out.Message, size)
	if out.State == Unknown {
		waited, _, found := strings.Cut(newest(before), "; Dependencies ")
		if !found || !out.Evaluating {
			return bounded(before, size)
		}
		says = waited + "; Dependencies are satisfied, and the object is not evaluated yet"
	}
	if newest(before) == says {
		return bounded(before, size)
	}
	return bounded(append([]policyv1.ComplianceHistory{{LastTimestamp: now, Message: says}}, before...), size)
}

// newest returns the newest message.
func newest(history []policyv1.ComplianceHistory) string {
	if len(history) == 0 {
		return ""
	}
	return history[0].Message
}

// bounded returns the newest messages that fit into size.
func bounded(history []policyv1.ComplianceHistory, size int) []policyv1.ComplianceHistory {
	history = history[:min(len(history), maxHistory)]
	for i := range history {
		if size -= len(history[i].Message); size < 0 && i > 0 {
			return history[:i]
		}
	}
	return history
}

// ConditionCompliant is the condition that repeats status.compliant, with a reason and a message.
const ConditionCompliant = "Compliant"

// Condition DependenciesSatisfied of a suspended object is False, with the reason that refusals name too. One that is
// not suspended has no such condition.
const (
	ConditionDependencies   = "DependenciesSatisfied"
	ReasonDependencyPending = "DependencyPending"
)

// Reasons of condition Compliant, in addition to the states.
const (
	// ReasonNotEvaluated: the state is not known yet, because an object was not evaluated since its last change.
	ReasonNotEvaluated = "NotEvaluated"
	// ReasonUnknown: no status reports the state.
	ReasonUnknown = "Unknown"
	// ReasonDisabled: the Policy is disabled.
	ReasonDisabled = "Disabled"
	// ReasonNoTemplates: the Policy has no templates.
	ReasonNoTemplates = "NoTemplates"
	// ReasonExcluded: Opgate excludes the namespace.
	ReasonExcluded = "NamespaceExcluded"
)

// excluded is the message for a Policy or PolicySet in an excluded namespace.
const excluded = "the namespace is one that Opgate leaves out, so nothing of the policy is applied"

// summary is the overall state of a Policy or PolicySet.
type summary struct {
	state State
	// reason is why the state is not known.
	reason  string
	message string
}

// setCondition writes condition Compliant. Its transition time changes only with its status.
func setCondition(conditions *[]metav1.Condition, s summary, generation int64, now metav1.Time) {
	c := metav1.Condition{Type: ConditionCompliant, Status: metav1.ConditionFalse, Reason: string(s.state),
		Message: text.Truncate(s.message, maxMessage), ObservedGeneration: generation, LastTransitionTime: now}
	switch s.state {
	case Compliant:
		c.Status = metav1.ConditionTrue
	case Unknown:
		c.Status, c.Reason = metav1.ConditionUnknown, cmp.Or(s.reason, ReasonUnknown)
	default:
	}
	meta.SetStatusCondition(conditions, c)
}

// hasReason reports whether condition Compliant is Unknown for a reason.
func hasReason(conditions []metav1.Condition, reason string) bool {
	c := meta.FindStatusCondition(conditions, ConditionCompliant)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == reason
}
