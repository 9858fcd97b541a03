package compliance

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

// interventionDelay is the time that OLM has to repair a stuck Subscription by itself.
const interventionDelay = 30 * time.Second

const reasonUnsatisfiable = "ConstraintsNotSatisfiable"

// unresolved returns the condition on a Subscription that OLM cannot resolve, nil if it can. OLM writes
// the failure of one Subscription to every other in the namespace; one that the constraints do not mention
// is healthy.
func (e *evaluation) unresolved() *Condition {
	sub := e.subscription
	c := sub.Condition(TypeResolutionFailed)
	if c == nil || e.failureOutdated() {
		return nil
	}
	f := condition(TypeSubscription, metav1.ConditionFalse, reasonOr(c.Reason, TypeResolutionFailed), "")
	switch {
	case !strings.EqualFold(c.Reason, reasonUnsatisfiable):
		f.Since = since(c)
		f.Message = cmp.Or(text.Truncate(c.Message, foreignText), "OLM could not resolve the Subscription "+
			named(&sub.Metadata))
	case !e.mentioned(c.Message):
		return nil
	default:
		// OLM's own text may be long, and is in another condition.
		f.Reason = reasonUnsatisfiable
		f.Message = "the constraints of the Subscription " + named(&sub.Metadata) +
			" are not satisfiable; see the message of its condition ResolutionFailed"
	}
	f.Related = append(f.Related, e.related(kindSubscription, sub.Metadata, policyv1beta2.NonCompliant, f.Reason))
	return &f
}

// mentioned reports whether a message of the resolver mentions the policy's Subscription or its package.
func (e *evaluation) mentioned(message string) bool {
	for _, about := range []string{
		"subscription " + e.subscription.Metadata.Name, "subscription " + named(&e.subscription.Metadata),
		"package " + e.wanted.name, "package " + e.wanted.namespace + "/" + e.wanted.name,
	} {
		for rest := message; ; {
			_, after, found := strings.Cut(rest, about)
			if !found {
				break
			}
			if after == "" || strings.ContainsAny(after[:1], " \t\r\n,:") {
				return true
			}
			rest = after
		}
	}
	return false
}

// failureOutdated is rules.FailureOutdated, also while OLM replaces a ClusterServiceVersion: it resolves once more after
// that.
func (e *evaluation) failureOutdated() bool {
	return rules.FailureOutdated(e.subscription, e.csvs()) || e.upgrade != nil && len(rules.Unreferenced(e.subscription)) > 0
}

// intervention returns the time of the intervention, and the duration until then. The time is not changed
// once it is set, and stays due as long as the Subscription is stuck.
func (e *evaluation) intervention() (*metav1.Time, time.Duration) {
	at := e.Policy.Status.SubscriptionInterventionTime
	if at == nil || at.Sub(e.Now) > interventionDelay {
		set := metav1.NewTime(e.Now.Add(interventionDelay).Truncate(time.Second))
		at = &set
	}
	if wait := at.Sub(e.Now); wait > 0 {
		return at, wait + time.Second // one second more, so that the time has passed by then
	}
	return at, 0
}

// relink makes the Subscription refer to its ClusterServiceVersion again if it has lost that, whatever the policy requires
// of the operator; f is the condition on the Subscription. A policy that informs reports what a user can do.
func (e *evaluation) relink(out *Outcome, f *Condition) []Action {
	if e.subscription == nil || e.failureOutdated() {
		return nil
	}
	csv := rules.Lost(e.subscription, e.Namespace.CSVs())
	if by := rules.RepairByHand(e.subscription, e.Namespace); by != "" && !e.enforced {
		f.Message += "; " + by
	}
	if csv == nil || !e.enforced {
		return nil
	}
	lost, csvName := "lost track of its ClusterServiceVersion ", text.Name(csv.Metadata.Name)
	at, after := e.intervention()
	out.Intervention = at
	if f.Message += "; it " + lost + csvName + " and is linked with it again at " + at.UTC().Format(time.RFC3339); after > 0 {
		out.again(after)
		return nil
	}
	live := e.stored()
	repaired := with(live, csv.Metadata.Name, "status", "currentCSV")
	repaired = with(repaired, cmp.Or(e.subscription.Status.LastUpdated, e.Now.UTC().Format(time.RFC3339)), "status",
		"lastUpdated") // OLM's schema requires it
	failed, done := *f, e.updated()
	failed.Message = "the Subscription " + named(&e.subscription.Metadata) + " " + lost + csvName
	done.Message = "the Subscription " + named(&e.subscription.Metadata) + " was linked again with its ClusterServiceVersion " +
		csvName
	return []Action{{Status: true, Live: live, Object: repaired, Done: done, Failed: failed.because("linked again")}}
}
