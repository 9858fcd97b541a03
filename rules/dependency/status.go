package dependency

import (
	"slices"
	"time"

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
	// Outcomes has one entry per template, in their order. Objects are what the templates created, nil if missing.
	Outcomes []TemplateOutcome
	Objects  []map[string]any
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
	before := detailsByName(next.Details)
	next.Details = nil
	for i := range in.Outcomes {
		out := &in.Outcomes[i]
		detail := before.take(out.Template)
		if !out.Unread || detail.ComplianceState != policyv1.ComplianceState(out.State) {
			detail.ComplianceState, detail.Dependencies = policyv1.ComplianceState(out.State), out.Dependencies
			previous := newest(detail.History)
			detail.History = nextHistory(detail.History, out, in.object(i), now, maxDetails/len(in.Outcomes))
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

func (in *StatusInput) object(i int) map[string]any {
	if i < len(in.Objects) {
		return in.Objects[i]
	}
	return nil
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
		s.state, s.evaluating, says = Unknown, evaluating, "templates whose compliance is not known: "
		if evaluating {
			says = "templates that are not evaluated yet: "
		}
	default:
		return s
	}
	s.message = says + text.Names(names[s.state], maxConditionTemplates)
	return s
}

// details are those of the present status, by the name of the template: the order of templates may have changed.
type details map[string][]*policyv1.DetailsPerTemplate

func detailsByName(list []*policyv1.DetailsPerTemplate) details {
	d := make(details, len(list))
	for _, detail := range list {
		if detail != nil {
			d[detail.TemplateMeta.Name] = append(d[detail.TemplateMeta.Name], detail)
		}
	}
	return d
}

// take removes and returns the next entry of a name, or returns a new one.
func (d details) take(name string) *policyv1.DetailsPerTemplate {
	if list := d[name]; len(list) > 0 {
		d[name] = list[1:]
		return list[0]
	}
	return &policyv1.DetailsPerTemplate{TemplateMeta: metav1.ObjectMeta{Name: name}}
}

// maxTemplates bounds the templates of a Policy, as its definition does.
const maxTemplates = 500

// TrimStatus removes what nothing reads of the status of a Policy, which may be as large as etcd accepts (threat G35).
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
