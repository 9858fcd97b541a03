package compliance

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
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
		if e.stuck() {
			at, _ := e.intervention()
			f.Message += "; it lost track of its ClusterServiceVersion " + text.Name(e.lost().Metadata.Name) +
				" and is linked with it again at " + at.UTC().Format(time.RFC3339)
		}
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

// unreferencedPattern matches what OLM writes of a ClusterServiceVersion that is installed without a Subscription.
var unreferencedPattern = regexp.MustCompile(`clusterserviceversion (\S+) exists and is not referenced`)

// unreferenced returns the names of the ClusterServiceVersions that, by OLM's condition, no Subscription refers to.
func unreferenced(s *olm.Subscription) []string {
	c := s.Condition(TypeResolutionFailed)
	if c == nil {
		return nil
	}
	var names []string
	for _, match := range unreferencedPattern.FindAllStringSubmatch(c.Message, -1) {
		names = append(names, strings.TrimRight(match[1], ",:"))
	}
	return names
}

// FailureOutdated reports whether OLM could not resolve a Subscription for a ClusterServiceVersion that is gone, or
// that the Subscription refers to by now. OLM v0.42 may resolve while it deletes a replaced one, v0.46 while it links a
// new one, and neither resolves again.
func FailureOutdated(s *olm.Subscription, csvs []*olm.CSV) bool {
	return slices.ContainsFunc(unreferenced(s), func(name string) bool {
		return name == s.Status.CurrentCSV || !slices.ContainsFunc(csvs,
			func(c *olm.CSV) bool { return c.Metadata.Name == name })
	})
}

// failureOutdated is FailureOutdated, also while OLM replaces a ClusterServiceVersion: it resolves once more after
// that.
func (e *evaluation) failureOutdated() bool {
	return FailureOutdated(e.subscription, e.csvs()) || e.upgrade != nil && len(unreferenced(e.subscription)) > 0
}

// lost returns the ClusterServiceVersion that the Subscription should refer to and does not, nil if there
// is none. A copy is never returned: it is installed elsewhere.
func (e *evaluation) lost() *olm.CSV {
	if e.subscription.Status.InstalledCSV != "" || e.subscription.Status.CurrentCSV != "" {
		return nil
	}
	var unclear *olm.CSV
	for _, name := range unreferenced(e.subscription) {
		csv := e.csvNamed(name)
		switch {
		case csv == nil || csv.Status.Reason == "Copied":
		case csv.Metadata.Annotations.OperatorNamespace != "" &&
			csv.Metadata.Annotations.OperatorNamespace != e.wanted.namespace:
		case csv.Bundle.Package == e.wanted.name:
			return csv
		case csv.Bundle.Package == "":
			unclear = csv
		}
	}
	return unclear
}

// stuck reports whether OLM needs an intervention. An informing policy does not intervene.
func (e *evaluation) stuck() bool { return e.enforced && e.lost() != nil }

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

// intervene makes the Subscription refer to its ClusterServiceVersion again.
func (e *evaluation) intervene(at *metav1.Time) []Action {
	if at.After(e.Now) {
		return nil
	}
	live := e.stored()
	repaired := with(live, e.lost().Metadata.Name, "status", "currentCSV")
	repaired = with(repaired, cmp.Or(e.subscription.Status.LastUpdated, e.Now.UTC().Format(time.RFC3339)), "status",
		"lastUpdated") // OLM's schema requires it
	f := condition(TypeSubscription, metav1.ConditionFalse, reasonUnsatisfiable,
		"the Subscription "+named(&e.subscription.Metadata)+" lost track of its ClusterServiceVersion "+
			text.Name(e.lost().Metadata.Name),
		e.related(kindSubscription, e.subscription.Metadata, policyv1beta2.NonCompliant, reasonUnsatisfiable))
	done := e.updated()
	done.Message = "the Subscription " + named(&e.subscription.Metadata) +
		" was linked again with its ClusterServiceVersion " + text.Name(e.lost().Metadata.Name)
	return []Action{{Status: true, Live: live, Object: repaired, Done: done, Failed: f.because("linked again")}}
}
