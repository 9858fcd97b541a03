package state

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// VersionList is spec.versions, prepared for judging.
type VersionList struct {
	// Entries are the names, with their digests.
	Entries []string
	// byName are the indexes of entries, sorted by entry.
	byName []uint16
	// digests are, by name, those of the only bundle images that the name stands for.
	digests map[string][]string
}

func newVersionList(entries []string) VersionList {
	l := VersionList{Entries: operatorpolicy.SplitVersions(entries)}
	l.byName = make([]uint16, len(l.Entries))
	for i, entry := range l.Entries {
		l.byName[i] = uint16(i) // at most maxVersions
		name, digest := olm.CutDigest(entry)
		if name == entry {
			continue
		}
		if l.digests == nil {
			l.digests = map[string][]string{}
		}
		l.digests[name] = append(l.digests[name], digest)
	}
	slices.SortFunc(l.byName, func(a, b uint16) int { return strings.Compare(l.Entries[a], l.Entries[b]) })
	return l
}

// names returns the names that are listed, with and without a digest.
func (l *VersionList) names() []string {
	var names []string
	seen := map[string]bool{}
	for _, entry := range l.Entries {
		if name, _ := olm.CutDigest(entry); !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}

// plainNames returns the names that are listed without a digest.
func (l *VersionList) plainNames() []string {
	return slices.DeleteFunc(l.names(), func(name string) bool { return !l.Lists(name) })
}

// Lists reports whether a name is listed for any contents. Names are compared byte by byte: a look-alike is another
// name (threat O11).
func (l *VersionList) Lists(name string) bool {
	_, listed := slices.BinarySearchFunc(l.byName, name,
		func(i uint16, name string) int { return strings.Compare(l.Entries[i], name) })
	return listed && !strings.Contains(name, "@") // an entry with a digest is no name
}

// Binds reports whether a name is listed for certain contents only.
func (l *VersionList) Binds(name string) bool { return l.digested(name) && !l.Lists(name) }

// digested reports whether a name is listed with a digest.
func (l *VersionList) digested(name string) bool { return len(l.digests[name]) > 0 }

// BindsTo reports whether a name is listed for a bundle image with a digest.
func (l *VersionList) BindsTo(name, digest string) bool {
	return slices.Contains(l.digests[name], digest)
}
