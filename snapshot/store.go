package snapshot

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/opgate/opgate/internal/signal"
)

// Store holds the current snapshot. The zero value holds none: before the first full snapshot nothing may
// be judged, since an incomplete list of policies must not count as a complete one.
type Store struct {
	current atomic.Pointer[Snapshot]

	replaced signal.Signal

	freshness freshness

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
	s.setUnseen(valueOf(&s.freshness.unseen))
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
