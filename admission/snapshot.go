package admission

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/opgate/opgate/rules"
)

// Snapshot is everything that judging knows of the cluster at one moment. It is immutable: requests read
// it without locks while the feed builds the next one.
type Snapshot struct {
	namespaces map[string]*rules.Namespace
	generation uint64
	built      time.Time
	seen       map[string]Seen
}

// Seen says how far a snapshot has followed one resource.
type Seen struct {
	// ResourceVersion is the newest that the snapshot includes, "" where it includes no object.
	ResourceVersion string
	// Objects is how many objects of the resource exist.
	Objects int
}

// Namespace gives what is known of a namespace; nil, which rules read as an empty one, where nothing is.
func (s *Snapshot) Namespace(name string) *rules.Namespace { return s.namespaces[name] }

// Governed lists the namespaces that policies concern, sorted; "" is there if some govern nothing yet.
func (s *Snapshot) Governed() []string {
	var names []string
	for name, ns := range s.namespaces {
		if len(ns.Policies()) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Store holds the current snapshot. The zero value holds none: until the first full snapshot nothing may
// be judged, since a list of policies that is not complete must not read as one (threat G2).
type Store struct {
	current atomic.Pointer[Snapshot]
}

// Load gives the current snapshot, or nil before the first.
func (s *Store) Load() *Snapshot { return s.current.Load() }

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
		for resource, seen := range current.seen {
			view.ResourceVersions[resource], view.Objects[resource] = seen.ResourceVersion, seen.Objects
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(view) // the reader has gone; there is nobody to tell
}
