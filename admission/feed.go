package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/stream"
)

// Feed keeps a Store's snapshot current from watches. A snapshot is built from the parts of the last one
// that did not change: a write to one namespace costs what that namespace holds.
type Feed struct {
	FeedOptions

	// changed wakes the builder; it holds one token, so that any number of events while it builds cost one
	// more build.
	changed chan struct{}

	mu    sync.Mutex
	dirty map[string]struct{}
	// cluster is what is known of the cluster; constraintsDirty tells that it, or a Constraint, has changed.
	cluster          constraint.Cluster
	constraintsDirty bool
	// orderDirty tells that a Policy or a PolicySet has changed.
	orderDirty bool
	seen       map[string]Seen // by resource
	completed  map[types.NamespacedName]Completion
	// awaited is since when policies are all that is missing for the first snapshot, denied whether the API
	// server says that we cannot have them.
	awaited time.Time
	denied  bool

	// made is what the last build made of completions.
	made map[types.NamespacedName]madePolicy
}

// madePolicy is a completed policy made ready for judging, and what it was made from.
type madePolicy struct {
	stored, completed *policyv1beta2.OperatorPolicy
	policy            *rules.Policy
}

// FeedOptions configure a Feed.
type FeedOptions struct {
	// Client lists and watches. Required.
	Client *stream.Client
	// Store is filled. Required.
	Store *Store
	// Unjudged are namespaces that the webhook configurations leave out: no Constraint counts there, since nothing would hold
	// anybody to it. Default: none.
	Unjudged []string
	// Ordering has Policies and PolicySets followed as well, for what waits for what. Default: no Policy is known.
	Ordering bool
	// Completer completes policies whose meaning depends on the cluster. Default: none; such policies hold
	// what they govern, as far as they say what that is.
	Completer Completer
	// Changed is told the namespaces that differ after each new snapshot; "" stands for the policies that
	// govern nothing yet. It must return at once. Default: nobody is told.
	Changed func(namespaces []string)
	// ConstraintsChanged is told after each new snapshot with other Constraints, other annotations of theirs, or other facts
	// about the cluster.
	// It must return at once. Default: nobody is told.
	ConstraintsChanged func()
	// Interrupted is told when a watch ended with an error: the API server may come back as another version. It must
	// return at once. Default: nobody is told.
	Interrupted func()
	// Panics records panics of reading an object, which then counts as unreadable. Default: a panic ends the process.
	Panics *panics.Recorder
	// Log takes what cannot be read at V(0) and every snapshot at V(1). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Completer completes policies: template text, and what the author left to the cluster.
type Completer interface {
	// Needed tells whether the meaning of a policy depends on the cluster at all.
	Needed(op *policyv1beta2.OperatorPolicy) bool
	// Policy takes each new state of a policy and returns at once. What comes of it goes to Feed.Completed.
	Policy(op *policyv1beta2.OperatorPolicy)
	// Forget ends the work for a policy that is gone.
	Forget(key types.NamespacedName)
}

// Completion is what a Completer found for one generation of a policy.
type Completion struct {
	Generation int64
	UID        types.UID
	// Policy is the policy with its spec completed as far as possible.
	Policy *policyv1beta2.OperatorPolicy
	// Problems are why it is not complete, as whole sentences; while there are any the policy holds what it
	// governs.
	Problems []string
}

// NewFeed makes a feed. Start runs it.
func NewFeed(o FeedOptions) *Feed {
	return &Feed{FeedOptions: o, changed: make(chan struct{}, 1), dirty: map[string]struct{}{}, seen: map[string]Seen{},
		completed: map[types.NamespacedName]Completion{}, constraintsDirty: true}
}

// SetCluster takes what is known of the cluster: its versions.
func (f *Feed) SetCluster(c constraint.Cluster) {
	f.mu.Lock()
	f.cluster, f.constraintsDirty = c, true
	f.mu.Unlock()
	f.wake()
}

// Completed takes what the Completer found. It counts until the policy changes.
func (f *Feed) Completed(key types.NamespacedName, c Completion) {
	f.mu.Lock()
	if last, ok := f.completed[key]; ok {
		f.dirty[rules.NewPolicy(last.Policy).Concerns()] = struct{}{}
	}
	f.completed[key] = c
	f.dirty[rules.NewPolicy(c.Policy).Concerns()] = struct{}{}
	f.dirty[""] = struct{}{} // where it stood until now, if it did not say what it governs
	f.mu.Unlock()
	f.wake()
}

// byNamespace indexes what an informer holds by the namespace that it concerns.
const byNamespace = "namespace"

// Start follows the API server until the context ends. The first snapshot is stored once all resources
// have been listed; a resource that the API server does not serve yet keeps the gate closed.
func (f *Feed) Start(ctx context.Context) error {
	informers := make(map[string]cache.SharedIndexInformer, len(sources)+len(orderSources))
	var policies cache.InformerSynced
	var others []cache.InformerSynced
	var running sync.WaitGroup
	defer running.Wait()
	for _, src := range sources {
		informer, handled, err := f.informer(src)
		if err != nil {
			return fmt.Errorf("watch %s: %w", src.resource.Resource, err)
		}
		informers[src.resource.Resource] = informer
		if src.resource.Resource == resourcePolicies {
			policies = handled
		} else {
			others = append(others, handled)
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if f.Ordering {
		for _, src := range orderSources {
			informer, _, err := f.informer(src)
			if err != nil {
				return fmt.Errorf("watch %s: %w", src.resource.Resource, err)
			}
			informers[src.resource.Resource] = informer
			running.Go(func() { informer.RunWithContext(ctx) })
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), others...) {
		return nil // the process is stopping
	}
	f.await()
	if !cache.WaitForCacheSync(ctx.Done(), policies) {
		return nil
	}
	for {
		f.build(informers)
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
	}
}

// NeedLeaderElection is false: every replica judges, so every replica needs a snapshot.
func (f *Feed) NeedLeaderElection() bool { return false }

func (f *Feed) informer(src source) (cache.SharedIndexInformer, cache.InformerSynced, error) {
	informer := cache.NewSharedIndexInformerWithOptions(
		f.Client.ListerWatcher(src.resource, f.decode(src)),
		&item{}, cache.SharedIndexInformerOptions{Indexers: cache.Indexers{byNamespace: func(obj any) ([]string, error) {
			return []string{obj.(*item).concerns}, nil
		}}})
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if src.resource.Resource == resourcePolicies {
			f.noteFailure(err)
		}
		if f.Interrupted != nil {
			f.Interrupted()
		}
		f.Log.Info("watch interrupted, it is tried again", "resource", src.resource.Resource, "error", err.Error())
	})
	if err != nil {
		return nil, nil, err
	}
	resource := src.resource.Resource
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			f.note(resource, obj, 1)
			f.complete(obj.(*item))
		},
		UpdateFunc: func(old, obj any) {
			f.note(resource, old, 0) // a policy may have moved to another namespace
			f.note(resource, obj, 0)
			f.complete(obj.(*item))
		},
		DeleteFunc: func(obj any) { f.forget(f.note(resource, obj, -1)) },
	})
	if err != nil {
		return nil, nil, err
	}
	return informer, registration.HasSynced, nil
}

