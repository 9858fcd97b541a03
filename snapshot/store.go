package snapshot

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/stream"
)

// Store holds the current snapshot. The zero value holds none: before the first full snapshot nothing may
// be judged, since an incomplete list of policies must not count as a complete one.
type Store struct {
	current atomic.Pointer[Snapshot]

	replaced signal.Signal

	// watches are those that verdicts depend on, unseen the writes of this process that a watch has not shown in time.
	// They are read without locks; the feed and Wait write them one at a time.
	watches atomic.Pointer[[]watched]
	unseen  atomic.Pointer[[]unseen]

	mu sync.Mutex
	// subscribers are called with each change.
	subscribers map[*func(*Change)]struct{}
}

// NewStore returns a store with a snapshot; nil for none yet.
func NewStore(s *Snapshot) *Store {
	store := &Store{}
	if s != nil {
		store.current.Store(s)
	}
	return store
}

// Load returns the current snapshot, or nil before the first.
func (s *Store) Load() *Snapshot { return s.current.Load() }

// Subscribe calls a function, which must not block, with each change of the snapshot, in order, until the returned
// function is called. The first change, unless there is no snapshot yet, is that from nothing to the current one.
func (s *Store) Subscribe(changed func(*Change)) (unsubscribe func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[*func(*Change)]struct{}{}
	}
	s.subscribers[&changed] = struct{}{}
	if current := s.current.Load(); current != nil {
		changed(current.fromNothing())
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, &changed)
	}
}

// replace stores the next snapshot and notifies subscribers and waiters.
func (s *Store) replace(next *Snapshot, change *Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(next)
	s.setUnseen(valueOf(&s.unseen))
	for changed := range s.subscribers {
		(*changed)(change)
	}
	s.replaced.Notify()
}

// Until waits until there is a snapshot that satisfies a condition.
func (s *Store) Until(ctx context.Context, condition func(*Snapshot) bool) error {
	return s.replaced.Until(ctx, s.satisfies(condition))
}

func (s *Store) satisfies(condition func(*Snapshot) bool) func() bool {
	return func() bool {
		current := s.Load()
		return current != nil && condition(current)
	}
}

// Older reports whether a resourceVersion is older than another.
func Older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// ServeHTTP writes, as JSON, how far the snapshot has followed the API server, for tests and for users who
// check whether a policy is in force yet. It names no object.
func (s *Store) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	view := struct {
		Ready            bool              `json:"ready"`
		Generation       uint64            `json:"generation"`
		ResourceVersions map[string]string `json:"resourceVersions"`
		Objects          map[string]int    `json:"objects"`
	}{ResourceVersions: map[string]string{}, Objects: map[string]int{}}
	if current := s.Load(); current != nil {
		view.Ready, view.Generation = true, current.generation
		for _, kind := range kinds {
			if seen := current.seen[kind.index]; seen != (Seen{}) {
				view.ResourceVersions[kind.Resource], view.Objects[kind.Resource] = seen.ResourceVersion, seen.Objects
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(view) // the client has disconnected
}

// watched is a watch that verdicts depend on.
type watched struct {
	kind     *Kind
	progress *stream.Progress
}

// unseen is a write of this process that a watch has not shown in time.
type unseen struct {
	kind *Kind
	// version is its resourceVersion, "" for a deletion.
	version string
	shows   func(*Snapshot) bool
}

// follow returns the progress of a new watch; nil for kinds that no verdict depends on, and without a bound.
func (s *Store) follow(kind *Kind, bound time.Duration) *stream.Progress {
	if kind.Readers == Leader || bound == 0 {
		return nil
	}
	progress := stream.NewProgress(bound)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(slices.Clone(valueOf(&s.watches)), watched{kind, progress})
	s.watches.Store(&all)
	return progress
}

func valueOf[T any](list *atomic.Pointer[[]T]) []T {
	if all := list.Load(); all != nil {
		return *all
	}
	return nil
}

// Stale returns the kinds that verdicts depend on and that the snapshot may be too old in: of which a watch has shown
// no progress for longer than the bound, or not a write of this process. Nothing may be judged, or done, by such a
// snapshot.
func (s *Store) Stale() []*Kind {
	stale := s.kindsOf(func(w watched) bool { return w.progress.Stale() })
	for _, w := range valueOf(&s.unseen) {
		if !s.includes(&w) && !slices.Contains(stale, w.kind) {
			stale = append(stale, w.kind)
		}
	}
	return stale
}

// Followed returns the kinds that verdicts depend on and that are watched.
func (s *Store) Followed() []*Kind { return s.kindsOf(func(watched) bool { return true }) }

func (s *Store) kindsOf(some func(watched) bool) (kinds []*Kind) {
	for _, w := range valueOf(&s.watches) {
		if some(w) && !slices.Contains(kinds, w.kind) {
			kinds = append(kinds, w.kind)
		}
	}
	return kinds
}

// Names returns the resources of kinds, for messages.
func Names(kinds []*Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Resource
	}
	return strings.Join(names, ", ")
}

// includes reports whether the snapshot shows a write, or the watch has passed it: the object may have been deleted since.
func (s *Store) includes(w *unseen) bool {
	if current := s.Load(); current != nil && w.shows(current) {
		return true
	}
	return w.version != "" && slices.ContainsFunc(valueOf(&s.watches), func(of watched) bool {
		return of.kind == w.kind && of.progress.Reached(w.version, Older)
	})
}

// Wait waits until the snapshot shows a write of a kind, so that nothing is decided on a state from before that write.
// Version is the resourceVersion that the API server has returned, "" for a deletion. If the write is not shown in
// time, the kind is stale until it is.
func (s *Store) Wait(ctx context.Context, kind *Kind, version string, shows func(*Snapshot) bool) error {
	err := s.replaced.Wait(ctx, s.satisfies(shows))
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setUnseen(append(slices.Clone(valueOf(&s.unseen)), unseen{kind, version, shows}))
	return err
}

// setUnseen sets the writes that are not shown yet, of these.
func (s *Store) setUnseen(all []unseen) {
	if len(all) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(w unseen) bool { return s.includes(&w) })
		s.unseen.Store(&all)
	}
}

