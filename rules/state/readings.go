package state

import (
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// Readings are what was read, besides the objects of a namespace, for unfinished plans to be judged by.
type Readings struct {
	// Packages are those of the plans; nil where one is not known.
	Packages map[PackageKey]*catalog.Package
	// Changes are what the plans change; nil where that is not known.
	Changes map[PlanKey]*PlanChanges
}

// PackageKey identifies a package in a catalog.
type PackageKey struct {
	Name   string
	Source olm.Catalog
}

// PlanKey identifies a plan: OLM reuses names, and manifests that no API server has stored have no UID.
type PlanKey struct{ uid, name string }

// KeyOf returns the key of a plan.
func KeyOf(p *olm.InstallPlan) PlanKey { return PlanKey{p.Metadata.UID, p.Metadata.Name} }

// WithReadings returns the namespace with what was read.
func (n *Namespace) WithReadings(r Readings) *Namespace {
	with := *n
	with.readings = r
	return &with
}

// PackageOf returns what was read of a package of a catalog; nil if that is not known.
func (n *Namespace) PackageOf(pkg string, source olm.Catalog) *catalog.Package {
	if n == nil {
		return nil
	}
	return n.readings.Packages[PackageKey{pkg, source}]
}

// JudgesByPackage reports whether plans are judged by what a catalog says of a package.
func (n *Namespace) JudgesByPackage(pkg string) bool {
	if n == nil {
		return false
	}
	for key := range n.readings.Packages {
		if key.Name == pkg {
			return true
		}
	}
	return false
}

// ReadingOf returns what was read of a plan, or why nothing is known.
func (n *Namespace) ReadingOf(plan *olm.InstallPlan) (known *PlanChanges, unknown string) {
	if n != nil {
		known = n.readings.Changes[KeyOf(plan)]
	}
	switch {
	case known == nil:
		return nil, "its contents are not read yet"
	case known.Plan != plan.ContentsDigest():
		return nil, "the contents that were read are not those of this InstallPlan"
	}
	return known, ""
}
