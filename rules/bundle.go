package rules

import (
	"bytes"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleUnknown is on missing information about a bundle.
const RuleBundleUnknown verdict.RuleID = "bundle/unknown"

var bundleUnknown = verdict.Rule{ID: RuleBundleUnknown, Outcomes: verdict.Holds, Override: true, Backstop: true,
	Summary: "the package of a ClusterServiceVersion is not known, or sources disagree about it or about its release"}

// Bundle is one ClusterServiceVersion as policies and Constraints judge it, whatever brings it: a plan (bundlesOf), a
// step of a running plan (stepOf), a write past OLM (described), or nothing any more, since it is installed
// (asPlanned).
type Bundle struct {
	name string
	// plan brings it; nil if no plan does.
	plan *olm.InstallPlan
	// pkg is the package, or "" with unknown saying why it is not known.
	pkg     string
	unknown string
	// ambiguous is set if that is because it states two releases, or one that cannot be read.
	ambiguous bool
	version   string
	// stated is the release in its properties. release is that, or else the one in its spec, and tells bundles of one
	// version apart; "" if there is none.
	stated, release string
	// catalogs are all sources that the plan names; normally one.
	catalogs []olm.Catalog
	// image is the path of the bundle image, and images is set if the plan names several for it. step writes it, and
	// may contain it. What comes in the plan itself has no image.
	image    string
	images   bool
	step     *olm.StepResource
	provides []olm.Capability
	requires []olm.Capability
	// properties are those of the bundle; described is false if the plan does not have them. They are disputed if two
	// places in the plan have different ones.
	properties []olm.Property
	described  bool
	disputed   bool
	// authored is annotation olm.properties, spec that of the ClusterServiceVersion; nil if the plan does not have the
	// manifest, as for bundles by image.
	authored string
	spec     *olm.CSVSpec
	// grants are the RBAC objects of the plan that belong to it. referring is set if the plan contains a reference in
	// place of one.
	grants    []*olm.Grants
	referring bool
	// bypassesOLM is set if no plan contains it, so that it comes from no catalog.
	bypassesOLM bool
	// planGone is set if it does so because its plan was deleted while OLM runs it: the plan alone said which catalog
	// it comes from.
	planGone bool
	// inline is set if the plan contains the manifest, exact if what is written as a step of the plan equals it.
	inline, exact bool
	// stored is set if that step was written before, storedAt when; zero if that is not known.
	stored   bool
	storedAt time.Time
}

// recordUnknown holds a bundle whose package is not known, where policies govern any; held is what is held.
func (c *Bundle) recordUnknown(ns *state.Namespace, held, accepted string, v *verdict.Verdict) bool {
	if c.unknown == "" || !ns.Governed() {
		return false
	}
	of := "package"
	if c.ambiguous {
		of = "release"
	}
	state.RecordForNamespace(v, ns, RuleBundleUnknown, verdict.Finding{Decision: verdict.Hold, Accepted: accepted,
		What: "the " + of + " of " + text.Name(c.name) + " is not known (" + c.unknown + ") and " + held + " is held"})
	return true
}

// awaited returns what would make a bundle of a plan known.
func (c *Bundle) awaited() string {
	if c.ambiguous {
		return "allowed is a bundle whose property olm.package and spec.release say the same release"
	}
	return "waits until the bundle's properties or the status of a Subscription tell the package"
}

// compareRelease adds the release in the spec of a bundle, and makes it unknown if its properties have another one.
func (c *Bundle) compareRelease(spec *olm.CSVSpec) {
	release, problem := spec.Release(c.stated)
	if c.release = release; problem != "" {
		c.unknown, c.ambiguous, c.pkg = problem, true, ""
	}
}

// byReference reports whether a plan contains a reference in place of the ClusterServiceVersion or of rights that come
// along.
func (c *Bundle) byReference() bool { return c.plan != nil && (c.spec == nil || c.referring) }

// from records a catalog that the plan names.
func (c *Bundle) from(catalog olm.Catalog) {
	if catalog != (olm.Catalog{}) && !slices.Contains(c.catalogs, catalog) {
		c.catalogs = append(c.catalogs, catalog)
	}
}

// digest returns the digest of the bundle image that it comes from, or why there is none, as a clause. A mirror has
// another repository and the same digest, so that the repository does not count.
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
	case b.Package != "" && c.pkg != "" && (c.pkg != b.Package || c.version != b.Version || c.stated != b.Release):
		c.unknown = "the plan says both package " + text.Name(c.pkg) + " " +
			olm.VersionText(text.Name(c.version), c.stated) + " and package " + text.Name(b.Package) + " " +
			olm.VersionText(text.Name(b.Version), b.Release)
		return
	}
	if b.Package != "" {
		c.pkg, c.version, c.stated, c.provides, c.requires = b.Package, b.Version, b.Release, b.Provides, b.Requires
	}
	c.disputed = c.disputed || c.described && !slices.EqualFunc(c.properties, b.Properties, sameProperty)
	c.properties, c.described = b.Properties, true
}

func sameProperty(a, b olm.Property) bool {
	return a.Type == b.Type && bytes.Equal(a.Raw, b.Raw)
}

// attribute determines the package: by the bundle's olm.package property, else by the Subscription that moves to this
// CSV. The name is never parsed (R-AP-5). A bundle that states two releases is not one of which anything is known.
func (c *Bundle) attribute(ns *state.Namespace) {
	claimed, disputed := ns.Claimed(c.name)
	switch {
	case c.unknown != "":
	case disputed:
		c.unknown = "Subscriptions to different packages name it"
	case c.pkg == "" && claimed == "":
		c.unknown = "neither bundle properties nor a Subscription tell"
	case c.pkg == "":
		c.pkg = claimed
	case claimed != "" && claimed != c.pkg:
		c.unknown = "its bundle says package " + text.Name(c.pkg) + " and a Subscription says package " +
			text.Name(claimed)
	}
	if c.unknown != "" {
		c.pkg = ""
	}
	c.compareRelease(c.spec)
}