// failing reports whether only one kind is stale, and reading it last failed after its watch had shown progress.
func (s *Store) failing(kind *Kind, failed time.Time) bool {
	if stale := s.Stale(); len(stale) != 1 || stale[0] != kind {
		return false
	}
	return slices.ContainsFunc(valueOf(&s.watches), func(w watched) bool {
		return w.kind == kind && failed.After(w.progress.Confirmed())
	})
}

// follow watches a kind, in a namespace or in all, in the versions that it receives, one after another; "" is for no
// definition. The returned channel is closed once its objects have been read, or it is known that none can exist. While
// the version changes, they stay in force as they were last read.
func (f *Feed) follow(
	ctx context.Context, running *sync.WaitGroup, kind *Kind, namespace string, versions <-chan string,
) <-chan struct{} {
	objects, progress := newMirror(f.note), f.Store.follow(kind, f.MaxStaleness)
	running.Go(func() {
		stop := func() {} // it ends the watch, and waits until it notes nothing any more
		for {
			select {
			case <-ctx.Done():
				stop()
				return
			case version := <-versions:
				stop()
				if version == "" {
					progress.Forget()
					_ = objects.Replace(nil, "") // returns no error
					stop = func() {}
					continue
				}
				resource := kind.GroupVersionResource()
				resource.Version = version
				watching, cancel := context.WithCancel(ctx)
				var one sync.WaitGroup
				one.Go(func() { f.reflect(watching, kind, resource, namespace, progress, objects) })
				stop = func() { cancel(); one.Wait() }
			}
		}
	})
	running.Go(func() {
		if wait(ctx, objects.known) {
			f.happened(event{synced: kind})
		}
	})
	return objects.known
}

// followDefined passes on the versions in which the optional kinds of the leader are served, "" for none, as far as they
// are new in a snapshot.
func (f *Feed) followDefined(last, next *Snapshot) {
	if !next.Synced(CustomResourceDefinitions) {
		return
	}
	for kind, versions := range f.optional {
		version := ""
		if next.Serves(kind) {
			version = kind.Version
		}
		if last != nil && last.Synced(CustomResourceDefinitions) && last.Serves(kind) == next.Serves(kind) {
			continue
		}
		select {
		case <-versions: // outdated, and not received yet
		default:
		}
		versions <- version
	}
}

// Serves reports whether an optional kind of the leader is defined on the cluster, as far as this replica knows.
func (s *Snapshot) Serves(kind *Kind) bool {
	d := s.Find(CustomResourceDefinitions, types.NamespacedName{Name: kind.Resource + "." + kind.Group}).Definition()
	return d != nil && d.Established && slices.Contains(d.Versions, kind.Version)
}

// followAsLeader follows a kind that only the leader needs. One that is omitted counts as listed: nothing waits for it.
func (f *Feed) followAsLeader(ctx context.Context, running *sync.WaitGroup, kind *Kind) {
	versions := f.optional[kind]
	switch {
	case slices.Contains(f.Omitted, kind):
		f.happened(event{synced: kind})
		return
	case versions == nil:
		versions = only(kind.Version)
	}
	f.follow(ctx, running, kind, metav1.NamespaceAll, versions)
}
