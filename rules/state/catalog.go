package state

import (
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// AgedPackages returns the packages of a catalog of which policies here hold young versions.
func (n *Namespace) AgedPackages(of olm.Catalog) (packages []fair.Claim[string]) {
	for _, p := range n.Policies() {
		if !p.MustNotHave && p.Age.Holds() && p.Package != "" &&
			slices.ContainsFunc(n.catalogsOf(p), func(c fair.Claim[olm.Catalog]) bool { return c.Row == of }) {
			packages = append(packages, fair.Claim[string]{Origin: p.Origin(), Row: p.Package, Weight: 1})
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
func (n *Namespace) RecordedCatalogs() (found []fair.Claim[olm.Catalog]) {
	for _, p := range n.Policies() {
		if !p.MustNotHave && (p.CatalogImages != nil && p.CatalogImages.HoldJump || p.Age.Holds()) {
			found = append(found, n.catalogsOf(p)...)
		}
	}
	return found
}

// catalogsOf returns the catalogs that a policy is about: the one that it names, else those of the Subscriptions to its
// package, which take room of the namespace that they are in: tenants may write them.
func (n *Namespace) catalogsOf(p *operatorpolicy.Policy) (found []fair.Claim[olm.Catalog]) {
	if p.Catalog.Name != "" && p.Catalog.Namespace != "" {
		// bundle/catalog refuses the others
		return []fair.Claim[olm.Catalog]{{Origin: p.Origin(), Row: p.Catalog, Weight: 1}}
	}
	for _, s := range n.Subscribers(p.Package) {
		found = append(found, fair.Claim[olm.Catalog]{Origin: fair.Origin{Namespace: n.Name(), Name: s.Metadata.Name},
			Row: s.Catalog(), Weight: 1})
	}
	return found
}

// ProtectedCatalogs returns the existing catalogs that policies here protect from deletion.
func (n *Namespace) ProtectedCatalogs() (found []olm.Catalog) {
	for _, p := range n.Policies() {
		if p.Deletion != policyv1beta2.DeletionAllow && n.Facts().Catalogs[p.Catalog] != nil {
			found = append(found, p.Catalog)
		}
	}
	return found
}

// Protects reports whether policies here restrict deletions.
func (n *Namespace) Protects() bool {
	return slices.ContainsFunc(n.Policies(), func(p *operatorpolicy.Policy) bool {
		return p.Deletion != policyv1beta2.DeletionAllow
	})
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
// to be in the namespaces that the chart names: a user who creates a CatalogSource elsewhere chooses the names of what it
// offers. A catalog that is not known is the zero one, or none.
func (n *Namespace) ExceptionsOf(d *constraint.Definition, pkg string, from ...olm.Catalog) operatorpolicy.Exceptions {
	named := grant.Set{Catalogs: n.Facts().CatalogNamespaces}
	if len(d.Exceptions) == 0 || named.Catalogs != nil && (len(from) == 0 || slices.ContainsFunc(from,
		func(c olm.Catalog) bool { return named.MissingCatalog(c.Namespace) != "" })) {
		return nil
	}
	return d.Exceptions.Of(pkg)
}
