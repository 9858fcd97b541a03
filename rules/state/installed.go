package state

import (
	"crypto/sha256"

	"github.com/opgate/opgate/olm"
)

// Installed is the bundle of an installed ClusterServiceVersion; with the Channel and the Catalog of the Subscription
// that installed it, and without a Spec if only the status of a Subscription shows it.
type Installed struct {
	olm.Bundle
	// UID is that of the object, empty if only a Subscription shows it.
	UID string
	// NotUpgradeable is why the operator must not be replaced now, as its OperatorCondition says; empty if it may be.
	NotUpgradeable string
}

// ContentsDigest is that of the spec, zero if it is not known.
func (c *Installed) ContentsDigest() (digest [sha256.Size]byte) {
	if c.Spec == nil {
		return digest
	}
	return c.Spec.ContentsDigest()
}

// InstalledBy returns what a ClusterServiceVersion installs; here is false for a copy of one that is installed in
// another namespace, and for a virtual operator, which installs nothing. A CSV whose properties do not parse is still
// installed, with an unknown package.
func InstalledBy(c *olm.CSV) (installed Installed, here bool) {
	c.Spec.KeepDigest()
	return Installed{Bundle: c.StatedBundle(), UID: c.Metadata.UID}, Here(c)
}

// Here reports whether a ClusterServiceVersion installs something in its namespace.
func Here(c *olm.CSV) bool { return c.Metadata.Labels.CopiedFrom == "" && !c.IsVirtual() }

// PlanThatInstalled returns the completed plan that wrote a ClusterServiceVersion. Of several, one may be forged: then
// none is.
func (n *Namespace) PlanThatInstalled(csv string) string {
	found := ""
	for _, plan := range n.Plans() {
		if !plan.Installed(csv) || n.Planted(plan, csv) {
			continue
		}
		if found != "" {
			return ""
		}
		found = plan.Metadata.Name
	}
	return found
}
