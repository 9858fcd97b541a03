package watches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/rules/ordering"
)

// longestPause is the longest time that a watch that is not allowed is left alone.
const longestPause = 10 * time.Minute

// subject is what one watch follows: an object, or where there is no name, all template objects of a kind. Subjects that differ in
// anything need watches of their own.
type subject struct {
	resource   schema.GroupVersionResource
	namespaced bool
	namespace  string
	name       string
	// definition is that of the kind: one that was removed and came back is another.
	definition types.UID
}

// right is what must be granted for following it.
func (s subject) right() string {
	right := "list and watch " + s.resource.GroupResource().String()
	switch {
	case s.namespace != "":
		right += " in namespace " + s.namespace
	case s.namespaced:
		right += " in all namespaces"
	}
	return right
}

// follower follows a subject with an informer. Where that is not allowed the informer ends, and another is tried after a while.
type follower struct {
	subject
	client  dynamic.Interface
	backoff time.Duration
	log     logr.Logger
	// learned is told when all has been read, or may not be, unlike before; changed of each change after that of what is kept. An
	// object that appeared has no old state, one that is gone no new one. Both must return at once.
	learned func(before *knowledge)
	changed func(old, now *unstructured.Unstructured)

	// stop ends it.
	stop context.CancelFunc
	// again holds one token: it is worth trying at once.
	again chan struct{}
	// known is nil until something is known.
	known atomic.Pointer[knowledge]
	// targets are who wants it followed, guarded by the lock of the Watches.
	targets map[*target]struct{}
}

// knowledge is what is known of a subject: its objects, which the informer keeps current, or why it may not be read.
type knowledge struct {
	objects cache.Indexer
	denied  error
}

func (w *Watches) newFollower(s subject) *follower {
	return &follower{subject: s, client: w.Client, backoff: w.Backoff,
		log:   w.Log.WithValues("resource", s.resource.GroupResource().String(), "namespace", s.namespace, "name", s.name),
		again: make(chan struct{}, 1), targets: map[*target]struct{}{}}
}

// retry has it tried again now if it is not allowed.
func (f *follower) retry() {
	if f == nil {
		return
	}
	if known := f.known.Load(); known == nil || known.denied == nil {
		return
	}
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// run follows the subject until the context ends.
func (f *follower) run(ctx context.Context) {
	defer f.stop()
	pause := f.backoff
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if before := f.known.Load(); before == nil || before.denied == nil {
			pause = f.backoff
			f.log.Info("watch is not allowed, it is tried again now and then", "error", err.Error())
			f.learn(&knowledge{denied: fmt.Errorf("the right to %s is missing", f.right())})
		}
		timer := time.NewTimer(wait.Jitter(pause, 0.1))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-f.again:
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// follow runs an informer until the context ends or the API server does not allow it. All else the informer tries again.
func (f *follower) follow(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var resource dynamic.ResourceInterface = f.client.Resource(f.resource)
	if f.namespace != "" {
		resource = f.client.Resource(f.resource).Namespace(f.namespace)
	}
	field, label := "", ordering.LabelPolicy
	if f.name != "" {
		field, label = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String(), ""
	}
	opened := make(chan struct{})
	informer := newInformer(f.client, resource, field, label, sync.OnceFunc(func() { close(opened) }), cache.Indexers{byParent: indexParent})
	current := &knowledge{objects: informer.GetIndexer()}
	tell := func(old, now *unstructured.Unstructured) {
		// Before all is read nobody is told: learned tells of it.
		if f.known.Load() == current && !same(old, now) {
			f.changed(old, now)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(nil, obj.(*unstructured.Unstructured)) },
		UpdateFunc: func(old, obj any) { tell(old.(*unstructured.Unstructured), obj.(*unstructured.Unstructured)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			tell(obj.(*unstructured.Unstructured), nil)
		},
	})
	err = errors.Join(err, informer.SetTransform(trim), informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			end(err)
			return
		}
		level := 1
		if f.known.Load() == nil { // somebody waits for it
			level = 0
		}
		f.log.V(level).Info("watch interrupted, it is tried again", "error", err.Error())
	}))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	// To have listed it is not enough: who may list and not watch would know what was once, again and again.
	for _, happened := range []<-chan struct{}{opened, registration.HasSyncedChecker().Done()} {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-happened:
		}
	}
	f.learn(current)
	<-ctx.Done()
	return context.Cause(ctx)
}

// learn takes what is known from now on.
func (f *follower) learn(now *knowledge) {
	before := f.known.Swap(now)
	if before != nil && before.denied != nil {
		f.log.Info("watch is allowed")
	}
	f.learned(before)
}

// newInformer makes an informer of the objects of a resource that are selected. Opened is told of each watch that is open.
func newInformer(client dynamic.Interface, resource dynamic.ResourceInterface, field, label string, opened func(), indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = field, label
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = field, label
			w, err := resource.Watch(ctx, o)
			if err == nil {
				opened()
			}
			return w, err
		},
	}, client), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{Indexers: indexers})
}
