// Package state has what is known of a namespace: Namespace, with its policies and objects, what is recorded of what was
// installed, and what was read for its plans. It answers what rules in several packages ask, and records what they find.
// It has no rule, and no ID of one. What is known of the cluster is in package facts, below the engine of Constraints,
// which reads it too.
package state

import (
	"cmp"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// Namespace is what Opgate knows of one namespace: the policies that govern packages in it, the Constraints of the
// cluster, and its OLM objects. It is immutable, and safe for concurrent use. A nil Namespace is one without known
// objects, on a cluster without Constraints.
type Namespace struct {
	name string
	// contents are those that it was made of, each list in order. CSVs are merged with what Subscriptions show.
	contents  NamespaceContents
	byPackage map[string][]*operatorpolicy.Policy
	// unnamed are the policies whose package cannot be read: they govern every package.
	unnamed, enforced []*operatorpolicy.Policy
	// judging is the first enforced policy that has to judge plans before OLM runs them; nil for none.
	judging  *operatorpolicy.Policy
	readings Readings
}

// unknown is read in place of a nil Namespace.
var unknown = &Namespace{contents: NamespaceContents{Facts: &facts.Cluster{}}}

// known returns the namespace, or unknown for nil.
func (n *Namespace) known() *Namespace {
	if n == nil {
		return unknown
	}
	return n
}

// NamespaceContents is the input of NewNamespace. The slices are not kept, the objects are.
type NamespaceContents struct {
	// Policies are those whose TargetNamespace is this one, and those with AnyNamespace.
	Policies      []*operatorpolicy.Policy
	Subscriptions []*olm.Subscription
	// CSVs excludes copies (label olm.copiedFrom), which are installed in other namespaces, and virtual operators; Stored
	// has all ClusterServiceVersions, sorted by name.
	CSVs   []Installed
	Stored []*olm.CSV
	Plans  []*olm.InstallPlan
	// NotUpgradeable is why installed ClusterServiceVersions must not be replaced now, by name.
	NotUpgradeable map[string]string
	// Groups are the OperatorGroups.
	Groups []*olm.OperatorGroup
	// Exists is false if the namespace was not observed yet, so that its labels are not known.
	Exists bool
	// Deleting is set while the namespace is being deleted.
	Deleting bool
	Labels   map[string]string
	// UID is that of the namespace; empty if not known. Record is what is recorded of what was installed; nil if
	// nothing is. One of another UID does not count.
	UID    string
	Record *InstallRecord
	// Constraints are those of the cluster.
	Constraints *constraint.Set
	// Facts are those about the cluster. Default: nothing is known of it.
	Facts *facts.Cluster
}

// NewNamespace indexes the objects of a namespace.
func NewNamespace(name string, c NamespaceContents) *Namespace {
	c.Policies, c.Subscriptions, c.Plans = slices.Clone(c.Policies), slices.Clone(c.Subscriptions), slices.Clone(c.Plans)
	c.Groups, c.Stored, c.Facts = slices.Clone(c.Groups), slices.Clip(c.Stored), cmp.Or(c.Facts, unknown.contents.Facts)
	slices.SortFunc(c.Policies, func(a, b *operatorpolicy.Policy) int { return cmp.Compare(a.Key(), b.Key()) })
	slices.SortFunc(c.Subscriptions,
		func(a, b *olm.Subscription) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	slices.SortFunc(c.Plans, func(a, b *olm.InstallPlan) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	if c.Record != nil && c.UID != "" && c.Record.UID != "" && c.UID != c.Record.UID {
		c.Record = nil
	}
	c.CSVs = installedIn(c.CSVs, c.Subscriptions)
	for i := range c.CSVs {
		c.CSVs[i].NotUpgradeable = cmp.Or(c.NotUpgradeable[c.CSVs[i].Name], c.CSVs[i].NotUpgradeable)
	}
	n := &Namespace{name: name, contents: c, byPackage: make(map[string][]*operatorpolicy.Policy, len(c.Policies))}
	for _, p := range c.Policies {
		if p.AnyPackage {
			n.unnamed = append(n.unnamed, p)
		} else {
			n.byPackage[p.Package] = append(n.byPackage[p.Package], p)
		}
		if p.Enforced {
			n.enforced = append(n.enforced, p)
			if n.judging == nil && p.JudgesPlans() {
				n.judging = p
			}
		}
	}
	return n
}

// installedIn merges what is installed according to ClusterServiceVersions and according to Subscriptions. Either
// source is enough: deleting and recreating a Subscription does not make an upgrade look like a first installation, and
// neither does a CSV without properties.
func installedIn(csvs []Installed, subscriptions []*olm.Subscription) []Installed {
	installed := slices.Clone(csvs)
	for _, s := range subscriptions {
		if s.Status.InstalledCSV == "" {
			continue
		}
		i := slices.IndexFunc(installed, func(c Installed) bool { return c.Name == s.Status.InstalledCSV })
		if i < 0 {
			i = len(installed)
			installed = append(installed, Installed{Bundle: olm.Bundle{Name: s.Status.InstalledCSV}})
		}
		installed[i].Package = cmp.Or(installed[i].Package, s.Spec.Package)
		if installed[i].Package == s.Spec.Package {
			installed[i].Channel, installed[i].Catalog = s.Spec.Channel, s.Catalog()
		}
	}
	slices.SortFunc(installed, func(a, b Installed) int { return cmp.Compare(a.Name, b.Name) })
	return installed
}

// Name returns the name of the namespace.
func (n *Namespace) Name() string { return n.known().name }

// Deleting reports whether the namespace is being deleted.
func (n *Namespace) Deleting() bool { return n.known().contents.Deleting }

// Constraints returns those of the cluster, the same in every namespace; nil if there are none.
func (n *Namespace) Constraints() *constraint.Set { return n.known().contents.Constraints }

// Facts returns what is known of the cluster, the same in every namespace. It must not be modified.
func (n *Namespace) Facts() *facts.Cluster { return n.known().contents.Facts }

// Exists reports whether the namespace was observed. Before that its labels are not known.
func (n *Namespace) Exists() bool { return n.known().contents.Exists }

// Labels returns the labels of the namespace. They must not be modified.
func (n *Namespace) Labels() map[string]string { return n.known().contents.Labels }

// ForConstraints returns what Constraints may read of the namespace.
func (n *Namespace) ForConstraints() constraint.Namespace {
	return constraint.Namespace{Name: n.Name(), Labels: n.Labels(), Unknown: !n.Exists()}
}

// Installed returns what is installed here, sorted by name.
func (n *Namespace) Installed() []Installed { return n.known().contents.CSVs }

// CSVs returns all ClusterServiceVersions, sorted by name: copies and virtual operators too, and none that only the
// status of a Subscription shows. Their contents are read as far as they are installed here.
func (n *Namespace) CSVs() []*olm.CSV { return n.known().contents.Stored }

// Policies returns the policies that govern packages here, sorted by namespace and name.
func (n *Namespace) Policies() []*operatorpolicy.Policy { return n.known().contents.Policies }

// Subscriptions returns the Subscriptions, sorted by name.
func (n *Namespace) Subscriptions() []*olm.Subscription { return n.known().contents.Subscriptions }

// Groups returns the OperatorGroups.
func (n *Namespace) Groups() []*olm.OperatorGroup { return n.known().contents.Groups }

// Plans returns the InstallPlans, sorted by name.
func (n *Namespace) Plans() []*olm.InstallPlan { return n.known().contents.Plans }

// Record returns the record of the namespace; nil if there is none.
func (n *Namespace) Record() *InstallRecord { return n.known().contents.Record }

// Governing returns the policies of a package, sorted by namespace and name, and then those of every package.
func (n *Namespace) Governing(pkg string) []*operatorpolicy.Policy {
	switch n = n.known(); {
	case pkg == "":
		return nil
	case len(n.unnamed) == 0:
		return n.byPackage[pkg]
	}
	return slices.Concat(n.byPackage[pkg], n.unnamed)
}

// Governed reports whether any policy governs a package in this namespace.
func (n *Namespace) Governed() bool { return len(n.Policies()) > 0 }

// Enforcing returns the policies that may refuse writes in this namespace.
func (n *Namespace) Enforcing() []*operatorpolicy.Policy { return n.known().enforced }

// InstalledOf returns the installed ClusterServiceVersion of a package, excluding one that is about to be written, or
// "".
func (n *Namespace) InstalledOf(pkg, except string) string {
	for _, c := range n.Installed() {
		if c.Package == pkg && c.Name != except {
			return c.Name
		}
	}
	return ""
}

// NotUpgradeable returns an installed ClusterServiceVersion of a package that must not be replaced now, excluding one
// that is about to be written; nil if there is none.
func (n *Namespace) NotUpgradeable(pkg, except string) *Installed {
	for i := range n.Installed() {
		if c := &n.Installed()[i]; pkg != "" && c.NotUpgradeable != "" && c.Package == pkg && c.Name != except {
			return c
		}
	}
	return nil
}

// Subscribed reports whether there is a Subscription to what a policy governs.
func (n *Namespace) Subscribed(p *operatorpolicy.Policy) bool {
	return slices.ContainsFunc(n.Subscriptions(), func(s *olm.Subscription) bool { return p.Governs(s.Spec.Package) })
}

// Subscribers returns the Subscriptions to a package.
func (n *Namespace) Subscribers(pkg string) (found []*olm.Subscription) {
	for _, s := range n.Subscriptions() {
		if s.Spec.Package == pkg {
			found = append(found, s)
		}
	}
	return found
}

// Claimed returns the package of the Subscription that has, or moves to, a ClusterServiceVersion. If Subscriptions to
// different packages name the same one, it is disputed.
func (n *Namespace) Claimed(csv string) (pkg string, disputed bool) {
	for _, s := range n.Subscriptions() {
		if s.Status.CurrentCSV != csv && s.Status.InstalledCSV != csv {
			continue
		}
		if pkg != "" && pkg != s.Spec.Package {
			return "", true
		}
		pkg = s.Spec.Package
	}
	return pkg, false
}

// WithPolicy returns the namespace with one policy added or replaced, if that policy governs a package here.
func (n *Namespace) WithPolicy(p *operatorpolicy.Policy) *Namespace {
	if n == nil {
		return NewNamespace(p.TargetNamespace, NamespaceContents{Policies: []*operatorpolicy.Policy{p}})
	}
	contents := n.contents
	contents.Policies = []*operatorpolicy.Policy{p}
	for _, other := range n.Policies() {
		switch {
		case other.Key() != p.Key():
			contents.Policies = append(contents.Policies, other)
		case other.Waits != "": // whatever the annotations are that it is written with
			p.Pending, p.Waits = other.Pending, other.Waits
		}
	}
	return NewNamespace(n.name, contents).WithReadings(n.readings)
}

// Operators returns the packages that are installed here or subscribed to, sorted. It contains "" if something is
// installed of a package that is not known.
func (n *Namespace) Operators() (packages []string) {
	for i := range n.Installed() {
		packages = append(packages, n.Installed()[i].Package)
	}
	for _, s := range n.Subscriptions() {
		packages = append(packages, s.Spec.Package)
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// Decidable reports whether all that stored objects are judged by is known. Admission holds until then; a check of
// stored objects can wait.
func (n *Namespace) Decidable() bool {
	return !slices.ContainsFunc(n.Policies(), func(p *operatorpolicy.Policy) bool { return p.Incomplete }) &&
		(n.Constraints().Empty() || n.Facts().Version != "" && n.Exists())
}

// GenerationOf returns the generation of a source whose verdict depends on its spec only, else 0.
func (n *Namespace) GenerationOf(g verdict.PolicyRef) int64 {
	if g.Kind == verdict.KindConstraint {
		for _, d := range n.Constraints().Definitions() {
			if d.Name == g.Name && d.Pending == "" {
				return d.Generation
			}
		}
		return 0
	}
	for _, p := range n.Policies() {
		if p.Ref() == g && p.Object != nil && !p.IsCompleted && p.Pending == "" {
			return p.Object.Generation
		}
	}
	return 0
}

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
	return slices.ContainsFunc(n.Policies(), func(p *operatorpolicy.Policy) bool {
		return p.CatalogImages.Holds() || p.Age.Holds()
	})
}

// RecordedCatalogs returns the catalogs of which policies here hold jumps or young versions.
func (n *Namespace) RecordedCatalogs() (found []fair.Claim[olm.Catalog]) {
	for _, p := range n.Policies() {
		if !p.MustNotHave && (p.CatalogImages.HoldsJump() || p.Age.Holds()) {
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
