package operatorpolicy

import (
	"slices"
	"strings"
)

// SplitVersions reads spec.versions: each entry is a ClusterServiceVersion name, which may end with the digest of a
// bundle image, or a comma-separated list of them. White space around names and empty names are dropped, order is kept,
// duplicates are removed. Source: the existing OperatorPolicy controller's interpretation of the field, which has no
// digests.
//
// At most maxVersions+1 names are returned, so that a policy takes neither the time nor the memory of the process
// (threats G33, G35).
func SplitVersions(entries []string) []string {
	var names []string
	seen := map[string]struct{}{}
	for _, entry := range entries {
		for part := range strings.SplitSeq(entry, ",") {
			name := strings.TrimSpace(part)
			if _, twice := seen[name]; name == "" || twice {
				continue
			}
			seen[name], names = struct{}{}, append(names, name)
			if len(names) > MaxVersions {
				return names
			}
		}
	}
	return slices.Clip(names)
}

// MaxVersions bounds the names in spec.versions. A policy with more is not valid, and holds what it governs.
const MaxVersions = 10_000
