package rules

import (
	"crypto/sha256"
	"encoding/hex"
)

// A virtual operator is a ClusterServiceVersion without a Subscription that exposes the properties of a Constraint to
// OLM's resolver: it reads those of all ClusterServiceVersions in a namespace.
const (
	virtualOperatorPrefix = "opgate-properties-"
	// maxLabelValue is the maximum length of a label value, in bytes.
	maxLabelValue = 63
)

// VirtualOperatorName returns the name of the ClusterServiceVersion for a Constraint. It is truncated so that it also
// fits where OLM derives labels from it.
func VirtualOperatorName(constraint string) string {
	return truncateName(virtualOperatorPrefix + constraint)
}

// VirtualOperatorLabelValue returns the value of the label for a Constraint.
func VirtualOperatorLabelValue(constraint string) string { return truncateName(constraint) }

// truncateName truncates names, and keeps different ones different.
func truncateName(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:5])
	return name[:maxLabelValue-len(digest)-1] + "-" + digest
}