// conversionGrace is how long policies may be all that is missing before this process offers itself to convert
// them. If another replica is ready they come within a moment.
const conversionGrace = 10 * time.Second

// AwaitsConversion tells that there is no snapshot because the API server keeps policies, and only these, waiting
// for a while. They may be stored in v1beta1, and there may be nobody to convert them but this process, which the
// API server finds only if the process says that it is ready. Until there is a snapshot reviews are refused all
// the same.
func (f *Feed) AwaitsConversion() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Store.Load() == nil && !f.awaited.IsZero() && f.Now().Sub(f.awaited) >= conversionGrace && !f.denied
}

// await notes that policies are all that is missing.
func (f *Feed) await() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaited = f.Now()
}

// noteFailure takes why policies cannot be had. That they are not served, or not for us, no conversion mends.
func (f *Feed) noteFailure(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied = apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// note marks the namespace that an event concerns for the next build. More is how many objects there are
// more than before.
func (f *Feed) note(resource string, obj any, more int) *item {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	it := obj.(*item)
	f.mu.Lock()
	if ordered := it.ordered != nil || it.members != nil; ordered {
		f.orderDirty = true
	} else {
		f.dirty[it.concerns] = struct{}{}
	}
	f.constraintsDirty = f.constraintsDirty || it.constraint != nil
	if c, ok := f.completed[it.key()]; ok && it.policy != nil {
		f.dirty[rules.NewPolicy(c.Policy).Concerns()] = struct{}{}
	}
	seen := f.seen[resource]
	f.seen[resource] = Seen{ResourceVersion: newer(seen.ResourceVersion, it.ResourceVersion), Objects: seen.Objects + more}
	f.mu.Unlock()
	f.wake()
	return it
}

func (f *Feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// complete has a policy completed if that is needed.
func (f *Feed) complete(it *item) {
	switch {
	case f.Completer == nil || it.policy == nil:
	case f.Completer.Needed(it.policy):
		f.Completer.Policy(it.policy)
	default:
		f.forget(it)
	}
}

func (f *Feed) forget(it *item) {
	if f.Completer == nil || it.policy == nil {
		return
	}
	f.Completer.Forget(it.key())
	f.mu.Lock()
	delete(f.completed, it.key())
	f.mu.Unlock()
}

// newer gives the later of two resourceVersions.
func newer(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order >= 0 {
		return a
	}
	return b
}

// item is what the feed keeps of an object: its identity, the namespace it concerns, and how to add it.
type item struct {
	metav1.ObjectMeta
	read
}

// GetObjectKind is nothing: an item is not sent anywhere.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the item, which is immutable.
func (it *item) DeepCopyObject() runtime.Object { return it }

func (it *item) key() types.NamespacedName {
	return types.NamespacedName{Namespace: it.Namespace, Name: it.Name}
}
