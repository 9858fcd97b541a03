package admission

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Metrics are what the gate counts. Namespaces, users and policies are never labels: they are unbounded.
type Metrics struct {
	decisions *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	overrides *prometheus.CounterVec
}

// NewMetrics registers the gate's metrics. The snapshot's age, in seconds since it was last built, is read from the store
// when it is scraped.
func NewMetrics(registry prometheus.Registerer, store *snapshot.Store, now func() time.Time) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "opgate_decisions_total",
			Help: "Total number of admission reviews answered, by kind of object, operation, decision and the rule of the first reason.",
		}, []string{"kind", "operation", "decision", "rule"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "opgate_decision_duration_seconds",
			Help:    "Seconds from reading a review to its answer, by kind of object.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1},
		}, []string{"kind"}),
		overrides: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "opgate_overrides_total",
			Help: "Total number of refusals that users with the RBAC verb override set aside, by rule.",
		}, []string{"rule"}),
	}
	for _, rule := range rules.Rules() {
		if rule.SetsAside {
			m.overrides.WithLabelValues(string(rule.ID)) // from 0, so that the first one is an increase
		}
	}
	registry.MustRegister(m.decisions, m.duration, m.overrides,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "opgate_cel_compilations_total",
			Help: "Total number of CEL expressions of Constraints and bundles compiled.",
		}, func() float64 { return float64(constraint.Compilations()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "opgate_policy_snapshot_age_seconds",
			Help: "Seconds since the snapshot was last built; -1 until the first full one.",
		}, func() float64 {
			if s := store.Load(); s != nil {
				return now().Sub(s.Built()).Seconds()
			}
			return -1
		}), staleKinds(store))
	return m
}

// staleKinds exports which kinds are stale.
func staleKinds(store *snapshot.Store) prometheus.Collector {
	watchStale := prometheus.NewDesc("opgate_watch_stale",
		"Whether the snapshot may be too old in a kind, so that reviews are held (1) or not (0), by resource.",
		[]string{"resource"}, nil)
	return prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		stale := store.Stale()
		for _, kind := range store.Followed() {
			value := 0.0
			if slices.Contains(stale, kind) {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(watchStale, prometheus.GaugeValue, value, kind.Resource)
		}
	})
}

// observe counts one answered review. Operations that the API server does not know are counted as such, so
// that a forged review cannot make label values.
func (m *Metrics) observe(kind, operation string, v *verdict.Verdict, took time.Duration) {
	switch operation {
	case "CREATE", "UPDATE", "DELETE", "CONNECT":
	default:
		operation = "unknown"
	}
	rule := ""
	if len(v.Reasons) > 0 {
		rule = string(v.Reasons[0].Rule)
	}
	m.decisions.WithLabelValues(kind, operation, v.Decision.String(), rule).Inc()
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
}

// overridden counts an override. A verdict has one warning for each reason that was set aside.
func (m *Metrics) overridden(v *verdict.Verdict) {
	if overrides := v.Overrides(); len(overrides) > 0 {
		m.overrides.WithLabelValues(string(overrides[0].Rule)).Inc()
	}
}

// referenceTo refers to a stored object in an event.
func referenceTo(gvk schema.GroupVersionKind, o *olm.ObjectMeta) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.Namespace,
		Name: o.Name, UID: types.UID(o.UID)}
}

func storedSubscription(req *request[olm.Subscription, olm.Subscription]) *corev1.ObjectReference {
	return referenceTo(olm.SubscriptionGVK, &req.OldObject.Metadata)
}

func storedPlan[New any](req *request[New, olm.InstallPlan]) *corev1.ObjectReference {
	return referenceTo(olm.InstallPlanGVK, &req.OldObject.Metadata)
}

func storedOperatorPolicy(req *request[json.RawMessage, json.RawMessage]) *corev1.ObjectReference {
	var head struct {
		Metadata olm.ObjectMeta `json:"metadata"`
	}
	_ = json.Unmarshal(*req.OldObject, &head) // without a UID there is no event
	return referenceTo(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind), &head.Metadata)
}

