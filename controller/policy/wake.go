package policy

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// waker enqueues work for events. It is the source of the controller's queue.
type waker struct {
	store   *snapshot.Store
	watches *watches.Watches
	metrics *Metrics
	// key returns the key of the marks: without it no Policy counts as verified.
	key func() []byte

	mu sync.Mutex
	// queue is nil until the controller runs, and after it has stopped.
	queue       queue
	unsubscribe func()

	members members
}

// Start sets the queue of the controller, and enqueues what changes until stop is called.
func (w *waker) Start(_ context.Context, q queue) error {
	w.metrics.started(w.watches.Open)
	// Changes are blocked meanwhile, so that no older state is applied after them.
	release := w.members.hold()
	current, unsubscribe := w.store.Subscribe(w.changed)
	for o := range current.Each(snapshot.Policies) {
		w.metrics.changed(o.Key(), o.Policy())
	}
	w.members.replace(current)
	w.mu.Lock()
	w.queue, w.unsubscribe = q, unsubscribe
	w.mu.Unlock()
	release()
	return nil
}

// stop undoes Start. After leadership was lost the metrics are for the next leader to export.
func (w *waker) stop() {
	w.mu.Lock()
	unsubscribe := w.unsubscribe
	w.queue, w.unsubscribe = nil, nil
	w.mu.Unlock()
	if unsubscribe != nil {
		unsubscribe()
	}
	w.metrics.stopped()
}

// WaitForSync blocks the controller until everything that it depends on has been read. The CRDs may be installed after Opgate: it
// waits for them.
func (w *waker) WaitForSync(ctx context.Context) error {
	err := w.store.Until(ctx, func(s *snapshot.Snapshot) bool { return s.Synced(snapshot.Policies, snapshot.PolicySets) })
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.watches.Synced, func() bool { return len(w.key()) > 0 }) {
		return ctx.Err()
	}
	current := w.store.Load()
	for o := range current.Each(snapshot.Policies) {
		w.add(policy, o.Key())
	}
	for o := range current.Each(snapshot.PolicySets) {
		w.add(set, o.Key())
	}
	return nil
}

func (w *waker) add(of subject, keys ...types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	for _, key := range keys {
		w.queue.Add(work{of, key})
	}
}

// notify enqueues a Policy when one of its dependencies or objects may have changed.
func (w *waker) notify(key types.NamespacedName) { w.add(policy, key) }

// changed enqueues what changes of Policies and PolicySets affect.
func (w *waker) changed(change *snapshot.Change) {
	defer w.members.hold()()
	for i := range change.Objects {
		c := &change.Objects[i]
		switch c.Object().Kind() {
		case snapshot.Policies:
			w.policyChanged(c.Object().Key(), policyOf(c.Old), policyOf(c.Now))
		case snapshot.PolicySets:
			w.setChanged(c.Object().Key(), setOf(c.Old), setOf(c.Now))
		}
	}
}

func policyOf(o *snapshot.Object) *storedPolicy {
	if o == nil {
		return nil
	}
	return o.Policy()
}

func setOf(o *snapshot.Object) *storedSet {
	if o == nil {
		return nil
	}
	return o.PolicySet()
}

func (w *waker) policyChanged(key types.NamespacedName, old, now *storedPolicy) {
	w.metrics.changed(key, now)
	if old == nil || now == nil || !equality.Semantic.DeepEqual(old.Object, now.Object) {
		w.add(policy, key)
	}
	if old != nil && now != nil && old.Read.Observed() == now.Read.Observed() && old.Disabled() == now.Disabled() {
		return
	}
	w.add(policy, w.watches.Dependents(dependency.PolicyRef(key.Namespace, key.Name))...)
	w.add(set, w.members.sets(key)...)
}

func (w *waker) setChanged(key types.NamespacedName, old, now *storedSet) {
	w.members.change(key, old.Known(), now.Known())
	w.add(set, key)
	if old != nil && now != nil && old.Read.Observed() == now.Read.Observed() {
		return
	}
	w.add(policy, w.watches.Dependents(dependency.SetRef(key.Namespace, key.Name))...)
}
