// Package constraint reconciles Constraints: it maintains the virtual operators, which pass cluster properties to OLM's
// resolver, makes Subscriptions that are older than a Constraint require approval, and writes the status of
// Constraints.
//
// It is driven by events alone. The observed state is the snapshot that admission judges by; packages rules and virtual
// decide what to do.
package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

const (
	// workers is the number of namespaces and statuses that are reconciled concurrently.
	workers = 4
	// eventBatch is how long the events of namespaces are batched before operators are counted again: an installation
	// causes a dozen events.
	eventBatch = time.Second
	// writeBatch is how long writes of a Constraint's virtual operators are batched before they are counted.
	writeBatch = 100 * time.Millisecond
	// resyncDelay is long enough for a virtual operator to reach OLM's cache.
	resyncDelay = time.Second
)

// Controller reconciles Constraints on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Escaped returns the number of refused operators that were installed while Opgate was not running.
	Escaped func(constraint string) int

	queue       manager.Queue[work]
	wanted      wanted
	writeErrors writeErrors
	tallies     tallies
}

// Everything enqueues all namespaces and statuses. It does not block.
func (r *Controller) Everything() { r.queue.Add(work{kind: everything}) }

// changed enqueues what a change of the snapshot affects.
func (r *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		if name != "" {
			r.queue.Add(work{namespace, name})
		}
	}
	if len(change.Namespaces) > 0 {
		r.queue.AddAfter(work{kind: statuses}, eventBatch)
	}
	if change.Constraints {
		r.Everything()
	}
}

// AddTo adds the controller to the manager of the leader.
func (r *Controller) AddTo(mgr ctrl.Manager) error {
	r.Client, r.wanted.missing = mgr.GetClient(), r.Grants.Missing(grant.VirtualOperators)
	return manager.Registration[work]{
		Name:       "constraint",
		Reconciler: r,
		Workers:    workers,
		Queue:      &r.queue,
		Store:      r.Store,
		Changed:    r.changed,
	}.AddTo(mgr)
}

// RegisterMetrics registers what installed operators violate, and when exceptions of policies and Constraints end. What
// names Constraints has a registry of its own, since not every user may read it.
func RegisterMetrics(registry, named prometheus.Registerer, leading apply.Leading, now func() time.Time) {
	named.MustRegister(leading.Gauge("opgate_constraint_violations",
		"Number of violations of a Constraint by installed operators.", []string{"constraint"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			for _, c := range s.ConstraintObjects() {
				set(float64(c.Status.Violating), c.Name)
			}
		}))
	registry.MustRegister(leading.Gauge("opgate_violated_constraints",
		"Number of Constraints that an installed operator does not satisfy.", nil,
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			violated := 0
			for _, c := range s.ConstraintObjects() {
				if c.Status.Violating > 0 {
					violated++
				}
			}
			set(float64(violated))
		}), leading.Gauge("opgate_exception_expiry_timestamp_seconds",
		"Seconds since 1970 at which the first exception in force ends, by kind of policy.", []string{"kind"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			for kind, end := range firstEnds(s, now()) {
				set(float64(end.Unix()), kind)
			}
		}))
}

// firstEnds returns when the first exception in force ends, by kind of what has it.
func firstEnds(s *snapshot.Snapshot, now time.Time) map[string]time.Time {
	ends := map[string]time.Time{}
	add := func(kind string, exceptions operatorpolicy.Exceptions) {
		end := exceptions.End(now)
		if first, found := ends[kind]; !end.IsZero() && (!found || end.Before(first)) {
			ends[kind] = end
		}
	}
	for ns := range s.All() {
		for _, p := range ns.Policies() {
			add(verdict.KindOperatorPolicy, p.Exceptions())
		}
	}
	for _, d := range s.Constraints().Definitions() {
		add(verdict.KindConstraint, d.Exceptions)
	}
	return ends
}

// work is one item of the queue.
type work struct {
	kind workKind
	// name is the name of the namespace or of the Constraint.
	name string
}

type workKind string

const (
	// everything stands for all namespaces and all statuses, statuses for all of these.
	everything workKind = "everything"
	statuses   workKind = "statuses"
	namespace  workKind = "namespace"
	status     workKind = "status"
	// resync stands for a namespace that OLM should resolve again.
	resync workKind = "resync"
)

// writeErrors records why the virtual operator of a Constraint cannot be written in a namespace. The zero value is
// ready for use.
type writeErrors struct {
	mu sync.Mutex
	in map[string]map[string]string // Constraint, namespace, reason
}

// set records why the virtual operator of a Constraint cannot be written in a namespace, "" for no problem, and reports
// whether that is a change.
func (e *writeErrors) set(constraint, namespace, reason string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in[constraint][namespace] == reason {
		return false
	}
	if reason == "" {
		delete(e.in[constraint], namespace)
		return true
	}
	if e.in == nil {
		e.in = map[string]map[string]string{}
	}
	if e.in[constraint] == nil {
		e.in[constraint] = map[string]string{}
	}
	e.in[constraint][namespace] = reason
	return true
}

