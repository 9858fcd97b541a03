// Package policy reconciles Policies and PolicySets: it creates the objects of their templates when their dependencies
// are met, deletes or suspends them when the dependencies are not met any more, and writes the status of both.
//
// It is driven by events alone. The observed state comes from the snapshot and from the watches of package watches;
// package rules/dependency decides what to do.
package policy

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
)

// workers is the number of Policies that are reconciled concurrently. A worker mostly waits for the API server.
const workers = 16

type (
	storedPolicy = snapshot.Policy

	// work is one item of the queue.
	work struct {
		kind workKind
		types.NamespacedName
	}
	workKind string
)

const (
	policy workKind = "policy"
	set    workKind = "set"
)

// Controller reconciles Policies and PolicySets on the leader. All fields are required unless they have a
// default.
type Controller struct {
	// Store provides Policies and PolicySets.
	Store *snapshot.Store
	// Metrics export the states of Policies and the number of watches, Writes count the writes.
	Metrics *Metrics
	Writes  *apply.Metrics
	// PendingGuards is what to do with an OperatorPolicy or a Constraint whose dependencies are not met.
	PendingGuards dependency.PendingGuards
	// Gatekeeper allows kinds of Gatekeeper in templates.
	Gatekeeper bool
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// ExcludedNamespaces are those that the webhook configurations exclude, Opgate's own among them. The permissions of
	// the authors of Policies there were not checked, so nothing of those Policies is applied. Default: none.
	ExcludedNamespaces []string
	// Key returns the key that the marks of Policies are signed with, nil while it is not known: until then nothing is
	// done.
	Key func() []byte
	// Events records what changes in the status of a Policy.
	Events *events.Recorder
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[work]
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	objects, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a client of template objects: %w", err)
	}
	r := &reconciler{Controller: c, objects: objects,
		writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}}
	r.watches = watches.New(watches.Options{Client: objects, Notify: r.notify, Gatekeeper: c.Gatekeeper, Log: c.Log})
	if err := mgr.Add(r.watches); err != nil {
		return fmt.Errorf("add the watches of Policies: %w", err)
	}
	return manager.Registration[work]{
		Name:       "ordering",
		Reconciler: r,
		Workers:    workers,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed: func(change *snapshot.Change) {
			c.Metrics.watches.Store(r.watches)
			r.changed(change)
		},
		Kinds: []*snapshot.Kind{snapshot.Policies, snapshot.PolicySets, snapshot.CustomResourceDefinitions},
	}.AddTo(mgr)
}

// enqueue enqueues Policies or PolicySets.
func (r *reconciler) enqueue(of workKind, keys ...types.NamespacedName) {
	for _, key := range keys {
		r.queue.Add(work{of, key})
	}
}

// notify enqueues a Policy when one of its dependencies or objects may have changed.
func (r *reconciler) notify(key types.NamespacedName) { r.enqueue(policy, key) }

// changed enqueues what changes of Policies, PolicySets and CustomResourceDefinitions affect.
func (r *reconciler) changed(change *snapshot.Change) {
	for i := range change.Objects {
		old, now := change.Objects[i].Old, change.Objects[i].Now
		switch o := change.Objects[i].Object(); o.Kind() {
		case snapshot.Policies:
			var before, after *storedPolicy
			if old != nil {
				before = old.Policy()
			}
			if now != nil {
				after = now.Policy()
			}
			r.policyChanged(o.Key(), before, after)
		case snapshot.PolicySets:
			r.enqueue(set, o.Key())
			if old == nil || now == nil || old.PolicySet().Known().Observed() != now.PolicySet().Known().Observed() {
				r.enqueue(policy, r.watches.Dependents(dependency.SetRef(o.Namespace, o.Name))...)
			}
		case snapshot.CustomResourceDefinitions:
			r.watches.Define(old, now)
		}
	}
}

func (r *reconciler) policyChanged(key types.NamespacedName, old, now *storedPolicy) {
	if old == nil || now == nil || !equality.Semantic.DeepEqual(old.Object, now.Object) {
		r.enqueue(policy, key)
	}
	if old != nil && now != nil && old.Read.Observed() == now.Read.Observed() && old.Disabled() == now.Disabled() {
		return
	}
	r.enqueue(policy, r.watches.Dependents(dependency.PolicyRef(key.Namespace, key.Name))...)
	r.enqueue(set, r.setsOf(key)...)
}

// setsOf returns the PolicySets that name a Policy. Nothing is stored for each member, since a PolicySet may have many.
func (r *reconciler) setsOf(policy types.NamespacedName) (keys []types.NamespacedName) {
	for o := range r.Store.Load().AllObjects(snapshot.PolicySets) {
		if s := o.PolicySet().Known(); s != nil && s.Namespace == policy.Namespace && s.Has(policy.Name) {
			keys = append(keys, o.Key())
		}
	}
	return keys
}

// Metrics export the states of Policies, while this replica leads, and the number of watches.
type Metrics struct {
	// watches are those of the leader, nil while another replica leads.
	watches atomic.Pointer[watches.Watches]
}

// The states of Policies besides those of compliance.
const (
	stateUnknown  = "Unknown"
	stateDisabled = "Disabled"
)

// NewMetrics registers the metrics of Policies.
func NewMetrics(registry prometheus.Registerer, leading apply.Leading) *Metrics {
	m := &Metrics{}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_ordering_watches",
		Help: "Number of active watches on dependency objects of Policies."}, func() float64 {
		if w := m.watches.Load(); w != nil {
			return float64(w.Open())
		}
		return 0
	}), leading.Gauge("opgate_policies",
		"Number of Policies by state: Compliant, NonCompliant, Pending, Unknown or Disabled.", []string{"state"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			states := map[string]int{string(dependency.Compliant): 0, string(dependency.NonCompliant): 0,
				string(dependency.Pending): 0, stateUnknown: 0, stateDisabled: 0}
			for o := range s.AllObjects(snapshot.Policies) {
				states[stateOf(o.Policy())]++
			}
			for state, count := range states {
				set(float64(count), state)
			}
		}))
	return m
}

func stateOf(p *storedPolicy) string {
	switch {
	case p.Disabled():
		return stateDisabled
	case p.Read == nil || p.Read.State == dependency.Unknown:
		return stateUnknown
	}
	return string(p.Read.State)
}
