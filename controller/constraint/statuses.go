package constraint

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// tallies caches the counts of one snapshot, so that all statuses are computed from one count. The zero value is ready for use.
type tallies struct {
	mu      sync.Mutex
	current *snapshot.Snapshot
	tally   *rules.Tally
	// made are the namespaces with a virtual operator, by Constraint.
	made map[string]map[string]bool
}

func (t *tallies) of(current *snapshot.Snapshot) *rules.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current)
	return t.tally
}

// madeFor returns the namespaces with a virtual operator of a Constraint.
func (t *tallies) madeFor(current *snapshot.Snapshot, name string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current)
	return t.made[name]
}

func (t *tallies) count(current *snapshot.Snapshot) {
	if t.current == current {
		return
	}
	t.current, t.tally, t.made = current, rules.NewTally(current.All()), map[string]map[string]bool{}
	for o := range current.Each(snapshot.ClusterServiceVersions) {
		if !o.VirtualOperator() || o.DeletionTimestamp != nil {
			continue
		}
		name := virtual.ConstraintOf(o.Unstructured())
		if t.made[name] == nil {
			t.made[name] = map[string]bool{}
		}
		t.made[name][o.Namespace] = true
	}
}

// reconcileStatus writes the status of a Constraint if it differs. It leaves the status unchanged until the cluster version is
// known, since the counts depend on it.
func (r *reconciler) reconcileStatus(ctx context.Context, current *snapshot.Snapshot, name string) error {
	object, definition := find(current, name)
	if object == nil {
		r.Metrics.forget(name)
		return nil
	}
	if current.Constraints().Cluster().Version == "" || object.ResourceVersion == "" {
		return nil // or it does not decode, so that its present status is not known; the feed has logged it
	}
	tally := r.tallies.of(current)
	in := &statusInput{Object: object, Definition: definition, Counts: tally.Of(definition), Installed: tally.Installed, Operator: r.wanted.of(current, name),
		Troubles: r.troubles.of(name), Escaped: r.Escaped(name), Now: r.Now()}
	r.countOperators(current, in)
	next := evaluate(in)
	r.Metrics.set(name, next.Violating)
	if equality.Semantic.DeepEqual(object.Status, next) {
		return nil
	}
	return r.writeStatus(ctx, object, next)
}

// countOperators counts the virtual operators of a Constraint.
func (r *reconciler) countOperators(current *snapshot.Snapshot, in *statusInput) {
	made := r.tallies.madeFor(current, in.Object.Name)
	in.Made = len(made)
	if in.Operator == nil {
		return
	}
	for ns := range current.All() {
		if ns.Deleting() || !ns.Exists() || !in.Operator.WantedIn(ns) {
			continue
		}
		in.Wanted++
		if !made[ns.Name()] {
			in.Missing++
		}
	}
}

// writeStatus writes a status and waits until the snapshot shows it, since the next status is computed from it.
func (r *reconciler) writeStatus(ctx context.Context, object *constraintv1.Constraint, status constraintv1.ConstraintStatus) error {
	// Without the spec: it is not written, and large.
	before := &constraintv1.Constraint{ObjectMeta: object.ObjectMeta, Status: object.Status}
	next := before.DeepCopy()
	next.Status = status
	err := r.client.Status().Patch(ctx, next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	r.Wrote("patch", constraintv1.Kind, err)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the object changed: its event enqueues the status
	case err != nil:
		return fmt.Errorf("write the status of Constraint %s: %w", object.Name, err)
	}
	log.FromContext(ctx).Info("status written", "constraint", object.Name, "violating", status.Violating, "virtualOperators", status.VirtualOperators)
	return r.Store.Wait(ctx, func(s *snapshot.Snapshot) bool {
		return s.Find(snapshot.Constraints, client.ObjectKeyFromObject(object)) == nil || s.Shows(snapshot.Constraints, next, false)
	})
}
