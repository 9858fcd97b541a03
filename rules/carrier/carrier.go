// Package carrier extracts bundles from what brings them: a plan, a step of a plan that is written, a
// ClusterServiceVersion that is written past OLM, and one that is installed. It has no rule.
package carrier

import (
	"cmp"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
)

// OfPlan returns the ClusterServiceVersions of a plan: those that spec.clusterServiceVersionNames lists, and those
// that only a step or a bundle lookup names, so that none escapes judging. It returns none if the plan is too large to
// be judged.
func OfPlan(plan *olm.InstallPlan, ns *state.Namespace) []Bundle {
	if plan.Oversized() {
		return nil
	}
	csvs := make([]Bundle, 0, len(plan.Spec.CSVNames))
	index := make(map[string]int, len(plan.Spec.CSVNames))
	at := func(name string) *Bundle {
		i, ok := index[name]
		if !ok {
			i = len(csvs)
			index[name] = i
			csvs = append(csvs, Bundle{Bundle: olm.Bundle{Name: name}, Plan: plan})
		}
		return &csvs[i]
	}
	for _, name := range plan.Spec.CSVNames {
		at(name)
	}
	for i := range plan.Status.BundleLookups {
		l := &plan.Status.BundleLookups[i]
		c := at(l.Identifier)
		c.From(l.Catalog)
		c.images = c.images || c.image != "" && c.image != l.Path
		c.image, c.replaces = l.Path, append(c.replaces, l.Replaces)
		c.describe(l.Properties)
	}
	for i := range plan.Status.Steps {
		r := &plan.Status.Steps[i].Resource
		if r.Kind != olm.KindClusterServiceVersion {
			continue
		}
		c := at(r.Name)
		c.From(olm.Catalog{Namespace: r.CatalogNamespace, Name: r.CatalogName})
		if r.Manifest.Unreadable {
			c.Unknown = "its manifest in the plan cannot be read"
		}
		c.describe(r.Manifest.Properties)
		c.authored, c.Spec = r.Manifest.AuthorProperties, r.Manifest.Spec
		if c.step == nil || !c.step.Inline() {
			c.step = r
		}
	}
	for i := range plan.Status.Steps {
		if step := &plan.Status.Steps[i]; step.Resource.IsRBAC() {
			grant(csvs, step)
		}
	}
	for i := range csvs {
		csvs[i].Inline = csvs[i].Spec != nil
		csvs[i].attribute(ns)
	}
	return csvs
}

// grant adds the RBAC object of a step, or that it is a reference to one, to the ClusterServiceVersion that it belongs to,
// or to all if the plan has none of that name.
func grant(csvs []Bundle, step *olm.Step) {
	g := step.Resource.Grants()
	one := slices.IndexFunc(csvs, func(c Bundle) bool { return c.Name == step.Resolving })
	for i := range csvs {
		switch {
		case one >= 0 && i != one:
		case g == nil:
			csvs[i].Referring = true
		default:
			csvs[i].Grants = append(csvs[i].Grants, g)
		}
	}
}

// PreparePlan parses the properties of the bundles of a plan and compiles the constraints that they bring along, so
// that judging does not have to, and replaces the specs in its manifests by their digests.
func PreparePlan(p *olm.InstallPlan) {
	for _, b := range p.ParseBundles() {
		constraint.Prepare(b.Properties)
	}
	for i := range p.Status.Steps {
		p.Status.Steps[i].Resource.Manifest.Spec.KeepDigest()
	}
}

