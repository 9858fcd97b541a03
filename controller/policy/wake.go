package policy

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

// waker turns what happens into work. It is the source of the controller's queue.
type waker struct {
	parents *parents
	watches *watches.Watches
	metrics *Metrics
	// key returns what marks are signed with: without it no Policy is known to be verified.
	key func() []byte
	// ready are what has to be read before anything is looked at.
	ready []cache.InformerSynced

	mu sync.Mutex
	// queue is nil until the controller runs, and everything is looked at then.
	queue queue
}

// Start takes the queue of the controller.
func (w *waker) Start(_ context.Context, q queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
	return nil
}

// WaitForSync keeps the controller from working until what it builds on has been read.
func (w *waker) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), append(w.ready, w.watches.Synced, func() bool { return len(w.key()) > 0 })...) {
		return ctx.Err()
	}
	for _, key := range w.parents.policies.GetStore().ListKeys() {
		w.addKey(policy, key)
	}
	for _, key := range w.parents.sets.GetStore().ListKeys() {
		w.addKey(set, key)
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

func (w *waker) addKey(of subject, key string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
		w.add(of, types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// notify wakes a Policy for which something may have changed that it waits for, or has made.
func (w *waker) notify(key types.NamespacedName) { w.add(policy, key) }

// follow has changes of Policies and PolicySets wake those whom they concern.
func (w *waker) follow() error {
	policies, err := w.parents.policies.AddEventHandler(handlers(w.policyChanged))
	if err != nil {
		return err
	}
	sets, err := w.parents.sets.AddEventHandler(handlers(w.setChanged))
	if err != nil {
		return err
	}
	w.ready = []cache.InformerSynced{policies.HasSynced, sets.HasSynced}
	return nil
}

// handlers gives each change to a function: what appeared has no old state, what is gone no new one.
func handlers[T any](changed func(old, now *T)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, obj.(*T)) },
		UpdateFunc: func(old, obj any) { changed(old.(*T), obj.(*T)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			changed(obj.(*T), nil)
		},
	}
}

func (w *waker) policyChanged(old, now *storedPolicy) {
	key := either(old, now).key()
	w.metrics.changed(key, now)
	if old == nil || now == nil || old.UID != now.UID || old.Generation != now.Generation {
		w.parents.policyEdited(key, now.known())
	}
	if old == nil || now == nil || !equality.Semantic.DeepEqual(old.object, now.object) {
		w.add(policy, key)
	}
	if old != nil && now != nil && old.read.Observed() == now.read.Observed() && old.disabled() == now.disabled() {
		return
	}
	w.add(policy, w.watches.Dependents(dependency.PolicyRef(key.Namespace, key.Name))...)
	w.add(set, w.parents.setsWith(key)...)
}

func (w *waker) setChanged(old, now *storedSet) {
	key := either(old, now).key()
	if old == nil || now == nil || old.UID != now.UID || old.Generation != now.Generation {
		w.parents.setEdited(key, now.known())
	}
	w.add(set, key)
	if old != nil && now != nil && old.read.Observed() == now.read.Observed() {
		return
	}
	w.add(policy, w.watches.Dependents(dependency.SetRef(key.Namespace, key.Name))...)
}

func either[T any](a, b *T) *T {
	if b != nil {
		return b
	}
	return a
}
