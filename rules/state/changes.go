package state

import (
	"crypto/sha256"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
)

// Changes returns what a plan changes; nil while that is not known. It never waits: the contents are read in the
// background. The result is shared and must not be modified.
type Changes func(plan *olm.InstallPlan, csvs []Replacement) *PlanChanges

// Packages returns a package of a catalog, of which a version is read; nil while it is not known.
type Packages func(pkg, csv string, source olm.Catalog) *catalog.Package

// Replacement is a ClusterServiceVersion of a plan, and what it replaces.
type Replacement struct {
	CSV, Package, Version, Release string
	// Channel is that of the Subscription, if there is exactly one; Catalog is the catalog that the plan names.
	Channel string
	Catalog olm.Catalog
	// From, FromVersion and FromRelease are the installed ClusterServiceVersion of the package, empty for a first
	// installation. FromDigest is the digest of its contents.
	From, FromVersion, FromRelease string
	FromDigest                     [sha256.Size]byte
	// FromPlan is the InstallPlan that installed it, which has all that its bundle brought; empty if there is none, or
	// not exactly one.
	FromPlan string
}

// PlanChanges is what a plan changes.
type PlanChanges struct {
	// Plan is the olm.InstallPlan.ContentsDigest of what was read.
	Plan [sha256.Size]byte
	// Replacements are those that the plan was compared for.
	Replacements []Replacement
	// ByCSV has a change set for each ClusterServiceVersion of the plan, by name.
	ByCSV map[string]*change.Set
	// Bundles has the contents of each as OLM will write them, by name: it unpacks a bundle image into a ConfigMap before
	// it writes the plan, which refers to that.
	Bundles map[string]*olm.Bundle
}
