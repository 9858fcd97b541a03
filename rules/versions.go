package rules

import (
	"slices"
	"strings"
)

// SplitVersions reads spec.versions: each entry is a ClusterServiceVersion name or a comma list of them,
// white space around names does not count, blanks are dropped, order is kept and repeats are not.
// Source: the existing OperatorPolicy controller's reading of the field.
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
