package state

import (
	"cmp"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// CatalogImages is spec.catalog of a policy, prepared for judging. Nil holds nothing.
type CatalogImages struct {
	// HoldImage holds what comes from an image that is not accepted, HoldJump what comes after a jump.
	HoldImage, HoldJump bool
	// MaxChanged is the number of packages that an image may change without being a jump.
	MaxChanged int
	// Accepted are the digests in the order of the policy.
	Accepted []string
}

// newCatalogImages returns the settings with their defaults.
func newCatalogImages(spec *policyv1beta2.Catalog) *CatalogImages {
	if spec == nil {
		return nil
	}
	return &CatalogImages{HoldImage: spec.Image == policyv1beta2.CatalogHold,
		HoldJump:   spec.Jump == policyv1beta2.CatalogHold,
		MaxChanged: cmp.Or(int(spec.MaxChangedPackages), operatorpolicy.DefaultMaxChanged), Accepted: spec.Accepted}
}

// Holds reports whether any plan may be held.
func (c *CatalogImages) Holds() bool { return c != nil && (c.HoldImage || c.HoldJump) }

// AcceptedText returns the accepted digests for messages.
func (c *CatalogImages) AcceptedText() string {
	switch len(c.Accepted) {
	case 0:
		return "no digest is accepted yet"
	case 1:
		return "accepted is " + c.Accepted[0]
	}
	return "accepted are " + text.Names(c.Accepted, verdict.MaxListed)
}

// AgedPackages returns the packages of a catalog of which policies here hold young versions.
func (n *Namespace) AgedPackages(of olm.Catalog) []string {
	var packages []string
	for _, p := range n.Policies() {
		if !p.MustNotHave && p.Age.Holds() && slices.Contains(n.catalogsOf(p), of) {
			packages = append(packages, p.Package)
		}
	}
	return packages
}

// JudgesByCatalogImage reports whether plans of the namespace are judged by the images that catalogs run.
func (n *Namespace) JudgesByCatalogImage() bool {
	return n != nil && slices.ContainsFunc(n.Policies(), func(p *OperatorPolicy) bool {
		return p.CatalogImages.Holds() || p.Age.Holds()
	})
}

// RecordedCatalogs returns the catalogs of which policies here hold jumps or young versions.
func (n *Namespace) RecordedCatalogs() []olm.Catalog {
	var found []olm.Catalog
	for _, p := range n.Policies() {
		if !p.MustNotHave && (p.CatalogImages != nil && p.CatalogImages.HoldJump || p.Age.Holds()) {
			found = append(found, n.catalogsOf(p)...)
		}
	}
	return found
}

// catalogsOf returns the catalogs that a policy is about: the one that it names, else those of the Subscriptions to its
// package.
func (n *Namespace) catalogsOf(p *OperatorPolicy) []olm.Catalog {
	if p.Catalog.Name != "" && p.Catalog.Namespace != "" {
		return []olm.Catalog{p.Catalog} // bundle/catalog refuses the others
	}
	var found []olm.Catalog
	for _, s := range n.Subscribers(p.Package) {
		found = append(found, s.Catalog())
	}
	return found
}
