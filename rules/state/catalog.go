package state

import (
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

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
	return n != nil && slices.ContainsFunc(n.Policies(), func(p *operatorpolicy.Policy) bool {
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
func (n *Namespace) catalogsOf(p *operatorpolicy.Policy) []olm.Catalog {
	if p.Catalog.Name != "" && p.Catalog.Namespace != "" {
		return []olm.Catalog{p.Catalog} // bundle/catalog refuses the others
	}
	var found []olm.Catalog
	for _, s := range n.Subscribers(p.Package) {
		found = append(found, s.Catalog())
	}
	return found
}

// NeedsDigest reports whether a policy of a package lists a name with a digest, or an exception does.
func (n *Namespace) NeedsDigest(pkg, name string) bool {
	return slices.ContainsFunc(n.Governing(pkg), func(p *operatorpolicy.Policy) bool {
		return p.NeedsDigest(name)
	}) || slices.ContainsFunc(n.Constraints().Definitions(), func(d *constraint.Definition) bool {
		return d.Exceptions.NeedsDigest(name)
	})
}

// ExceptionsOf returns the exceptions of a Constraint that count for a bundle of a package from catalogs, which all have
// to be in the namespaces that the chart names: whoever creates a CatalogSource elsewhere chooses the names of what it
// offers. A catalog that is not known is the zero one, or none.
func (n *Namespace) ExceptionsOf(d *constraint.Definition, pkg string, from ...olm.Catalog) operatorpolicy.Exceptions {
	named := grant.Set{Catalogs: n.Facts().CatalogNamespaces}
	if len(d.Exceptions) == 0 || named.Catalogs != nil && (len(from) == 0 || slices.ContainsFunc(from,
		func(c olm.Catalog) bool { return named.MissingCatalog(c.Namespace) != "" })) {
		return nil
	}
	return d.Exceptions.Of(pkg)
}
