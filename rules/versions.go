package rules

import (
	"slices"
	"strings"
)

// SplitVersions reads spec.versions: each entry is a ClusterServiceVersion name or a comma-separated list of them. White space around names
// and empty names are dropped, order is kept, duplicates are removed. Source: the existing OperatorPolicy controller's interpretation of
// the field.
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
