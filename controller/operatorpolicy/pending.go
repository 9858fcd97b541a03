package operatorpolicy

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// noRule is the label of plans that no rule holds: their approval is left to a user, or failed.
const noRule verdict.RuleID = "none"

// Metrics export the plans that wait for approval, and how long approvals take.
type Metrics struct {
	age, latency prometheus.Histogram

	mu sync.Mutex
	// plans are those that wait, by namespace and UID. There is an entry for each namespace with such plans.
	plans map[string]map[string]pendingPlan
	// rules are those that have held plans since this replica leads.
	rules map[verdict.RuleID]bool
}

// pendingPlan is a plan that waits for approval.
type pendingPlan struct {
	// rule is the most severe one that holds the plan, noRule if none does.
	rule verdict.RuleID
	// created is when the plan was written, zero if that cannot be read.
	created time.Time
	// deadline is when it has waited for too long by a policy; zero for never.
	deadline time.Time
	// allowed is when the snapshot was built by which the rules let the loop approve the plan, zero if they do not.
	allowed time.Time
}

func newPending(registry prometheus.Registerer, leading apply.Leading) *Metrics {
	p := &Metrics{plans: map[string]map[string]pendingPlan{}, rules: map[verdict.RuleID]bool{},
		age: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "opgate_loop_approval_age_seconds",
			Help:    "Seconds from the creation of an InstallPlan to its approval by the background loop.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 5 * 60, 60 * 60, 24 * 60 * 60, 7 * 24 * 60 * 60}}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "opgate_loop_approval_latency_seconds",
			Help:    "Seconds from the snapshot by which the rules allow an InstallPlan to its approval by the background loop.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
	}
	registry.MustRegister(p.age, p.latency,
		leading.Gauge("opgate_plans_held", "Number of InstallPlans that wait for approval, by the rule that holds them.",
			[]string{"rule"}, func(_ *snapshot.Snapshot, set func(float64, ...string)) {
				numbers, _, _ := p.count()
				for rule, number := range numbers {
					set(float64(number), string(rule))
				}
			}),
		leading.Gauge("opgate_plans_held_oldest_timestamp_seconds",
			"Seconds since 1970 at which the oldest InstallPlan that waits for approval was created, by the rule that holds it.",
			[]string{"rule"}, func(_ *snapshot.Snapshot, set func(float64, ...string)) {
				_, oldest, _ := p.count()
				for rule, first := range oldest {
					set(float64(first.Unix()), string(rule))
				}
			}),
		leading.Gauge("opgate_upgrade_deadline_timestamp_seconds",
			"Seconds since 1970 at which the first upgrade that waits for approval has waited for longer than "+
				"a policy's maximumWait.", nil, func(_ *snapshot.Snapshot, set func(float64, ...string)) {
				if _, _, deadline := p.count(); !deadline.IsZero() { // no series where no upgrade has one
					set(float64(deadline.Unix()))
				}
			}))
	return p
}

// count counts the plans that wait, by rule, and returns when the oldest was created, and the first deadline. The number
// of a rule that holds no plan any more is 0; there is no oldest plan then.
func (p *Metrics) count() (numbers map[verdict.RuleID]int, oldest map[verdict.RuleID]time.Time, deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	numbers, oldest = map[verdict.RuleID]int{}, map[verdict.RuleID]time.Time{}
	for rule := range p.rules {
		numbers[rule] = 0
	}
	for _, plans := range p.plans {
		for _, plan := range plans {
			numbers[plan.rule]++
			if first, found := oldest[plan.rule]; !plan.created.IsZero() && (!found || plan.created.Before(first)) {
				oldest[plan.rule] = plan.created
			}
			if at := plan.deadline; !at.IsZero() && (deadline.IsZero() || at.Before(deadline)) {
				deadline = at
			}
		}
	}
	return numbers, oldest, deadline
}

// judgement is one reconciliation of a namespace, in which every plan that waits is judged.
type judgement struct {
	*Metrics
	namespace string
	// built is when the snapshot was built that the plans are judged by.
	built         time.Time
	now           func() time.Time
	before, after map[string]pendingPlan
}

// judge begins to judge the plans of a namespace, which is not judged twice at the same time.
func (p *Metrics) judge(namespace string, built time.Time, now func() time.Time) *judgement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &judgement{Metrics: p, namespace: namespace, built: built, now: now, before: p.plans[namespace],
		after: map[string]pendingPlan{}}
}

