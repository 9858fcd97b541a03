package state

import (
	"crypto/sha256"

	"github.com/opgate/opgate/olm"
)

// Installed is an installed ClusterServiceVersion.
type Installed struct {
	CSV string
	// UID is that of the object, empty if only a Subscription shows it.
	UID string
	// Package is empty if not known.
	Package string
	Version string
	// Properties are those of its bundle; Described is false if they are not known.
	Properties []olm.Property
	Described  bool
	// Channel and Catalog are those of the Subscription that installed it, empty if there is none.
	Channel string
	Catalog olm.Catalog
	// NotUpgradeable is why the operator must not be replaced now, as its OperatorCondition says; empty if it may be.
	NotUpgradeable string

	// Stated is the release in its properties, see Release.
	Stated string
	// Spec is nil if only the status of a Subscription shows that this is installed.
	Spec *olm.CSVSpec
}

// Release returns the release, which tells bundles of one version apart; "" if there is none that its properties and
// its spec agree on.
func (c *Installed) Release() string {
	release, _ := c.Spec.Release(c.Stated)
	return release
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
	installed.CSV, installed.UID, installed.Spec = c.Metadata.Name, c.Metadata.UID, &c.Spec
	if properties := c.Metadata.Annotations.Properties; properties != "" {
		if bundle, err := olm.ParseBundle(properties); err == nil {
			installed.Package, installed.Version, installed.Stated = bundle.Package, bundle.Version, bundle.Release
			installed.Properties, installed.Described = bundle.Properties, true
		}
	}
	return installed, c.Metadata.Labels.CopiedFrom == "" && !IsVirtual(c)
}

// IsVirtual reports whether this is a virtual operator, by a label that only Opgate may write.
func IsVirtual(c *olm.CSV) bool { return c.Metadata.Labels.VirtualOperator != "" }

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
