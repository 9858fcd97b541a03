package catalog

import (
	"maps"
	"slices"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
)

// Limits of Seen, so that a record can be stored. What exceeds them is not recorded, and held.
const (
	maxSeenPackages = 100
	maxSeenVersions = 1000
)

// Seen is when ClusterServiceVersions were first offered by a catalog, in seconds since 1970, by package and name. It
// is immutable.
type Seen map[string]map[string]int64

// With returns the record with what a catalog offers at a time, by package; changed is false if it has all of that. A
// name keeps its time as long as there is room, also while the catalog does not offer it: a package server that answers
// in part makes nothing new.
func (s Seen) With(offered map[string][]string, now time.Time) (next Seen, changed bool) {
	next = maps.Clone(s)
	if next == nil {
		next = Seen{}
	}
	for _, pkg := range slices.Sorted(maps.Keys(offered)) {
		names := next[pkg]
		if names == nil && len(next) >= maxSeenPackages {
			maps.DeleteFunc(next, func(other string, _ map[string]int64) bool { return offered[other] == nil })
			if len(next) >= maxSeenPackages {
				continue
			}
		}
		added := slices.DeleteFunc(slices.Clone(offered[pkg]), func(name string) bool { return names[name] != 0 })
		if len(added) == 0 && names != nil {
			continue
		}
		names = maps.Clone(names)
		if names == nil {
			names = map[string]int64{}
		}
		if len(names)+len(added) > maxSeenVersions {
			maps.DeleteFunc(names, func(name string, _ int64) bool { return !slices.Contains(offered[pkg], name) })
		}
		for _, name := range added[:min(len(added), max(0, maxSeenVersions-len(names)))] {
			names[name] = now.Unix()
			changed = true
		}
		next[pkg] = names
	}
	return next, changed
}

// FirstSeen returns when a version of a package was first offered; zero if that is not recorded.
func (h *History) FirstSeen(pkg, csv string) time.Time {
	if h == nil || h.Seen[pkg][csv] <= 0 {
		return time.Time{}
	}
	return time.Unix(h.Seen[pkg][csv], 0).UTC()
}

// DecodeNames returns the package of a PackageManifest of a catalog, and the names of all ClusterServiceVersions that
// it offers. The package is "" if it is not of the catalog.
func DecodeNames(raw []byte, of olm.Catalog) (pkg string, names []string) {
	var object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return "", nil
	}
	p := Decode(object)
	if p == nil || p.Catalog != of {
		return "", nil
	}
	for i := range p.Channels {
		for _, e := range p.Channels[i].Entries {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return p.Name, slices.Compact(names)
}
