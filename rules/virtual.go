package rules

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/opgate/opgate/olm"
)

// A virtual operator is a ClusterServiceVersion without a Subscription, by which the properties of a Constraint reach
// OLM's resolver: it reads those of all that stands in a namespace (R-CO-5).
const (
	// VirtualOperatorLabel is on each; its value is the name of the Constraint.
	VirtualOperatorLabel = "opgate.io/virtual-operator"
	// VirtualOperatorNamespacesAnnotation of a Constraint is a label selector, written as for kubectl -l: the
	// namespaces whose resolver is to see its properties, if they have a Subscription.
	VirtualOperatorNamespacesAnnotation = "opgate.io/virtual-operator-namespaces"

	virtualOperatorPrefix = "opgate-properties-"
	// maxLabelValue is how long a label may be, in bytes.
	maxLabelValue = 63
)

// VirtualOperatorName is the name of the ClusterServiceVersion for a Constraint. It is cut so that it also fits where
// OLM makes labels of it.
func VirtualOperatorName(constraint string) string {
	return cutName(virtualOperatorPrefix + constraint)
}

// VirtualOperatorLabelValue is the value of the label for a Constraint.
func VirtualOperatorLabelValue(constraint string) string { return cutName(constraint) }

// cutName keeps names short, and different ones different.
func cutName(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:5])
	return name[:maxLabelValue-len(digest)-1] + "-" + digest
}

// virtualOperator reports whether this is one, by what only Opgate may write.
func virtualOperator(c *olm.CSV) bool { return c.Metadata.Labels.VirtualOperator != "" }
