package rules

import (
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// One function for each carrier of bundles returns what it brings: a plan, a step of a plan that is written, a
// ClusterServiceVersion that is written past OLM, and one that is installed.

// bundlesOf returns the ClusterServiceVersions of a plan: those that spec.clusterServiceVersionNames lists, and those
// that only a step or a bundle lookup names, so that none escapes judging. It returns none if the plan is too large to
// be judged.
func bundlesOf(plan *olm.InstallPlan, ns *state.Namespace) []Bundle {
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
			csvs = append(csvs, Bundle{name: name, plan: plan})
		}
		return &csvs[i]
	}
	var granted []int
	for _, name := range plan.Spec.CSVNames {
		at(name)
	}
	for i := range plan.Status.BundleLookups {
		l := &plan.Status.BundleLookups[i]
		c := at(l.Identifier)
		c.from(l.Catalog)
		c.images = c.images || c.image != "" && c.image != l.Path
		c.image = l.Path
		c.describe(l.Properties)
	}
	for i := range plan.Status.Steps {
		r := &plan.Status.Steps[i].Resource
		if r.IsRBAC() {
			granted = append(granted, i)
		}
		if r.Kind != olm.KindClusterServiceVersion {
			continue
		}
		c := at(r.Name)
		c.from(olm.Catalog{Namespace: r.CatalogNamespace, Name: r.CatalogName})
		if r.Manifest.Unreadable {
			c.unknown = "its manifest in the plan cannot be read"
		}
		c.describe(r.Manifest.Properties)
		c.authored, c.spec = r.Manifest.AuthorProperties, r.Manifest.Spec
		if c.step == nil || !c.step.Inline() {
			c.step = r
		}
	}
	for _, i := range granted {
		csvs = grantTo(csvs, &plan.Status.Steps[i])
	}
	for i := range csvs {
		csvs[i].inline = csvs[i].spec != nil
		csvs[i].attribute(ns)
	}
	return csvs
}

// grantTo adds the grants of a step to the ClusterServiceVersion that it belongs to, or to all if the plan has none of
// that name.
func grantTo(csvs []Bundle, step *olm.Step) []Bundle {
	g := step.Resource.Grants()
	if i := slices.IndexFunc(csvs, func(c Bundle) bool { return c.name == step.Resolving }); i >= 0 {
		csvs[i].grant(g)
		return csvs
	}
	for i := range csvs {
		csvs[i].grant(g)
	}
	return csvs
}

// grant adds an RBAC object; nil stands for a reference to one.
func (c *Bundle) grant(g *olm.Grants) {
	if g == nil {
		c.referring = true
		return
	}
	c.grants = append(c.grants, g)
}

// PreparePlan parses the properties of the bundles of a plan and compiles the constraints that they bring along, so
// that judging does not have to, and replaces the specs in its manifests by their digests.
func PreparePlan(p *olm.InstallPlan) {
	for _, b := range p.ParseBundles() {
		constraint.Prepare(b.Properties)
	}
	p.KeepDigests()
}

// stepOf returns the ClusterServiceVersion as a plan contains it; ok is false if the plan does not.
func (in *CSVInput) stepOf(plan *olm.InstallPlan) (step Bundle, ok bool) {
	csvs := bundlesOf(plan, in.Namespace)
	i := slices.IndexFunc(csvs, func(c Bundle) bool { return c.name == in.New.Metadata.Name })
	if i < 0 {
		return Bundle{}, false
	}
	step = csvs[i]
	step.exact = step.inline && step.spec.ContentsDigest() == in.New.Spec.ContentsDigest() &&
		plan.StepProperties(step.name) == in.New.Metadata.Annotations.Properties
	step.spec = &in.New.Spec
	step.attribute(in.Namespace) // of a bundle by reference the plan did not have spec.release
	if in.ByOLM && !step.described {
		own := in.described(in.New) // a plan without properties: OLM writes the bundle's properties into the object
		own.catalogs, own.plan, own.bypassesOLM, own.planGone = step.catalogs, plan, false, false
		own.image, own.images, own.step = step.image, step.images, step.step
		own.grants, own.referring, own.inline, own.exact = step.grants, step.referring, step.inline, step.exact
		step = *own
	}
	if !in.ByOLM {
		if step.inline && !step.exact {
			return Bundle{}, false
		}
		// its own properties are judged too, and compared with those of the plan
		step.describe(in.New.Metadata.Annotations.Properties)
	}
	return step, true
}

// described returns a ClusterServiceVersion as described by its own contents and, if it is installed, by its
// Subscription.
func (in *CSVInput) described(csv *olm.CSV) *Bundle {
	c := &Bundle{name: csv.Metadata.Name, spec: &csv.Spec, bypassesOLM: in.Old == nil,
		planGone: in.Old == nil && in.ByOLM}
	c.describe(csv.Metadata.Annotations.Properties)
	c.attribute(in.Namespace)
	for _, installed := range in.Namespace.Installed() {
		if in.Old != nil && installed.CSV == c.name {
			c.from(installed.Catalog)
		}
	}
	return c
}

// asPlanned returns an installed operator with what an approved plan has of its bundle image.
func asPlanned(n *state.Namespace, installed *state.Installed) *Bundle {
	c := &Bundle{name: installed.CSV, pkg: installed.Package, version: installed.Version, stated: installed.Stated,
		properties: installed.Properties,
		described:  installed.Described, spec: installed.Spec}
	c.from(installed.Catalog)
	for _, plan := range n.Plans() {
		if !plan.Spec.Approved || !plan.Brings(c.name) || !n.NeedsDigest(c.pkg, c.name) {
			continue // only a digest in spec.versions, or in an exception, needs the image
		}
		csvs := bundlesOf(plan, n)
		if i := slices.IndexFunc(csvs, func(other Bundle) bool { return other.name == c.name }); i >= 0 {
			c.image, c.images, c.step = csvs[i].image, csvs[i].images, csvs[i].step
		}
	}
	c.attribute(n)
	return c
}
