package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/snapshot"
)

const (
	// admittedWait is how long after its admission a write is waited for. The watch shows it within milliseconds,
	// unless it was not stored. Then nothing that concerns the namespace is waited for as long again: a user may have
	// writes admitted that are never stored, as where a quota refuses them, and must not delay each review of a
	// namespace by them.
	admittedWait = time.Second
	// maxAdmitted bounds the writes that are remembered.
	maxAdmitted = 1000
)

// admitted are the writes of OperatorPolicies and Constraints that were allowed and that the snapshot does not show
// yet. What they concern is judged with them: kubectl sends the next object of a file while the watch still brings the
// last one. It counts for the replica that was asked; the others are as far as their watches. The zero value is ready
// for use.
type admitted struct {
	mu     sync.Mutex
	writes []admittedWrite
	// failed is when a wait for what concerns a namespace last ended without the write.
	failed map[string]time.Time
}

// admittedWrite is one write.
type admittedWrite struct {
	kind       *snapshot.Kind
	concerns   snapshot.Subject
	key        types.NamespacedName
	uid        types.UID
	generation int64
	until      time.Time
}

// add records a write, in place of an earlier one of the same object.
func (a *admitted) add(kind *snapshot.Kind, concerns snapshot.Subject, written metav1.Object, now time.Time) {
	w := admittedWrite{kind: kind, concerns: concerns, uid: written.GetUID(), generation: written.GetGeneration(),
		key:   types.NamespacedName{Namespace: written.GetNamespace(), Name: written.GetName()},
		until: now.Add(admittedWait)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = slices.DeleteFunc(a.writes, func(other admittedWrite) bool {
		return other.kind == kind && other.concerns == concerns && other.key == w.key || now.After(other.until)
	})
	if len(a.writes) < maxAdmitted {
		a.writes = append(a.writes, w)
	}
}

// visible reports whether a snapshot shows the write, or a later one. Another object of that name may be an earlier
// one.
func (w *admittedWrite) visible(s *snapshot.Snapshot) bool {
	o := s.Object(w.kind, w.concerns, w.key)
	return o != nil && o.UID == w.uid && o.Generation >= w.generation
}

// missing returns the writes that concern a namespace and that a snapshot does not show, and forgets those that none
// waits for any more.
func (a *admitted) missing(s *snapshot.Snapshot, namespace string, now time.Time) []admittedWrite {
	a.mu.Lock()
	defer a.mu.Unlock()
	if failed, ok := a.failed[namespace]; len(a.writes) == 0 || ok && now.Sub(failed) < admittedWait {
		return nil
	}
	var missing, kept []admittedWrite
	for _, w := range a.writes {
		if now.After(w.until) || w.visible(s) {
			continue
		}
		kept = append(kept, w)
		if w.concerns == snapshot.InCluster() || w.concerns == snapshot.InNamespace(namespace) {
			missing = append(missing, w)
		}
	}
	a.writes = kept
	return missing
}

// fail records that a wait for what concerns a namespace ended without the write.
func (a *admitted) fail(namespace string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.failed, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedWait })
	if a.failed == nil {
		a.failed = map[string]time.Time{}
	}
	a.failed[namespace] = now
}

// awaited records a write that was allowed, unless the API server will not store it: a dry run, or the creation of what
// exists.
func (g *Gate) awaited(
	s *snapshot.Snapshot, kind *snapshot.Kind, concerns snapshot.Subject, written metav1.Object, creates bool,
) {
	if creates && written.GetName() != "" {
		for o := range s.AllObjects(kind) {
			if o.Name == written.GetName() && o.Namespace == written.GetNamespace() && o.DeletionTimestamp == nil {
				return
			}
		}
	}
	g.admitted.add(kind, concerns, written, g.Now())
}

// awaitAdmitted returns a snapshot that shows what was admitted for a namespace, as far as that is stored, and the
// current one after a second.
func (g *Gate) awaitAdmitted(ctx context.Context, current *snapshot.Snapshot, namespace string) *snapshot.Snapshot {
	missing := g.admitted.missing(current, namespace, g.Now())
	if len(missing) == 0 {
		return current
	}
	last := missing[len(missing)-1].until
	waiting, cancel := context.WithTimeout(ctx, last.Sub(g.Now()))
	defer cancel()
	visible := g.Store.Until(waiting, func(s *snapshot.Snapshot) bool { // what was not stored is never shown
		current = s
		for i := range missing {
			if !missing[i].visible(s) {
				return false
			}
		}
		return true
	})
	if visible != nil && ctx.Err() == nil {
		g.admitted.fail(namespace, g.Now())
	}
	return current
}
