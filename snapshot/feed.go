package snapshot

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/stream"
)

// Feed updates a Store's snapshot from watches.
type Feed struct {
	FeedOptions
	// absentPause is the delay after which a kind that is not served is asked for again.
	absentPause time.Duration

	reader Reader

	// changed triggers a build; it holds one token, so that any number of events during a build cost one more build.
	changed chan struct{}
	// led is closed when this replica leads for the first time.
	led  chan struct{}
	lead sync.Once

	// optional are the optional kinds of the leader, each with the version in which it is followed.
	optional map[*Kind]chan string

	mu      sync.Mutex
	pending []event
	// awaited is the time since when only policies are missing for the first snapshot, failed when reading them last
	// failed. denied reports whether the API server answers that they are not served or forbidden.
	awaited, failed time.Time
	denied          bool
}

// FeedOptions configure a Feed. Until Start its suppliers may be set: Completer, Packages, Builder.Changes, which calls
// ContentsChanged, and Interrupted.
type FeedOptions struct {
	// Client lists and watches. Required.
	Client *stream.Client
	// Store is updated. Required.
	Store *Store
	// Builder builds the snapshots. A Completer sets what it needs, and Packages those that it reads.
	Builder Builder
	// Namespace is Opgate's own, of the kinds that are watched there alone. Default: these are not watched.
	Namespace string
	// Omitted are kinds that may not be watched and that no snapshot waits for. Default: none.
	Omitted []*Kind
	// MaxStaleness is how long a watch may show no progress before its kind is stale. Default: no kind ever is.
	MaxStaleness time.Duration
	// Ordering watches Policies and PolicySets as well, for the dependency graph. Default: no Policy is known.
	Ordering bool
	// PolicyVersions are the versions that policies are read in, one after another, where another program owns their
	// definition: each value replaces the last, and "" means that there is no definition. Default: v1beta2, which
	// Opgate's own definition has.
	PolicyVersions <-chan string
	// Completer completes policies that depend on the cluster. Default: none; such policies hold
	// what they govern, as far as they state that.
	Completer Completer
	// Packages are those of catalogs, which call PackageChanged. Default: none is known.
	Packages Packages
	// Interrupted is called when a watch ended with an error: the API server may return with another version. It must
	// not block. Default: not called.
	Interrupted func()
	// Panics records panics of decoding an object, which then counts as unreadable. Default: a panic ends the process.
	Panics *panics.Recorder
	// Log receives decoding errors at V(0) and every snapshot at V(1). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// NewFeed returns a feed. Start runs it.
func NewFeed(o FeedOptions) *Feed {
	f := &Feed{FeedOptions: o, absentPause: unfollowedPause, changed: make(chan struct{}, 1), led: make(chan struct{}),
		optional: map[*Kind]chan string{}}
	for _, kind := range kinds {
		if kind.Optional && kind.Readers == Leader {
			f.optional[kind] = make(chan string, 1)
		}
	}
	f.reader.Unreadable = func(kind *Kind, key types.NamespacedName, err error) {
		f.Log.Error(err, "object cannot be read", "resource", kind.Resource, "namespace", key.Namespace,
			"name", key.Name)
	}
	if o.Panics != nil {
		f.reader.Recover = o.Panics.Run
	}
	return f
}

// SetCluster sets the cluster versions.
func (f *Feed) SetCluster(c facts.Cluster) { f.happened(event{cluster: &c}) }

// Completed is called with the Completer's result. It counts until the policy changes.
func (f *Feed) Completed(key types.NamespacedName, c Completion) {
	f.happened(event{key: key, completed: &c})
}

// Lead adds the kinds that only the leader needs. They are not removed: a replica that has led may lead again.
func (f *Feed) Lead() { f.lead.Do(func() { close(f.led) }) }

// Start watches the API server until the context ends. The first snapshot is stored once all kinds that every replica
// needs have been listed; a kind that the API server does not serve yet keeps the gate closed, unless it is optional.
func (f *Feed) Start(ctx context.Context) error {
	if f.Completer != nil {
		f.Builder.Needed = operatorpolicy.DependsOnCluster
	}
	if f.Packages != nil {
		f.Builder.Packages = f.Packages.Version
	}
	policies, others, built := (<-chan struct{})(nil), []<-chan struct{}{}, make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	for _, kind := range kinds {
		switch {
		case kind.Readers == Ordering && !f.Ordering || kind.Own && f.Namespace == "":
			continue
		case kind.Readers == Leader:
			running.Go(func() {
				if wait(ctx, built, f.led) {
					f.followAsLeader(ctx, &running, kind)
				}
			})
			continue
		}
		for _, namespace := range f.namespacesOf(kind) {
			versions := (<-chan string)(only(kind.Version))
			if kind == OperatorPolicies && f.PolicyVersions != nil {
				versions = f.PolicyVersions
			}
			known := f.follow(ctx, &running, kind, namespace, versions)
			switch {
			case kind == OperatorPolicies:
				policies = known
			case kind.Readers == EveryReplica, kind == Policies:
				others = append(others, known)
			}
		}
	}
	if !wait(ctx, others...) {
		return nil // the process is stopping
	}
	f.mu.Lock()
	f.awaited = f.Now()
	f.mu.Unlock()
	if !wait(ctx, policies) {
		return nil
	}
	f.build()
	close(built)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
			f.build()
		}
	}
}

