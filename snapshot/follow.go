package snapshot

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/stream"
)

// following is the watch of policies in a version that may change, where another program owns their definition.
type following struct {
	*Feed

	// progress is that of the watch in each version.
	progress *stream.Progress

	mu sync.Mutex
	// noted are the policies as the builder has them.
	noted map[types.NamespacedName]*Object
}

// policyWatch is the watch of one version.
type policyWatch struct {
	informer cache.SharedIndexInformer
	// listed is closed when all policies were listed and noted; nil from then on.
	listed <-chan struct{}
	stop   func()
}

// followPolicies watches policies in the versions that PolicyVersions says, one after another. The returned channel is
// closed once policies have been read, or it is known that none can exist. While the version changes, policies stay in
// force as they were last read.
func (f *Feed) followPolicies(ctx context.Context, running *sync.WaitGroup) <-chan struct{} {
	known := make(chan struct{})
	running.Go(func() {
		following := &following{Feed: f, progress: f.Store.follow(OperatorPolicies, f.MaxStaleness), noted: map[types.NamespacedName]*Object{}}
		var current policyWatch
		var first sync.Once
		for {
			select {
			case <-ctx.Done():
				current.end()
				return
			case name := <-f.PolicyVersions:
				current.end()
				current = following.start(ctx, name)
			case <-current.listed:
				current.listed = nil
			}
			if current.listed != nil {
				continue
			}
			following.retain(current.informer)
			f.happened(event{synced: OperatorPolicies})
			first.Do(func() { close(known) })
		}
	})
	return known
}

// end ends a watch, if there is one, and waits until it notes nothing any more.
func (v *policyWatch) end() {
	if v.stop != nil {
		v.stop()
	}
}

// start watches policies in a version. With "" there is no definition, and so none.
func (f *following) start(ctx context.Context, name string) policyWatch {
	if name == "" {
		f.progress.Forget()
		return policyWatch{}
	}
	resource := OperatorPolicies.GroupVersionResource()
	resource.Version = name
	informer, handled, _, err := f.informer(OperatorPolicies, resource, metav1.NamespaceAll, f.progress, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.set(obj.(*Object)) },
		UpdateFunc: func(_, obj any) { f.set(obj.(*Object)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			f.remove(obj.(*Object).Key())
		},
	})
	if err != nil { // the informer is new, and takes its handlers
		f.Log.Error(err, "policies not watched", "version", name)
		return policyWatch{listed: make(chan struct{})}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	return policyWatch{informer: informer, listed: handled.Done(), stop: func() { cancel(); <-done }}
}

// set notes a policy as it was read.
func (f *following) set(o *Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.noted[o.Key()]
	f.noted[o.Key()] = o
	f.note(old, o)
}

// remove notes that a policy does not exist any more.
func (f *following) remove(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.noted[key]; old != nil {
		delete(f.noted, key)
		f.note(old, nil)
	}
}

// retain removes the policies that the last version had and this one has not; all of them if there is no version.
func (f *following) retain(informer cache.SharedIndexInformer) {
	there := map[types.NamespacedName]bool{}
	if informer != nil {
		for _, o := range informer.GetStore().List() {
			there[o.(*Object).Key()] = true
		}
	}
	f.mu.Lock()
	var gone []types.NamespacedName
	for key := range f.noted {
		if !there[key] {
			gone = append(gone, key)
		}
	}
	f.mu.Unlock()
	for _, key := range gone {
		f.remove(key)
	}
}