// of returns the number of namespaces with problems, by reason.
func (e *writeErrors) of(constraint string) map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]int{}
	for _, reason := range e.in[constraint] {
		counts[reason]++
	}
	return counts
}

// forget drops the entries of deleted Constraints.
func (e *writeErrors) forget(exists func(constraint string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.in {
		if !exists(name) {
			delete(e.in, name)
		}
	}
}

// Reconcile processes one item of work.
func (r *Controller) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	current := r.Store.Load()
	switch w.kind {
	case everything:
		r.writeErrors.forget(func(name string) bool {
			object, _ := find(current, name)
			return object != nil
		})
		r.eachStatus(current)
		r.eachNamespace(current)
		return reconcile.Result{}, nil
	case statuses:
		r.eachStatus(current)
		return reconcile.Result{}, nil
	case status:
		after, err := r.reconcileStatus(ctx, current, w.name)
		return reconcile.Result{RequeueAfter: after}, err
	case resync:
		return reconcile.Result{}, r.resync(ctx, current.Namespace(w.name))
	default:
		ns := current.Namespace(w.name)
		return reconcile.Result{}, errors.Join(r.switchApprovals(ctx, ns),
			r.reconcileOperators(ctx, current, w.name, ns))
	}
}

// eachNamespace enqueues every namespace that may need a write.
func (r *Controller) eachNamespace(current *snapshot.Snapshot) {
	names := map[string]bool{}
	for ns := range current.All() {
		if len(ns.Subscriptions()) > 0 {
			names[ns.Name()] = true
		}
	}
	for o := range current.AllObjects(snapshot.ClusterServiceVersions) {
		if o.VirtualOperator() {
			names[o.Namespace] = true
		}
	}
	for name := range names {
		r.queue.Add(work{namespace, name})
	}
}

func (r *Controller) eachStatus(current *snapshot.Snapshot) {
	for _, c := range current.ConstraintObjects() {
		r.queue.Add(work{status, c.Name})
	}
}

// find returns a Constraint and its definition, nil if it does not exist.
func find(current *snapshot.Snapshot, name string) (*constraintv1.Constraint, *constraint.Definition) {
	objects, definitions := current.ConstraintObjects(), current.Constraints().Definitions()
	i := slices.IndexFunc(objects, func(c *constraintv1.Constraint) bool { return c.Name == name })
	j := slices.IndexFunc(definitions, func(d *constraint.Definition) bool { return d.Name == name })
	if i < 0 || j < 0 {
		return nil, nil
	}
	return objects[i], definitions[j]
}

// switchApprovals makes the Subscriptions of a namespace require approval if they were created before a Constraint that
// applies, and switches them back when none applies any more. Webhooks handle those that are written in the meantime.
func (r *Controller) switchApprovals(ctx context.Context, ns *state.Namespace) error {
	var errs []error
	for _, sub := range ns.Subscriptions() {
		if changes := rules.ApprovalChanges(sub, ns); len(changes) > 0 && sub.Metadata.DeletionTimestamp == "" {
			errs = append(errs, r.switchApproval(ctx, sub, changes))
		}
	}
	return errors.Join(errs...)
}

func (r *Controller) switchApproval(ctx context.Context, sub *olm.Subscription, changes []verdict.Change) error {
	switch err := r.Writer.Patch(ctx, apply.Version(snapshot.Subscriptions, &sub.Metadata), merged(changes)); {
	case apply.Outdated(err):
		return nil
	case err != nil:
		return fmt.Errorf("switch the approval of Subscription %s: %w", sub.Metadata.Key(), err)
	}
	log.FromContext(ctx).Info("approval of Subscription switched", "namespace", sub.Metadata.Namespace,
		"name", sub.Metadata.Name,
		"because", changes[0].Message)
	return nil
}

// merged returns changes of fields as a merge patch.
func merged(changes []verdict.Change) map[string]any {
	fields := map[string]any{}
	for _, c := range changes {
		in, path := fields, strings.Split(strings.TrimPrefix(c.Path, "/"), "/")
		for _, name := range path[:len(path)-1] {
			if in[name] == nil {
				in[name] = map[string]any{}
			}
			in = in[name].(map[string]any)
		}
		in[strings.ReplaceAll(path[len(path)-1], "~1", "/")] = c.Value // nil removes it
	}
	return fields
}

// resync makes OLM resolve a namespace again, by one of its Subscriptions.
func (r *Controller) resync(ctx context.Context, ns *state.Namespace) error {
	for _, sub := range ns.Subscriptions() {
		if sub.Metadata.DeletionTimestamp != "" {
			continue
		}
		if err := r.Writer.Resync(ctx, sub, r.Now()); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("trigger OLM re-resolution for Subscription %s: %w", sub.Metadata.Key(), err)
		}
		return nil
	}
	return nil
}
