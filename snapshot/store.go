package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Store holds the current snapshot. The zero value holds none: until the first full snapshot nothing may
// be judged, since a list of policies that is not complete must not read as one (threat G2).
type Store struct {
	current atomic.Pointer[Snapshot]

	mu sync.Mutex
	// subscribers are called with each change.
	subscribers map[*func(*Change)]struct{}
	// first is closed by the first snapshot; nil until it is asked for. ready is set by the first snapshot.
	first chan struct{}
	ready bool
}

// NewStore returns a store of one snapshot; nil is none yet.
func NewStore(s *Snapshot) *Store {
	store := &Store{}
	if s != nil {
		store.replace(s, &Change{Snapshot: s})
	}
	return store
}

// Load returns the current snapshot, or nil before the first.
func (s *Store) Load() *Snapshot { return s.current.Load() }

// Ready returns a channel that is closed once there is a snapshot.
func (s *Store) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = make(chan struct{})
		if s.ready {
			close(s.first)
		}
	}
	return s.first
}

// Subscribe calls a function, which must return at once, with each change of the snapshot, in order, until the returned function
// is called.
func (s *Store) Subscribe(changed func(*Change)) (unsubscribe func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[*func(*Change)]struct{}{}
	}
	s.subscribers[&changed] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, &changed)
	}
}

// replace stores the next snapshot and notifies those who wait for it.
func (s *Store) replace(next *Snapshot, change *Change) {
	next.replaced = make(chan struct{})
	last := s.current.Swap(next)
	if last != nil {
		close(last.replaced)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready && s.first != nil {
		close(s.first)
	}
	s.ready = true
	for changed := range s.subscribers {
		(*changed)(change)
	}
}

// waitTimeout bounds the wait for a watch to show what was just written. It takes milliseconds.
const waitTimeout = 10 * time.Second

// Wait waits until the snapshot satisfies a condition, such as to show what was just written, so that nothing is done twice. The
// condition is evaluated once for each snapshot. There must be one.
func (s *Store) Wait(ctx context.Context, condition func(*Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		current := s.Load()
		if condition(current) {
			return nil
		}
		select {
		case <-current.replaced:
		case <-ctx.Done():
			return fmt.Errorf("wait for the watches to show a write: %w", ctx.Err())
		}
	}
}

// Older reports whether a resourceVersion is from before another.
func Older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// ServeHTTP shows, as JSON, how far the snapshot has followed the API server, for tests and for people who
// wonder whether a policy is in force yet. It names no object.
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
	_ = json.NewEncoder(w).Encode(view) // the reader has gone
}
