package state

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// Namespace is what Opgate knows of one namespace: the policies that govern packages in it, the Constraints of the
// cluster, and its OLM objects. It is immutable, and safe for concurrent use. A nil Namespace is one without known
// objects, on a cluster without Constraints.
type Namespace struct {
	name           string
	forConstraints constraint.Namespace
	constraints    *constraint.Set
	facts          *facts.Cluster
	policies       []*operatorpolicy.Policy
	byPackage      map[string][]*operatorpolicy.Policy
	// unnamed are the policies whose package cannot be read: they govern every package.
	unnamed       []*operatorpolicy.Policy
	subscriptions []*olm.Subscription
	csvs          []*olm.CSV
	installed     []Installed
	plans         []*olm.InstallPlan
	enforced      []*operatorpolicy.Policy
	// judging is the first enforced policy that has to judge plans before OLM runs them; nil for none.
	judging  *operatorpolicy.Policy
	deleting bool
	graph    *dependency.Graph
	groups   []*olm.OperatorGroup
	// record is what is recorded of what was installed; nil if nothing is. uid is that of the namespace, "" if not
	// known.
	record   *InstallRecord
	uid      string
	readings Readings
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
	n := &Namespace{
		name:           name,
		policies:       slices.Clone(c.Policies),
		subscriptions:  slices.Clone(c.Subscriptions),
		csvs:           slices.Clip(c.Stored),
		plans:          slices.Clone(c.Plans),
		groups:         slices.Clone(c.Groups),
		forConstraints: constraint.Namespace{Name: name, Labels: c.Labels, Unknown: !c.Exists},
		deleting:       c.Deleting,
		uid:            c.UID,
		constraints:    c.Constraints,
		facts:          c.Facts,
		byPackage:      make(map[string][]*operatorpolicy.Policy, len(c.Policies)),
	}
	slices.SortFunc(n.policies, func(a, b *operatorpolicy.Policy) int { return cmp.Compare(a.Key(), b.Key()) })
	slices.SortFunc(n.subscriptions,
		func(a, b *olm.Subscription) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	slices.SortFunc(n.plans, func(a, b *olm.InstallPlan) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	for _, p := range n.policies {
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
	if c.Record != nil && (c.UID == "" || c.Record.UID == "" || c.UID == c.Record.UID) {
		n.record = c.Record
	}
	n.installed = installedIn(c.CSVs, n.subscriptions)
	for i := range n.installed {
		n.installed[i].NotUpgradeable = cmp.Or(c.NotUpgradeable[n.installed[i].Name], n.installed[i].NotUpgradeable)
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
func (n *Namespace) Name() string {
	if n == nil {
		return ""
	}
	return n.name
}

// Deleting reports whether the namespace is being deleted.
func (n *Namespace) Deleting() bool { return n != nil && n.deleting }

// Constraints returns those of the cluster, the same in every namespace; nil if there are none.
func (n *Namespace) Constraints() *constraint.Set {
	if n == nil {
		return nil
	}
	return n.constraints
}

// Facts returns what is known of the cluster, the same in every namespace. It must not be modified.
func (n *Namespace) Facts() *facts.Cluster {
	if n == nil || n.facts == nil {
		return &facts.Cluster{}
	}
	return n.facts
}

// Exists reports whether the namespace was observed. Before that its labels are not known.
func (n *Namespace) Exists() bool { return !n.ForConstraints().Unknown }

// Labels returns the labels of the namespace. They must not be modified.
func (n *Namespace) Labels() map[string]string { return n.ForConstraints().Labels }

// ForConstraints returns what Constraints may read of the namespace.
func (n *Namespace) ForConstraints() constraint.Namespace {
	if n == nil {
		return constraint.Namespace{Unknown: true}
	}
	return n.forConstraints
}

// Installed returns what is installed here, sorted by name.
func (n *Namespace) Installed() []Installed {
	if n == nil {
		return nil
	}
	return n.installed
}

// CSVs returns all ClusterServiceVersions, sorted by name: copies and virtual operators too, and none that only the
// status of a Subscription shows. Their contents are read as far as they are installed here.
func (n *Namespace) CSVs() []*olm.CSV {
	if n == nil {
		return nil
	}
	return n.csvs
}

// Policies returns the policies that govern packages here, sorted by namespace and name.
func (n *Namespace) Policies() []*operatorpolicy.Policy {
	if n == nil {
		return nil
	}
	return n.policies
}

// Subscriptions returns the Subscriptions, sorted by name.
func (n *Namespace) Subscriptions() []*olm.Subscription {
	if n == nil {
		return nil
	}
	return n.subscriptions
}

// Groups returns the OperatorGroups.
func (n *Namespace) Groups() []*olm.OperatorGroup {
	if n == nil {
		return nil
	}
	return n.groups
}

// Plans returns the InstallPlans, sorted by name.
func (n *Namespace) Plans() []*olm.InstallPlan {
	if n == nil {
		return nil
	}
	return n.plans
}

// Governing returns the policies of a package, sorted by namespace and name, and then those of every package.
func (n *Namespace) Governing(pkg string) []*operatorpolicy.Policy {
	if n == nil || pkg == "" {
		return nil
	}
	if len(n.unnamed) == 0 {
		return n.byPackage[pkg]
	}
	return slices.Concat(n.byPackage[pkg], n.unnamed)
}

// Governed reports whether any policy governs a package in this namespace.
func (n *Namespace) Governed() bool { return n != nil && len(n.policies) > 0 }

// Enforcing returns the policies that may refuse writes in this namespace.
func (n *Namespace) Enforcing() []*operatorpolicy.Policy {
	if n == nil {
		return nil
	}
	return n.enforced
}

// InstalledOf returns the installed ClusterServiceVersion of a package, excluding one that is about to be written, or
// "".
func (n *Namespace) InstalledOf(pkg, except string) string {
	if n == nil {
		return ""
	}
	for _, c := range n.installed {
		if c.Package == pkg && c.Name != except {
			return c.Name
		}
	}
	return ""
}

// NotUpgradeable returns an installed ClusterServiceVersion of a package that must not be replaced now, excluding one
// that is about to be written; nil if there is none.
func (n *Namespace) NotUpgradeable(pkg, except string) *Installed {
	if n == nil || pkg == "" {
		return nil
	}
	for i := range n.installed {
		if c := &n.installed[i]; c.NotUpgradeable != "" && c.Package == pkg && c.Name != except {
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
func (n *Namespace) Subscribers(pkg string) []*olm.Subscription {
	if n == nil {
		return nil
	}
	var found []*olm.Subscription
	for _, s := range n.subscriptions {
		if s.Spec.Package == pkg {
			found = append(found, s)
		}
	}
	return found
}

// Claimed returns the package of the Subscription that has, or moves to, a ClusterServiceVersion. If Subscriptions to
// different packages name the same one, it is disputed.
func (n *Namespace) Claimed(csv string) (pkg string, disputed bool) {
	if n == nil {
		return "", false
	}
	for _, s := range n.subscriptions {
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
	contents := NamespaceContents{Policies: []*operatorpolicy.Policy{p}}
	if n == nil {
		return NewNamespace(p.TargetNamespace, contents)
	}
	for _, other := range n.policies {
		switch {
		case other.Key() != p.Key():
			contents.Policies = append(contents.Policies, other)
		case other.Waits != "": // whatever the annotations are that it is written with
			p.Pending, p.Waits = other.Pending, other.Waits
		}
	}
	contents.Subscriptions, contents.Plans, contents.CSVs, contents.Groups = n.subscriptions, n.plans, n.installed,
		n.groups
	contents.Stored = n.csvs
	contents.Exists, contents.Deleting, contents.Labels, contents.Constraints = n.Exists(), n.deleting, n.Labels(),
		n.constraints
	contents.UID, contents.Record, contents.Facts = n.uid, n.record, n.facts
	return NewNamespace(n.name, contents).WithReadings(n.readings)
}

// scope returns where operators here get the rights that their permissions ask for.
func (n *Namespace) scope() olm.Scope {
	if n == nil {
		return olm.ScopeUnknown
	}
	return olm.ScopeOf(n.groups)
}

// Operators returns the packages that are installed here or subscribed to, sorted. It contains "" if something is
// installed of a package that is not known.
func (n *Namespace) Operators() []string {
	if n == nil {
		return nil
	}
	packages := make([]string, 0, len(n.Installed())+len(n.Subscriptions()))
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
	for _, p := range n.Policies() {
		if p.Incomplete {
			return false
		}
	}
	return n.Constraints().Empty() || n.Facts().Version != "" && n.Exists()
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
