package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// versionList is spec.versions, prepared for judging.
type versionList struct {
	// entries are the names, with their digests.
	entries []string
	// byName are the indexes of entries, sorted by entry.
	byName []uint16
	// digests are, by name, those of the only bundle images that the name stands for.
	digests map[string][]string
}

func newVersionList(entries []string) versionList {
	l := versionList{entries: operatorpolicy.SplitVersions(entries)}
	l.byName = make([]uint16, len(l.entries))
	for i, entry := range l.entries {
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
	slices.SortFunc(l.byName, func(a, b uint16) int { return strings.Compare(l.entries[a], l.entries[b]) })
	return l
}

// names returns the names that are listed, with and without a digest.
func (l *versionList) names() []string {
	var names []string
	seen := map[string]bool{}
	for _, entry := range l.entries {
		if name, _ := olm.CutDigest(entry); !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}

// plainNames returns the names that are listed without a digest.
func (l *versionList) plainNames() []string {
	return slices.DeleteFunc(l.names(), func(name string) bool { return !l.lists(name) })
}

// lists reports whether a name is listed for any contents. Names are compared byte by byte: a look-alike is another
// name (threat O11).
func (l *versionList) lists(name string) bool {
	_, listed := slices.BinarySearchFunc(l.byName, name,
		func(i uint16, name string) int { return strings.Compare(l.entries[i], name) })
	return listed && !strings.Contains(name, "@") // an entry with a digest is no name
}

// binds reports whether a name is listed for certain contents only.
func (l *versionList) binds(name string) bool { return len(l.digests[name]) > 0 && !l.lists(name) }

// matches reports whether a ClusterServiceVersion is listed; known is false if that depends on its contents and the
// plan does not show them. An empty list lists everything.
func (l *versionList) matches(c *Bundle) (match, known bool) {
	if !l.binds(c.name) {
		return len(l.entries) == 0 || l.lists(c.name), true
	}
	digest, unknown := c.digest()
	return slices.Contains(l.digests[c.name], digest), unknown == ""
}