// OfStep returns a ClusterServiceVersion that is written, as a plan contains it; ok is false if the plan does not.
// byOLM is set if OLM's own identity writes it.
func OfStep(csv *olm.CSV, plan *olm.InstallPlan, ns *state.Namespace, byOLM bool) (step Bundle, ok bool) {
	csvs := OfPlan(plan, ns)
	i := slices.IndexFunc(csvs, func(c Bundle) bool { return c.Name == csv.Metadata.Name })
	if i < 0 {
		return Bundle{}, false
	}
	step = csvs[i]
	step.Exact = step.Inline && step.Spec.ContentsDigest() == csv.Spec.ContentsDigest() &&
		step.step.Manifest.Properties == csv.Metadata.Annotations.Properties
	step.Spec = &csv.Spec
	step.attribute(ns) // of a bundle by reference the plan did not have spec.release
	if byOLM && !step.Described {
		// a plan without properties: OLM writes the bundle's properties into the object
		step.Unknown, step.Ambiguous, step.Package = "", false, ""
		step.describe(csv.Metadata.Annotations.Properties)
		step.attribute(ns)
	}
	if !byOLM {
		if step.Inline && !step.Exact {
			return Bundle{}, false
		}
		// its own properties are judged too, and compared with those of the plan
		step.describe(csv.Metadata.Annotations.Properties)
	}
	return step, true
}

// OfCSV returns a ClusterServiceVersion that no plan brings, as described by its own contents and, if it is stored
// already, by its Subscription.
func OfCSV(csv *olm.CSV, ns *state.Namespace, stored bool) *Bundle {
	c := &Bundle{Bundle: olm.Bundle{Name: csv.Metadata.Name, Spec: &csv.Spec}, BypassesOLM: !stored}
	c.describe(csv.Metadata.Annotations.Properties)
	c.attribute(ns)
	for _, installed := range ns.Installed() {
		if stored && installed.Name == c.Name {
			c.From(installed.Catalog)
		}
	}
	return c
}

// OfInstalled returns an installed operator with what an approved plan has of its bundle image.
func OfInstalled(n *state.Namespace, installed *state.Installed) *Bundle {
	c := &Bundle{Bundle: installed.Bundle}
	c.From(installed.Catalog)
	for _, plan := range n.Plans() {
		if !plan.Spec.Approved || !plan.Brings(c.Name) || !n.NeedsDigest(c.Package, c.Name) {
			continue // only a digest in spec.versions, or in an exception, needs the image
		}
		csvs := OfPlan(plan, n)
		if i := slices.IndexFunc(csvs, func(other Bundle) bool { return other.Name == c.Name }); i >= 0 {
			c.image, c.images, c.step = csvs[i].image, csvs[i].images, csvs[i].step
		}
	}
	c.attribute(n)
	return c
}

// InstalledFrom returns the catalog from which a plan installed a ClusterServiceVersion; zero if that is not known.
func InstalledFrom(n *state.Namespace, csv string) olm.Catalog {
	for _, plan := range n.Plans() {
		if plan.Metadata.Name != n.PlanThatInstalled(csv) {
			continue
		}
		for _, c := range OfPlan(plan, n) {
			if c.Name == csv {
				return c.Catalog
			}
		}
	}
	return olm.Catalog{}
}

// maxDeprecation bounds a catalog's message, in bytes.
const maxDeprecation = 256

// CompareUnpacked compares the release of a ClusterServiceVersion that a plan refers to with the one that OLM unpacked,
// if that is known. Else it is compared when OLM writes the object.
func (c *Bundle) CompareUnpacked(ns *state.Namespace) {
	if c.Spec != nil {
		return
	}
	if unpacked, unknown := unpackedOf(ns, c); unknown == "" {
		c.compareRelease(unpacked.Spec)
	}
}

// ForConstraints returns a ClusterServiceVersion of a plan as Constraints see it.
func (c *Bundle) ForConstraints(ns *state.Namespace) *constraint.Bundle {
	b := &constraint.Bundle{Bundle: c.Bundle}
	if c.Package == "" {
		b.Unknown |= constraint.Package | constraint.Channel
	}
	if c.Version == "" {
		b.Unknown |= constraint.Version
	}
	if c.Unknown != "" || !c.Described || c.disputed {
		b.Unknown |= constraint.Properties | constraint.Release
		b.Properties, b.Stated = nil, ""
	}
	c.requests(b, ns)
	if c.Catalog == (olm.Catalog{}) {
		b.Unknown |= constraint.CatalogSource
	}
	deprecated, known := c.Deprecations(ns)
	if !known {
		b.Unknown |= constraint.Deprecation
	}
	for _, message := range []*string{&deprecated.Package, &deprecated.Channel, &deprecated.Version} {
		*message = text.Truncate(*message, maxDeprecation) // a long text makes every rule more expensive
	}
	b.Deprecated = deprecated
	c.changes(b, ns)
	state.SetConfig(b, ns)
	// A dependency of another operator follows no channel until it has a Subscription.
	for _, s := range ns.Subscribers(c.Package) {
		if s.Spec.Channel == "" || b.Channel != "" && b.Channel != s.Spec.Channel {
			b.Unknown |= constraint.Channel // the catalog's default, which the plan does not contain
		}
		b.Channel = s.Spec.Channel
	}
	return b
}

