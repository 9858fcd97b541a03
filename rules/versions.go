package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/olm"
)

// SplitVersions reads spec.versions: each entry is a ClusterServiceVersion name, which may end with the digest of a bundle image, or a
// comma-separated list of them. White space around names and empty names are dropped, order is kept, duplicates are removed. Source: the
// existing OperatorPolicy controller's interpretation of the field, which has no digests.
func SplitVersions(entries []string) []string {
	var names []string
	for _, entry := range entries {
		for part := range strings.SplitSeq(entry, ",") {
			if name := strings.TrimSpace(part); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// versionList is spec.versions, prepared for judging.
type versionList struct {
	// entries are the names, with their digests.
	entries []string
	// plain are the names without a digest, which stand for any contents.
	plain map[string]struct{}
	// digests are, by name, those of the only bundle images that the name stands for.
	digests map[string][]string
}

func newVersionList(entries []string) versionList {
	l := versionList{entries: SplitVersions(entries), plain: map[string]struct{}{}}
	for _, entry := range l.entries {
		name, digest := olm.CutDigest(entry)
		if name == entry {
			l.plain[name] = struct{}{}
			continue
		}
		if l.digests == nil {
			l.digests = map[string][]string{}
		}
		l.digests[name] = append(l.digests[name], digest)
	}
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

// lists reports whether a name is listed for any contents. Names are compared byte by byte: a look-alike is another name (threat O11).
func (l *versionList) lists(name string) bool {
	_, ok := l.plain[name]
	return ok
}

// binds reports whether a name is listed for certain contents only.
func (l *versionList) binds(name string) bool { return len(l.digests[name]) > 0 && !l.lists(name) }

// matches reports whether a ClusterServiceVersion is listed; known is false if that depends on its contents and the plan does not show them.
// An empty list lists everything.
func (l *versionList) matches(c *planCSV) (match, known bool) {
	if !l.binds(c.name) {
		return len(l.entries) == 0 || l.lists(c.name), true
	}
	digest, unknown := c.digest()
	return slices.Contains(l.digests[c.name], digest), unknown == ""
}
