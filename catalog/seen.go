package catalog

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
)

// MaxSeenPackages bounds the packages of one catalog for which it is recorded when versions were first seen. What
// exceeds the bounds is not recorded, and held.
const MaxSeenPackages = 100

// maxSeenVersions bounds the versions of one package.
const maxSeenVersions = 1000

// Seen is when ClusterServiceVersions were first offered by a catalog, in seconds since 1970, by package and name. It
// is immutable.
type Seen map[string]map[string]int64

// seenVersion is one version in a Seen.
type seenVersion struct{ pkg, name string }

// size returns an upper limit of the JSON of a version, in bytes.
func (v seenVersion) size() int {
	const time = len(`"":{"":1234567890},`)
	text, err := json.Marshal(v.pkg + v.name)
	if err != nil {
		panic(err) // it is a string
	}
	return time + len(text)
}

// With returns the record with what a catalog offers, in some bytes of JSON, and for whom something of that is left
// out. What is not offered at the time, or what no policy asks about any more, keeps its time in the room that is left:
// a package server that answers in part makes nothing new.
func (s Seen) With(offered Offered, room int) (next Seen, left []fair.Origin) {
	next = Seen{}
	add := func(claims []fair.Claim[seenVersion]) (left []fair.Origin) {
		kept, left := fair.Within(claims, room)
		for _, v := range fair.Rows(kept) {
			if next[v.pkg] == nil {
				next[v.pkg] = map[string]int64{}
			}
			next[v.pkg][v.name] = cmp.Or(s[v.pkg][v.name], offered.At.Unix())
			room -= v.size()
		}
		return left
	}
	claim := func(pkg, name string) fair.Claim[seenVersion] {
		v := seenVersion{pkg, name}
		return fair.Claim[seenVersion]{Origin: offered.For[pkg], Row: v, Weight: v.size()}
	}
	var now, before []fair.Claim[seenVersion]
	for _, pkg := range slices.Sorted(maps.Keys(offered.Names)) {
		names := slices.Clone(offered.Names[pkg])
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(min(s[pkg][b], 1), min(s[pkg][a], 1)) })
		for _, name := range names[:min(len(names), maxSeenVersions)] { // those that are recorded come first
			now = append(now, claim(pkg, name))
		}
	}
	left = add(now)
	for _, pkg := range slices.Sorted(maps.Keys(s)) {
		for _, name := range slices.Sorted(maps.Keys(s[pkg])) {
			if next[pkg][name] == 0 {
				before = append(before, claim(pkg, name))
			}
		}
	}
	add(before)
	return next, left
}

// equal reports whether two records are the same.
func (s Seen) equal(other Seen) bool {
	return maps.EqualFunc(s, other, func(a, b map[string]int64) bool { return maps.Equal(a, b) })
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