// requests sets what the contents of a ClusterServiceVersion of a plan request: those that the plan contains, and those
// that OLM unpacked.
func (c *Bundle) requests(b *constraint.Bundle, ns *state.Namespace) {
	if c.byReference() {
		unpacked, unknown := unpackedOf(ns, c)
		if unknown != "" {
			b.Unknown |= constraint.Contents
			b.Grants = nil
		} else {
			b.Spec, b.Grants = cmp.Or(c.Spec, unpacked.Spec), slices.Concat(c.Grants, unpacked.Grants)
		}
	}
	state.SetRequests(b, ns)
}

// Explain adds why the contents of a ClusterServiceVersion are not known to a finding that depends on them.
func (c *Bundle) Explain(f *constraint.Result, ns *state.Namespace) {
	if f.Outcome != constraint.Undecided || f.Attributes&constraint.InCSV == 0 || !c.byReference() {
		return
	}
	if _, unknown := unpackedOf(ns, c); unknown != "" {
		f.Why += " (" + unknown + ")"
	}
}

// changes sets what Constraints read of the change that a ClusterServiceVersion of a plan makes.
func (c *Bundle) changes(b *constraint.Bundle, ns *state.Namespace) {
	b.Unknown |= constraint.ChangeSet
	if c.Plan == nil || ns == nil {
		return
	}
	set, unknown := ChangeOf(ns, c.Plan, c)
	if unknown != "" {
		return
	}
	b.Unknown &^= constraint.ChangeSet
	b.Change = &constraint.Change{Digest: set.Digest(), From: set.From, Lists: map[string][]string{}}
	for _, d := range set.Differences {
		b.Change.Lists[string(d.Class)] = append(b.Change.Lists[string(d.Class)], d.Text)
		if d.Risk == change.Risky {
			b.Change.Lists["risky"] = append(b.Change.Lists["risky"], d.Text)
		}
	}
}

// Deprecations returns what the catalog deprecates of a ClusterServiceVersion of a plan; known is false if that is not
// known (yet). The conditions of Subscriptions do not tell: they are about what is installed.
func (c *Bundle) Deprecations(ns *state.Namespace) (d olm.Deprecations, known bool) {
	if ns == nil || c.Package == "" || c.Catalog == (olm.Catalog{}) {
		return d, false
	}
	return ns.PackageOf(c.Package, c.Catalog).Deprecations(c.Name, ns.Channels(c.Package))
}

// FirstSeen returns when the catalog of a ClusterServiceVersion first offered it, or why that is not known.
func (c *Bundle) FirstSeen(n *state.Namespace) (seen time.Time, unknown string) {
	if c.Catalog == (olm.Catalog{}) {
		return seen, "its catalog is not known, or sources disagree about it"
	}
	around, from := n.Facts(), c.Catalog
	// The record is of what images offered, of which a catalog that OLM connects to elsewhere need not offer any. It
	// counts while pods are replaced.
	source, exists := around.Catalogs[from]
	if !exists || source.ServedImage() != "" && around.Misconnected(from) == "" {
		if seen = around.Histories[from].FirstSeen(c.Package, c.Name); !seen.IsZero() {
			return seen, ""
		}
	}
	if _, unknown = around.RunningDigest(from); unknown != "" {
		return seen, unknown
	}
	return seen, "there is no record yet of when " + facts.CatalogName(from) + " first offered it"
}
