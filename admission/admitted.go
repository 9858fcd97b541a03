package admission

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/snapshot"
)

// admittedWait is how long after its admission a write is waited for. The watch shows it within milliseconds, unless it was not stored.
const admittedWait = time.Second

// admitted are the writes of OperatorPolicies and Constraints that were allowed and that the snapshot does not show yet. What they concern
// is judged with them: kubectl sends the next object of a file while the watch still brings the last one. It counts for the replica that
// was asked; the others are as far as their watches. The zero value is ready for use.
type admitted struct {
	mu     sync.Mutex
	writes []admittedWrite
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

// add records a write.
func (a *admitted) add(kind *snapshot.Kind, concerns snapshot.Subject, written metav1.Object, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = append(a.writes, admittedWrite{kind: kind, concerns: concerns, uid: written.GetUID(), generation: written.GetGeneration(),
		key: types.NamespacedName{Namespace: written.GetNamespace(), Name: written.GetName()}, until: now.Add(admittedWait)})
}

// shown reports whether a snapshot shows the write, or a later one. Another object of that name may be an earlier one.
func (w *admittedWrite) shown(s *snapshot.Snapshot) bool {
	o := s.Object(w.kind, w.concerns, w.key)
	return o != nil && o.UID == w.uid && o.Generation >= w.generation
}

// missing returns the writes that concern a namespace and that a snapshot does not show, and forgets those that none waits for any more.
func (a *admitted) missing(s *snapshot.Snapshot, namespace string, now time.Time) []admittedWrite {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.writes) == 0 {
		return nil
	}
	var missing, kept []admittedWrite
	for _, w := range a.writes {
		if now.After(w.until) || w.shown(s) {
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

// settled returns a snapshot that shows what was admitted for a namespace, as far as that is stored, and the current one after a second.
func (g *Gate) settled(ctx context.Context, current *snapshot.Snapshot, namespace string) *snapshot.Snapshot {
	missing := g.admitted.missing(current, namespace, g.now())
	if len(missing) == 0 {
		return current
	}
	last := missing[len(missing)-1].until
	ctx, cancel := context.WithTimeout(ctx, last.Sub(g.now()))
	defer cancel()
	_ = g.store.Until(ctx, func(s *snapshot.Snapshot) bool { // what was not stored is never shown
		current = s
		for i := range missing {
			if !missing[i].shown(s) {
				return false
			}
		}
		return true
	})
	return current
}
