package snapshot

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opgate/opgate/stream"
)

// freshness is how current the watches of a store are. It is read without locks; the feed and Wait write it one at a
// time.
type freshness struct {
	watches atomic.Pointer[[]watched]
	unseen  atomic.Pointer[[]unseen]
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
	all := append(slices.Clone(valueOf(&s.freshness.watches)), watched{kind, progress})
	s.freshness.watches.Store(&all)
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
	var stale []*Kind
	for _, w := range valueOf(&s.freshness.watches) {
		if w.progress.Stale() && !slices.Contains(stale, w.kind) {
			stale = append(stale, w.kind)
		}
	}
	for _, w := range valueOf(&s.freshness.unseen) {
		if !s.shown(&w) && !slices.Contains(stale, w.kind) {
			stale = append(stale, w.kind)
		}
	}
	return stale
}

// Followed returns the kinds that verdicts depend on and that are watched.
func (s *Store) Followed() []*Kind {
	var all []*Kind
	for _, w := range valueOf(&s.freshness.watches) {
		if !slices.Contains(all, w.kind) {
			all = append(all, w.kind)
		}
	}
	return all
}

// Names returns the resources of kinds, for messages.
func Names(kinds []*Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Resource
	}
	return strings.Join(names, ", ")
}

// shown reports whether the snapshot shows a write, or the watch has passed it: the object may have been deleted since.
func (s *Store) shown(w *unseen) bool {
	if current := s.Load(); current != nil && w.shows(current) {
		return true
	}
	return w.version != "" && slices.ContainsFunc(valueOf(&s.freshness.watches), func(of watched) bool {
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
	s.setUnseen(append(slices.Clone(valueOf(&s.freshness.unseen)), unseen{kind, version, shows}))
	return err
}

// setUnseen sets the writes that are not shown yet, of these.
func (s *Store) setUnseen(all []unseen) {
	if len(all) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(w unseen) bool { return s.shown(&w) })
		s.freshness.unseen.Store(&all)
	}
}

// failing reports whether only one kind is stale, and reading it last failed after its watch had shown progress.
func (s *Store) failing(kind *Kind, failed time.Time) bool {
	if stale := s.Stale(); len(stale) != 1 || stale[0] != kind {
		return false
	}
	return slices.ContainsFunc(valueOf(&s.freshness.watches), func(w watched) bool {
		return w.kind == kind && failed.After(w.progress.Confirmed())
	})
}
