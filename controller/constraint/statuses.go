package constraint

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// tallies caches the counts of one snapshot, so that all statuses are computed from one count. The zero value is ready
// for use.
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

// reconcileStatus writes the status of a Constraint if it differs. It leaves the status unchanged until the cluster
// version is known, since the counts depend on it.
func (r *reconciler) reconcileStatus(ctx context.Context, current *snapshot.Snapshot, name string) error {
	object, definition := find(current, name)
	if object == nil {
		r.Metrics.forget(name)
		return nil
	}
	if current.Facts().Version == "" || object.ResourceVersion == "" {
		return nil // or it does not decode, so that its present status is not known; the feed has logged it
	}
	tally := r.tallies.of(current)
	in := &statusInput{Object: object, Definition: definition, Counts: tally.Of(definition), Installed: tally.Installed, Violators: tally.Violators(definition),
		Operator: r.wanted.of(current, name), WriteErrors: r.writeErrors.of(name), Escaped: r.Escaped(name), Now: r.Now()}
	r.countOperators(current, in)
	next := evaluate(in)
	r.Metrics.set(name, next.Violating)
	written, err := r.writer.Status(ctx, snapshot.Constraints, snapshot.InCluster(), object, object.Status, next)
	if written {
		log.FromContext(ctx).Info("status written", "constraint", name, "violating", next.Violating, "virtualOperators", next.VirtualOperators)
	}
	return err
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
