package admission

import (
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
)

// Snapshot is everything that judging knows of the cluster at one moment. It is immutable: requests read
// it without locks while the feed builds the next one.
type Snapshot struct {
	namespaces map[string]*rules.Namespace
	// constraints are in every namespace as well; objects are what they were made from, sorted by name.
	constraints *constraint.Set
	objects     []*constraintv1.Constraint
	// order is what waits for what; nil where no Policy is known.
	order      *dependency.Graph
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

// Namespace gives what is known of a namespace; nil, which rules read as an empty one, where nothing is and no
// Constraint applies.
func (s *Snapshot) Namespace(name string) *rules.Namespace {
	if ns, ok := s.namespaces[name]; ok || s.constraints.Empty() {
		return ns
	}
	return rules.NewNamespace(name, rules.NamespaceContents{Constraints: s.constraints})
}

// InOrder is Namespace for reviews, whose refusals tell all along the chain of Policies what a suspended guard waits for.
func (s *Snapshot) WithDependencies(name string) *rules.Namespace { return s.Namespace(name).WithDependencies(s.order) }

// All gives every namespace that is known, sorted by name.
func (s *Snapshot) All() iter.Seq[*rules.Namespace] {
	return func(yield func(*rules.Namespace) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
			if !yield(s.namespaces[name]) {
				return
			}
		}
	}
}

// Constraints are those of the cluster, made ready for judging, and what is known of the cluster.
func (s *Snapshot) Constraints() *constraint.Set { return s.constraints }

// ConstraintObjects are the stored Constraints, sorted by name. They must not be changed.
func (s *Snapshot) ConstraintObjects() []*constraintv1.Constraint { return s.objects }

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
