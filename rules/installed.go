package rules

import (
	"github.com/opgate/opgate/olm"
)

// Installed is a ClusterServiceVersion that stands in a namespace.
type Installed struct {
	CSV string
	// Package is empty where nothing tells.
	Package string
	Version string
	// Properties are those of its bundle; Described is false where they are not known.
	Properties []olm.Property
	Described  bool
	// Channel and Catalog are those of the Subscription that installed it, empty where there is none.
	Channel string
	Catalog olm.Catalog

	// spec is nil where only a Subscription tells that this is installed.
	spec *olm.CSVSpec
}

// InstalledBy is what a ClusterServiceVersion says of what is installed; here is false for a copy that OLM made of
// one that is installed in another namespace, and for a virtual operator, which installs nothing. A CSV whose
// properties do not parse is installed all the same, of a package that is not known.
func InstalledBy(c *olm.CSV) (installed Installed, here bool) {
	c.Spec.KeepDigest()
	installed.CSV, installed.spec = c.Metadata.Name, &c.Spec
	if properties := c.Metadata.Annotations.Properties; properties != "" {
		if bundle, err := olm.ParseBundle(properties); err == nil {
			installed.Package, installed.Version = bundle.Package, bundle.Version
			installed.Properties, installed.Described = bundle.Properties, true
		}
	}
	return installed, c.Metadata.Labels.CopiedFrom == "" && !virtualOperator(c)
}
