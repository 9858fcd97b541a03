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
	"github.com/opgate/opgate/controller/seen"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// tallies remembers what was counted over a snapshot: all statuses are made of one count. The zero value is ready for use.
type tallies struct {
	mu      sync.Mutex
	current *snapshot.Snapshot
	tally   *rules.Tally
}

func (t *tallies) of(current *snapshot.Snapshot) *rules.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != current {
		t.current, t.tally = current, rules.NewTally(current.All())
	}
	return t.tally
}

// reconcileStatus writes the status of a Constraint if it differs. Until it is known what the cluster is, the last one
// stays: what is counted depends on it.
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
	if err := r.countOperators(ctx, current, in); err != nil {
		return err
	}
	next := evaluate(in)
	r.Metrics.set(name, next.Violating)
	if equality.Semantic.DeepEqual(object.Status, next) {
		return nil
	}
	return r.writeStatus(ctx, object, next)
}

// countOperators counts the virtual operators of a Constraint.
func (r *reconciler) countOperators(ctx context.Context, current *snapshot.Snapshot, in *statusInput) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	made := map[string]bool{}
	for _, u := range live {
		if virtual.ConstraintOf(u) == in.Object.Name && u.GetDeletionTimestamp() == nil {
			made[u.GetNamespace()] = true
		}
	}
	in.Made = len(made)
	if in.Operator == nil {
		return nil
	}
	for ns := range current.All() {
		if ns.Deleting() || ns.Facts().Unknown || !in.Operator.WantedIn(ns) {
			continue
		}
		in.Wanted++
		if !made[ns.Name()] {
			in.Missing++
		}
	}
	return nil
}

// writeStatus writes a status and waits until the snapshot shows it: the next one builds on it.
func (r *reconciler) writeStatus(ctx context.Context, object *constraintv1.Constraint, status constraintv1.ConstraintStatus) error {
	// The spec is not written, and large.
	before := &constraintv1.Constraint{ObjectMeta: object.ObjectMeta, Status: object.Status}
	next := before.DeepCopy()
	next.Status = status
	err := r.client.Status().Patch(ctx, next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	r.Wrote("patch", constraintv1.Kind, err)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // it changed, which wakes the loop
	case err != nil:
		return fmt.Errorf("write the status of Constraint %s: %w", object.Name, err)
	}
	log.FromContext(ctx).Info("status written", "constraint", object.Name, "violating", status.Violating, "virtualOperators", status.VirtualOperators)
	return seen.Wait(ctx, func() bool {
		now, _ := find(r.Store.Load(), object.Name)
		return now == nil || !seen.Older(now.ResourceVersion, next.ResourceVersion)
	})
}
