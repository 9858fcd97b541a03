package constraint

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// tallies caches the counts of one snapshot, so that all statuses are computed from one count. The zero value is ready
// for use.
type tallies struct {
	mu      sync.Mutex
	current *snapshot.Snapshot
	tally   *rules.Tally
	// until is when the first exception ends that is counted; zero for none.
	until time.Time
	// made are the namespaces with a virtual operator, by Constraint.
	made map[string]map[string]bool
}

func (t *tallies) of(current *snapshot.Snapshot, now time.Time) *rules.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current, now)
	return t.tally
}

// madeFor returns the namespaces with a virtual operator of a Constraint.
func (t *tallies) madeFor(current *snapshot.Snapshot, now time.Time, name string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current, now)
	return t.made[name]
}

func (t *tallies) count(current *snapshot.Snapshot, now time.Time) {
	if t.current == current && (t.until.IsZero() || now.Before(t.until)) {
		return
	}
	t.current, t.tally, t.made = current, rules.NewTally(current.All(), now), map[string]map[string]bool{}
	t.until = time.Time{}
	for _, d := range current.Constraints().Definitions() {
		if end := d.Exceptions.End(now); !end.IsZero() && (t.until.IsZero() || end.Before(t.until)) {
			t.until = end
		}
	}
	for o := range current.AllObjects(snapshot.ClusterServiceVersions) {
		if !o.VirtualOperator() || o.DeletionTimestamp != nil {
			continue
		}
		name := virtual.ConstraintOf(written(o.CSV()))
		if t.made[name] == nil {
			t.made[name] = map[string]bool{}
		}
		t.made[name][o.Namespace] = true
	}
}

// reconcileStatus writes the status of a Constraint if it differs. It leaves the status unchanged until the cluster
// version is known, since the counts depend on it. After is the delay until the time alone changes it, 0 for never.
func (r *reconciler) reconcileStatus(
	ctx context.Context, current *snapshot.Snapshot, name string,
) (after time.Duration, err error) {
	object, definition := find(current, name)
	if object == nil {
		r.Metrics.forget(name)
		return 0, nil
	}
	if current.Facts().Version == "" || object.ResourceVersion == "" {
		return 0, nil // or it does not decode, so that its present status is not known; the feed has logged it
	}
	now := r.Now()
	tally := r.tallies.of(current, now)
	in := &statusInput{Object: object, Definition: definition, Counts: tally.Of(definition), Installed: tally.Installed,
		Violators: tally.Violators(definition),
		Operator:  r.wanted.of(current, name), WriteErrors: r.writeErrors.of(name),
		Kept: rules.Keeps(definition, current.All()), Escaped: r.Escaped(name), Now: now}
	r.countOperators(current, in)
	next := evaluate(in)
	r.Metrics.set(name, next.Violating)
	written, err := r.writer.Status(ctx, snapshot.Constraints, snapshot.InCluster(), object, object.Status, next)
	if written {
		log.FromContext(ctx).Info("status written", "constraint", name, "violating", next.Violating,
			"virtualOperators", next.VirtualOperators)
	}
	r.reportExceptions(object, definition, now)
	if next := definition.Exceptions.Next(now); !next.IsZero() {
		after = next.Sub(now)
	}
	return after, err
}

// reportExceptions records events on the exceptions of a Constraint, and exports when the first one in force ends.
func (r *reconciler) reportExceptions(
	object *constraintv1.Constraint, definition *constraint.Definition, now time.Time,
) {
	r.ExceptionEnd(verdict.KindConstraint, types.NamespacedName{Name: object.Name}, definition.Exceptions.End(now))
	state := definition.Exceptions.At(now)
	regarding := verdict.PolicyRef{Kind: verdict.KindConstraint, Name: object.Name}.Reference()
	regarding.UID = object.UID
	r.Events.Exceptions(*regarding, state.Ending, state.Ended)
}

// countOperators counts the virtual operators of a Constraint.
func (r *reconciler) countOperators(current *snapshot.Snapshot, in *statusInput) {
	made := r.tallies.madeFor(current, in.Now, in.Object.Name)
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
