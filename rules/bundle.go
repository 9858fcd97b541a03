package rules

import (
	"bytes"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
)

// RuleBundleUnknown is on missing information about a bundle.
const RuleBundleUnknown RuleID = "bundle/unknown"

var bundleUnknown = Rule{ID: RuleBundleUnknown, Outcomes: hold, Override: true, Backstop: true,
	Summary: "the package of a ClusterServiceVersion is not known, or sources disagree about it"}

// Bundle is one ClusterServiceVersion as policies and Constraints judge it, whatever brings it: a plan (bundlesOf), a step of a running plan
// (stepOf), a write past OLM (described), or nothing any more, since it is installed (asPlanned).
type Bundle struct {
	name string
	// plan brings it; nil if no plan does.
	plan *olm.InstallPlan
	// pkg is the package, or "" with unknown saying why it is not known.
	pkg     string
	unknown string
	version string
	// catalogs are all sources that the plan names; normally one.
	catalogs []olm.Catalog
	// image is the path of the bundle image, and images is set if the plan names several for it. step writes it, and may contain it. What
	// comes in the plan itself has no image.
	image    string
	images   bool
	step     *olm.StepResource
	provides []olm.Capability
	requires []olm.Capability
	// properties are those of the bundle; described is false if the plan does not have them. They are disputed if two places in the plan
	// have different ones.
	properties []olm.Property
	described  bool
	disputed   bool
	// authored is annotation olm.properties, spec that of the ClusterServiceVersion; nil if the plan does not have the manifest, as for
	// bundles by image.
	authored string
	spec     *olm.CSVSpec
	// grants are the RBAC objects of the plan that belong to it. referring is set if the plan contains a reference in place of one.
	grants    []*olm.Grants
	referring bool
	// bypassesOLM is set if no plan contains it, so that it comes from no catalog.
	bypassesOLM bool
	// planGone is set if it does so because its plan was deleted while OLM runs it: the plan alone said which catalog it comes from.
	planGone bool
	// inline is set if the plan contains the manifest, exact if what is written as a step of the plan equals it.
	inline, exact bool
	// stored is set if that step was written before.
	stored bool
}

// bundlesOf returns the ClusterServiceVersions of a plan: those that spec.clusterServiceVersionNames lists, and those that only a step or a
// bundle lookup names, so that none escapes judging. It returns none if the plan is too large to be judged.
func bundlesOf(plan *olm.InstallPlan, ns *Namespace) []Bundle {
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

// grantTo adds the grants of a step to the ClusterServiceVersion that it belongs to, or to all if the plan has none of that name.
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

// byReference reports whether a plan contains a reference in place of the ClusterServiceVersion or of rights that come along.
func (c *Bundle) byReference() bool { return c.plan != nil && (c.spec == nil || c.referring) }

// PreparePlan parses the properties of the bundles of a plan and compiles the constraints that they bring along, so that judging does not
// have to, and replaces the specs in its manifests by their digests.
func PreparePlan(p *olm.InstallPlan) {
	for _, b := range p.ParseBundles() {
		constraint.Prepare(b.Properties)
	}
	p.KeepDigests()
}

// from records a catalog that the plan names.
func (c *Bundle) from(catalog olm.Catalog) {
	if catalog != (olm.Catalog{}) && !slices.Contains(c.catalogs, catalog) {
		c.catalogs = append(c.catalogs, catalog)
	}
}

// digest returns the digest of the bundle image that it comes from, or why there is none, as a clause. A mirror has another repository and
// the same digest, so that the repository does not count.
func (c *Bundle) digest() (digest, unknown string) {
	switch {
	case c.images:
		return "", "for which the plan names several bundle images"
	case c.image == "" || c.step != nil && c.step.Inline():
		return "", "which does not come from a bundle image"
	}
	if digest = olm.ImageDigest(c.image); digest == "" {
		return "", "from bundle image " + text.Quote(c.image) + " without a digest"
	}
	return digest, ""
}

// describe reads bundle properties. If two places disagree, the CSV is unknown.
func (c *Bundle) describe(properties string) {
	if properties == "" || c.unknown != "" {
		return
	}
	b, err := c.plan.Bundle(properties)
	switch {
	case err != nil:
		c.unknown = "its bundle properties cannot be read: " + err.Error()
		return
	case b.Package != "" && c.pkg != "" && (c.pkg != b.Package || c.version != b.Version):
		c.unknown = "the plan says both package " + text.Name(c.pkg) + " " + text.Name(c.version) + " and package " + text.Name(b.Package) + " " + text.Name(b.Version)
		return
	}
	if b.Package != "" {
		c.pkg, c.version, c.provides, c.requires = b.Package, b.Version, b.Provides, b.Requires
	}
	c.disputed = c.disputed || c.described && !slices.EqualFunc(c.properties, b.Properties, sameProperty)
	c.properties, c.described = b.Properties, true
}

func sameProperty(a, b olm.Property) bool {
	return a.Type == b.Type && bytes.Equal(a.Raw, b.Raw)
}

// attribute determines the package: by the bundle's olm.package property, else by the Subscription that moves to this CSV. The name is
// never parsed (R-AP-5).
func (c *Bundle) attribute(ns *Namespace) {
	claimed, disputed := ns.claimed(c.name)
	switch {
	case c.unknown != "":
	case disputed:
		c.unknown = "Subscriptions to different packages name it"
	case c.pkg == "" && claimed == "":
		c.unknown = "neither bundle properties nor a Subscription tell"
	case c.pkg == "":
		c.pkg = claimed
	case claimed != "" && claimed != c.pkg:
		c.unknown = "its bundle says package " + text.Name(c.pkg) + " and a Subscription says package " + text.Name(claimed)
	}
	if c.unknown != "" {
		c.pkg = ""
	}
}
