package constraint

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// reconciler reconciles for one manager.
type reconciler struct {
	*Controller
	writer      apply.Writer
	wanted      wanted
	writeErrors writeErrors
	tallies     tallies

	mu sync.Mutex
	// known are the Constraints that existed when everything was enqueued last.
	known []string
}

// Reconcile processes one item of work.
func (r *reconciler) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	current := r.Store.Load()
	switch w.kind {
	case everything:
		r.forgetGone(current)
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
func (r *reconciler) eachNamespace(current *snapshot.Snapshot) {
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

func (r *reconciler) eachStatus(current *snapshot.Snapshot) {
	for _, c := range current.ConstraintObjects() {
		r.queue.Add(work{status, c.Name})
	}
}

// forgetGone drops metrics and state of deleted Constraints.
func (r *reconciler) forgetGone(current *snapshot.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.known {
		if object, _ := find(current, name); object == nil {
			r.Metrics.forget(name)
			r.ExceptionEnd(verdict.KindConstraint, types.NamespacedName{Name: name}, time.Time{})
		}
	}
	r.known = r.known[:0]
	for _, c := range current.ConstraintObjects() {
		r.known = append(r.known, c.Name)
	}
	r.writeErrors.forget(func(name string) bool { return slices.Contains(r.known, name) })
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