// only returns a channel with one version, which stays.
func only(version string) chan string {
	versions := make(chan string, 1)
	versions <- version
	return versions
}

// namespacesOf returns the namespaces in which a kind is watched, each by a watch of its own: one that is forbidden
// delays no other.
func (f *Feed) namespacesOf(kind *Kind) []string {
	switch {
	case (kind == Pods || kind == Services) && f.Builder.CatalogNamespaces != nil:
		return f.Builder.CatalogNamespaces
	case kind.Own:
		return []string{f.Namespace}
	}
	return []string{metav1.NamespaceAll}
}

// wait waits until channels are closed, and reports whether they are.
func wait(ctx context.Context, all ...<-chan struct{}) bool {
	for _, closed := range all {
		select {
		case <-closed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unfollowedPause bounds the delay after a failure for kinds that no verdict depends on, and after an answer that one
// is not served.
const unfollowedPause = 30 * time.Second

// reflect lists and watches a kind, in a version, of one namespace or of all, until the context ends. If the API server
// answers that it does not serve an optional kind, it is known to have no objects.
func (f *Feed) reflect(
	ctx context.Context, kind *Kind, resource schema.GroupVersionResource, namespace string, progress *stream.Progress,
	objects *mirror,
) {
	read := func(raw []byte) (runtime.Object, error) { return f.reader.Read(kind, raw), nil }
	longest := unfollowedPause
	if progress != nil {
		longest = progress.LongestPause()
	}
	var once sync.Once
	failed := func(err error) {
		if kind.Optional && apierrors.IsNotFound(err) {
			progress.Forget()
			once.Do(func() { f.Log.Info("kind not served, continuing without it", "resource", kind.Resource) })
			objects.markKnown()
			_ = signal.Sleep(ctx, f.absentPause)
			return
		}
		if kind == OperatorPolicies {
			f.noteFailure(err)
		}
		if f.Interrupted != nil {
			f.Interrupted()
		}
		f.Log.Info("watch interrupted, retrying", "resource", kind.Resource, "error", err.Error())
	}
	stream.Reflect(ctx, resource.String(), f.Client.Selecting(resource, namespace, kind.Selector, read, progress),
		&Object{}, objects, longest, failed)
}

// conversionGrace is how long only policies may be missing before this process reports ready to convert
// them. If another replica is ready they are listed much earlier.
const conversionGrace = 10 * time.Second

// AwaitsConversion reports whether there is no snapshot, or a stale one, because policies, and only these, have not
// been listed for some time. They may be stored in v1beta1, and this process may be the only one to convert them, which
// the API server reaches only if the process reports ready. Until there is a current snapshot reviews are still
// refused.
func (f *Feed) AwaitsConversion() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.PolicyVersions != nil || f.denied {
		return false
	}
	if f.Store.Load() == nil {
		return !f.awaited.IsZero() && f.Now().Sub(f.awaited) >= conversionGrace
	}
	return f.Store.failing(OperatorPolicies, f.failed)
}

// noteFailure records a list or watch error of policies. Conversion does not help if they are not served, or forbidden.
func (f *Feed) noteFailure(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = time.Now() //nolint:forbidigo // compared with times of stream.Progress
	f.denied = apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// note queues an event of an object. The builder must receive a policy before its completion.
func (f *Feed) note(old, now *Object) {
	f.happened(event{old: old, now: now})
	if f.Completer == nil {
		return
	}
	switch {
	case now == nil && old.kind == OperatorPolicies:
		f.Completer.Forget(old.Key())
	case now == nil || now.kind != OperatorPolicies:
	default:
		if op := now.value.(*storedPolicy).object; op != nil && operatorpolicy.DependsOnCluster(op) {
			f.Completer.Policy(op)
		} else {
			f.Completer.Forget(now.Key())
		}
	}
}

func (f *Feed) happened(e event) {
	f.mu.Lock()
	f.pending = append(f.pending, e)
	f.mu.Unlock()
	signal.Put(f.changed)
}

// build stores a snapshot with the events since the last one.
func (f *Feed) build() {
	f.mu.Lock()
	events := f.pending
	f.pending = nil
	f.mu.Unlock()
	last := f.Store.Load()
	if len(events) == 0 && last != nil {
		return
	}
	next, change := f.Builder.build(f.Now(), events)
	f.Store.replace(next, change)
	f.catalogsChanged(change)
	f.followDefined(last, next)
	f.Log.V(1).Info("snapshot built", "generation", next.generation, "namespaces", change.Namespaces)
	next.judgeWaiting(change.Namespaces)
}