// judged records a plan that waits for approval, and until when it may.
func (j *judgement) judged(plan *olm.InstallPlan, a *rules.Approval, deadline time.Time) {
	created, _ := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp) // zero if it cannot be read
	before := j.before[plan.Metadata.UID]
	one := pendingPlan{rule: noRule, created: created, deadline: deadline}
	switch {
	case a.Should() && before.allowed.IsZero():
		one.allowed = j.built
	case a.Should(): // it is tried again
		one.allowed = before.allowed
	case a.Verdict.Decision != verdict.Allow && len(a.Verdict.Reasons) > 0:
		one.rule = a.Verdict.Reasons[0].Rule
	}
	j.after[plan.Metadata.UID] = one
}

// approved records the approval of a plan that was judged.
func (j *judgement) approved(plan *olm.InstallPlan) {
	one, now := j.after[plan.Metadata.UID], j.now()
	delete(j.after, plan.Metadata.UID)
	if !one.created.IsZero() {
		j.age.Observe(max(0, now.Sub(one.created).Seconds()))
	}
	j.latency.Observe(max(0, now.Sub(one.allowed).Seconds()))
}

// end exports the plans that still wait. Those that were not judged do not wait any more.
func (j *judgement) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.plans[j.namespace] = j.after; len(j.after) == 0 {
		delete(j.plans, j.namespace)
	}
	for _, plan := range j.after {
		j.rules[plan.rule] = true
	}
}

// setOrigins sets the origins of copies of a policy's package, and the originals in other namespaces that serve the
// policy's namespace without a copy: OLM creates none if OLMConfig disables copies (disableCopiedCSVs).
func (r *Controller) setOrigins(p *operatorpolicy.Policy, in *compliance.Input) {
	if p.MustNotHave || p.Concerns() == "" {
		return
	}
	in.Origins = map[*olm.CSV]*compliance.Origin{}
	for _, c := range in.Namespace.CSVs() {
		from := c.Metadata.Labels.CopiedFrom
		if from == "" || from == c.Metadata.Namespace || c.Bundle.Package != "" && c.Bundle.Package != p.Package {
			continue
		}
		if origin := r.origin(from, c.Metadata.Name, c.Metadata.Namespace); origin != nil {
			in.Origins[c] = origin
		}
	}
	s := r.Store.Load()
	for _, namespace := range s.InstalledGlobally(p.Package) {
		if namespace == p.Concerns() {
			continue
		}
		for _, c := range s.Namespace(namespace).CSVs() {
			copied := func(o *olm.CSV) bool {
				return o.Metadata.Labels.CopiedFrom == namespace && o.Metadata.Name == c.Metadata.Name
			}
			if c.Bundle.Package != p.Package || c.Metadata.Labels.CopiedFrom != "" || c.IsVirtual() ||
				slices.ContainsFunc(in.Namespace.CSVs(), copied) {
				continue
			}
			if origin := r.origin(namespace, c.Metadata.Name, p.Concerns()); origin != nil {
				in.Originals = append(in.Originals, origin.CSV)
				in.Origins[origin.CSV] = origin
			}
		}
	}
}

// origin returns an original with its namespace, for the evaluation of another one; nil if there is none.
func (r *Controller) origin(namespace, name, dependent string) *compliance.Origin {
	r.state.depends(dependent, namespace) // before reading: a change in between triggers another evaluation
	ns := r.Store.Load().Namespace(namespace)
	i := slices.IndexFunc(ns.CSVs(), func(c *olm.CSV) bool { return c.Metadata.Name == name })
	if i < 0 {
		return nil
	}
	return &compliance.Origin{CSV: ns.CSVs()[i], Namespace: ns}
}

// before returns the Subscriptions that the status of a policy relates to it.
func (r *Controller) before(p *operatorpolicy.Policy) (subscriptions []*olm.Subscription) {
	if p.MustNotHave || p.Concerns() == "" {
		return nil
	}
	for i := range p.Object.Status.RelatedObjects {
		o := &p.Object.Status.RelatedObjects[i].Object
		if o.Kind != olm.KindSubscription {
			continue
		}
		key := types.NamespacedName{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
		if key.Namespace != p.Concerns() {
			r.state.depends(p.Concerns(), key.Namespace)
		}
		if found := r.Store.Load().Find(snapshot.Subscriptions, key); found != nil {
			subscriptions = append(subscriptions, found.Subscription())
		}
	}
	return subscriptions
}