// regarded returns the object that an event about a review regards; nil for none. Reviews that change nothing, or that
// the API server has not sent, cause no event. The loop reports what it does itself.
func (e *endpoint[New, Old]) regarded(req *request[New, Old]) *corev1.ObjectReference {
	if e.stored == nil || !req.update() || !req.stores() || e.gate.byOpgate(&req.User) {
		return nil
	}
	if about := e.stored(req); about.UID != "" {
		return about
	}
	return nil
}

// report records an event on the object of a review: that it was refused, or that a plan is approved by a user, if only
// with an override. Refusals that are not about the object cause none.
func (g *Gate) report(about *corev1.ObjectReference, user string, v *verdict.Verdict) {
	if about == nil {
		return
	}
	if event, ok := eventOf(v, user); ok {
		event.Regarding = *about
		g.Events.Record(event)
	}
}

// eventOf returns the event for a verdict on an update, without its object. Only the verdict on an approval has
// dispositions.
func eventOf(v *verdict.Verdict, user string) (event events.Event, ok bool) {
	switch {
	case v.Decision != verdict.Allow:
		return events.Event{Reason: events.Denied, Action: events.Update, Warning: true, Note: v.Note(),
			Related: v.Policy().Reference()}, len(v.Reasons) > 0 && !v.Reasons[0].Rule.OfGate()
	case len(v.CSVs) == 0:
		return events.Event{}, false
	}
	if note := v.OverrideNote(user); note != "" {
		return events.Event{Reason: events.Overridden, Action: events.Approve, Warning: true, Note: note,
			Related: v.Policy().Reference()}, true
	}
	return events.Event{Reason: events.Approved, Action: events.Approve, Note: v.ApprovalNote(user)},
		true
}

// log writes one line: at V(0) for refusals and overrides, which must be explainable later, at V(1) for the rest.
func (e *endpoint[New, Old]) log(req *request[New, Old], v *verdict.Verdict) {
	level, message := 1, "review allowed"
	if v.Decision != verdict.Allow {
		level, message = 0, "review refused"
	}
	log := e.gate.Log.V(level)
	if !log.Enabled() {
		return
	}
	log = log.WithValues(reviewKeys(req, v)...)
	if v.Decision != verdict.Allow {
		log = log.WithValues("message", text.Truncate(v.Refusal(), maxQuoted))
	}
	log.Info(message)
}

// reviewKeys returns the keys of a log line about a review.
func reviewKeys[New, Old any](req *request[New, Old], v *verdict.Verdict) []any {
	return slices.Concat(objectKeys(v), reasonKeys(v), []any{"reviewUID", req.UID,
		"operation", req.Operation, "subresource", req.SubResource,
		"user", text.Truncate(req.User.Username, maxQuoted), "authenticated", req.authenticated,
		"decision", v.Decision.String(), "warnings", len(v.Warnings) + len(v.Changes)})
}

// objectKeys returns the keys of a log line about the object of a verdict: kind, namespace and name. The kind is in
// lower case, the namespace is empty for objects without one. docs/metrics.md lists the keys of all lines.
func objectKeys(v *verdict.Verdict) []any {
	kind, name, _ := strings.Cut(v.Object, " ")
	namespace, below, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, below = "", name
	}
	return []any{"kind", kind, "namespace", namespace, "name", below}
}

// reasonKeys returns the keys of a log line about the reasons of a refusal: the rules, and the policies and
// Constraints, each once, in the order of the reasons.
func reasonKeys(v *verdict.Verdict) []any {
	rules, policies := []string{}, []string{}
	seen := map[string]bool{}
	add := func(to *[]string, text string) {
		if text != "" && !seen[text] {
			seen[text] = true
			*to = append(*to, text)
		}
	}
	for _, r := range v.Reasons {
		add(&rules, string(r.Rule))
		add(&policies, r.From.String())
	}
	return []any{"rules", rules, "policies", policies}
}
