package carrier

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Bundle is one ClusterServiceVersion as policies and Constraints judge it, whatever brings it: a plan (OfPlan), a step
// of a running plan (OfStep), a write past OLM (OfCSV), or nothing any more, since it is installed (OfInstalled).
type Bundle struct {
	// Bundle has no Spec if the plan does not have the manifest, as for bundles by image. Its Catalog is set if the plan
	// names exactly one.
	olm.Bundle
	// Plan brings it; nil if no plan does.
	Plan *olm.InstallPlan
	// Unknown is why the Package is not known; then that is empty. Ambiguous is set if that is because it states two
	// releases, or one that cannot be read.
	Unknown   string
	Ambiguous bool
	// Catalogs are all sources that the plan names; normally one.
	Catalogs []olm.Catalog
	// image is the path of the bundle image, and images is set if the plan names several for it. step writes it, and
	// may contain it. What comes in the plan itself has no image.
	image  string
	images bool
	step   *olm.StepResource
	// replaces are what entries of the plan replace.
	replaces []string
	// disputed is set if two places in the plan have different properties.
	disputed bool
	// authored is annotation olm.properties.
	authored string
	// Referring is set if the plan contains a reference in place of an RBAC object.
	Referring bool
	// BypassesOLM is set if no plan contains it, so that it comes from no catalog.
	BypassesOLM bool
	// Inline is set if the plan contains the manifest, Exact if what is written as a step of the plan equals it.
	Inline, Exact bool
	// Stored is set if that step was written before, StoredAt when; zero if that is not known.
	Stored   bool
	StoredAt time.Time
}

// compareRelease adds the release in the spec of a bundle, and makes it unknown if its properties have another one.
func (c *Bundle) compareRelease(spec *olm.CSVSpec) {
	release, problem := spec.Release(c.Stated)
	if c.Release = release; problem != "" {
		c.Unknown, c.Ambiguous, c.Package = problem, true, ""
	}
}

// Replaces returns the ClusterServiceVersions that OLM deletes once this one is installed, by the plan's entries and by
// its spec. The caller may change the slice.
func (c *Bundle) Replaces() []string {
	names := slices.Clone(c.replaces)
	if c.Spec != nil {
		names = append(names, c.Spec.Replaces)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// byReference reports whether a plan contains a reference in place of the ClusterServiceVersion or of rights that come
// along.
func (c *Bundle) byReference() bool { return c.Plan != nil && (c.Spec == nil || c.Referring) }

// From records a catalog that the plan names.
func (c *Bundle) From(catalog olm.Catalog) {
	if catalog != (olm.Catalog{}) && !slices.Contains(c.Catalogs, catalog) {
		c.Catalogs = append(c.Catalogs, catalog)
		if c.Catalog = catalog; len(c.Catalogs) > 1 {
			c.Catalog = olm.Catalog{}
		}
	}
}

// Digest returns the digest of the bundle image that it comes from, or why there is none, as a clause. A mirror has
// another repository and the same digest, so that the repository does not count.
func (c *Bundle) Digest() (digest, unknown string) {
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
	if properties == "" || c.Unknown != "" {
		return
	}
	b, err := c.Plan.Bundle(properties)
	switch {
	case err != nil:
		c.Unknown = "its bundle properties cannot be read: " + err.Error()
		return
	case b.Package != "" && c.Package != "" &&
		(c.Package != b.Package || c.Version != b.Version || c.Stated != b.Stated):
		c.Unknown = "the plan names both package " + text.Name(c.Package) + " " + olm.VersionText(text.Name(c.Version),
			c.Stated) + " and package " + text.Name(b.Package) + " " + olm.VersionText(text.Name(b.Version), b.Stated)
		return
	}
	if b.Package != "" {
		c.Package, c.Version, c.Stated, c.Provides, c.Requires = b.Package, b.Version, b.Stated, b.Provides, b.Requires
	}
	c.disputed = c.disputed || c.Described && !slices.EqualFunc(c.Properties, b.Properties, SameProperty)
	c.Properties, c.Described = b.Properties, true
}

// SameProperty reports whether two properties are the same, byte by byte.
func SameProperty(a, b olm.Property) bool {
	return a.Type == b.Type && bytes.Equal(a.Raw, b.Raw)
}

// attribute determines the package: by the bundle's olm.package property, else by the Subscription that moves to this
// CSV, unless a policy for another package is enforced, since users may write statuses. The name is never parsed. A
// bundle that states two releases is not one of which anything is known.
func (c *Bundle) attribute(ns *state.Namespace) {
	claimed, disputed := ns.Claimed(c.Name)
	switch {
	case c.Unknown != "":
	case disputed:
		c.Unknown = "Subscriptions to different packages name it"
	case c.Package == "" && claimed == "":
		c.Unknown = "neither its bundle properties nor a Subscription name it"
	case c.Package == "" && slices.ContainsFunc(ns.Enforcing(),
		func(p *operatorpolicy.Policy) bool { return !p.Governs(claimed) }):
		c.Unknown = "only the status of a Subscription names it, beside a policy for another package"
	case c.Package == "":
		c.Package = claimed
	case claimed != "" && claimed != c.Package:
		c.Unknown = "its bundle names package " + text.Name(c.Package) + " and a Subscription names package " +
			text.Name(claimed)
	}
	if c.Unknown != "" {
		c.Package = ""
	}
	c.compareRelease(c.Spec)
}

// AllProperties returns the properties of the bundle and those that its author wrote into the ClusterServiceVersion.
func (c *Bundle) AllProperties() []olm.Property {
	if strings.TrimSpace(c.authored) == "" {
		return c.Properties
	}
	written, err := olm.ParseProperties(`{"properties":` + c.authored + `}`)
	if err != nil {
		return c.Properties // OLM's own check of catalogs warns of it
	}
	all := slices.Clone(c.Properties)
	for _, p := range written {
		if !slices.ContainsFunc(all, func(o olm.Property) bool { return SameProperty(o, p) }) {
			all = append(all, p)
		}
	}
	return all
}

// AsUnpacked reports whether what OLM writes, if that is known, is what it had unpacked for the plan, by which the
// approval was judged.
func (c *Bundle) AsUnpacked(ns *state.Namespace) bool {
	unpacked, unknown := unpackedOf(ns, c)
	return unknown == "" && (c.Spec == nil || unpacked.Spec.ContentsDigest() == c.Spec.ContentsDigest())
}

// AlongRequired traverses from some CSVs to those that they require, and on from each for which enter returns true.
// That must be at most once per CSV, so that cyclic requirements end the traversal instead of the process.
func AlongRequired(csvs []Bundle, queue []int, enter func(i, from int) bool) {
	var offered map[olm.Capability][]int // most plans have one operator, which requires none
	for ; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		if len(csvs[from].Requires) == 0 {
			continue
		}
		if offered == nil {
			offered = offersOf(csvs)
		}
		asked := map[olm.Capability]bool{}
		for _, required := range csvs[from].Requires {
			if asked[required] {
				continue
			}
			asked[required] = true
			for _, i := range offered[required] {
				if enter(i, from) {
					queue = append(queue, i)
				}
			}
		}
	}
}

// offersOf indexes CSVs by what they provide, each capability once per CSV: bundles may repeat theirs thousands of
// times.
func offersOf(csvs []Bundle) map[olm.Capability][]int {
	offered := map[olm.Capability][]int{}
	for i := range csvs {
		for _, c := range append(csvs[i].Provides[:len(csvs[i].Provides):len(csvs[i].Provides)],
			olm.Capability{Package: csvs[i].Package}) {
			if by := offered[c]; len(by) == 0 || by[len(by)-1] != i {
				offered[c] = append(by, i)
			}
		}
	}
	delete(offered, olm.Capability{}) // an empty capability provides nothing
	return offered
}

// Read returns a namespace with what is read for its unfinished plans: their packages, if a policy or a Constraint judges
// by deprecations, and what they change, if one judges by that. A source that is nil knows nothing. Sources may need
// requests, and may be slow or absent, so that they are read here and not while a request is judged.
func Read(n *state.Namespace, packages state.Packages, changes state.Changes) *state.Namespace {
	if len(n.Plans()) == 0 {
		return n
	}
	set, reviews := n.Constraints(), (*operatorpolicy.Policy).ReviewsChanges
	holds := func(p *operatorpolicy.Policy) bool { return p.HoldDeprecated }
	anyDeprecated, anyChange := set.Reads(constraint.Deprecation), set.Reads(constraint.ChangeSet)
	unpacked := set.Reads(constraint.InCSV) && set.Depends(constraint.InCSV, n.ForConstraints())
	readsPackages := packages != nil && (anyDeprecated || slices.ContainsFunc(n.Policies(), holds))
	readsChanges := changes != nil && (anyChange || unpacked || slices.ContainsFunc(n.Policies(), reviews))
	if !readsPackages && !readsChanges {
		return n
	}
	r := state.Readings{Packages: map[state.PackageKey]*catalog.Package{}, Changes: map[state.PlanKey]*state.PlanChanges{}}
	for _, plan := range n.Plans() {
		if plan.Finished() {
			continue
		}
		compared, csvs := false, OfPlan(plan, n)
		for i := range csvs {
			c := &csvs[i]
			if readsPackages && c.Catalog != (olm.Catalog{}) && c.Package != "" &&
				(anyDeprecated || slices.ContainsFunc(n.Governing(c.Package), holds)) {
				r.Packages[state.PackageKey{Name: c.Package, Source: c.Catalog}] = packages(c.Package, c.Name, c.Catalog)
			}
			compared = compared || anyChange && c.Package != "" || unpacked && c.byReference() ||
				slices.ContainsFunc(n.Governing(c.Package), reviews)
		}
		if readsChanges && compared {
			r.Changes[state.KeyOf(plan)] = changes(plan, replacements(n, csvs, unpacked))
		}
	}
	return n.WithReadings(r)
}

// replacements returns what ClusterServiceVersions of a plan replace. Those of an unknown package replace nothing that
// is known; they are included if only their contents are needed.
func replacements(n *state.Namespace, csvs []Bundle, unknown bool) []state.Replacement {
	var replacements []state.Replacement
	for i := range csvs {
		if c := &csvs[i]; unknown || c.Package != "" {
			replacements = append(replacements, replacementBy(n, c))
		}
	}
	return replacements
}

// Replacements returns the ClusterServiceVersions of a plan, and what each replaces in the namespace. Those of an
// unknown package are missing.
func Replacements(n *state.Namespace, plan *olm.InstallPlan) []state.Replacement {
	return replacements(n, OfPlan(plan, n), false)
}

// replacementBy returns what a ClusterServiceVersion of a plan replaces here.
func replacementBy(n *state.Namespace, c *Bundle) state.Replacement {
	r := state.Replacement{CSV: c.Name, Package: c.Package, Version: c.Version, Release: c.Release, Catalog: c.Catalog}
	if c.Package != "" {
		r.From = n.InstalledOf(c.Package, c.Name)
	}
	if channels := n.Channels(c.Package); len(channels) == 1 {
		r.Channel = channels[0]
	}
	for i := range n.Installed() {
		if installed := &n.Installed()[i]; r.From != "" && installed.Name == r.From {
			r.FromVersion, r.FromRelease = installed.Version, installed.Release
			if installed.Spec != nil {
				r.FromDigest = installed.Spec.ContentsDigest()
			}
			r.FromPlan = n.PlanThatInstalled(r.From)
		}
	}
	return r
}

// ChangeOf returns what a ClusterServiceVersion of a plan changes, or why that is not known.
func ChangeOf(n *state.Namespace, plan *olm.InstallPlan, c *Bundle) (set *change.Set, unknown string) {
	known, unknown := n.ReadingOf(plan)
	if unknown != "" {
		return nil, unknown
	}
	set = known.ByCSV[c.Name]
	i := slices.IndexFunc(known.Replacements, func(r state.Replacement) bool { return r.CSV == c.Name })
	if set == nil || i < 0 || c.Package == "" {
		return nil, notRead
	}
	if set.Fault != "" {
		return nil, "its contents are not known: " + text.Truncate(text.Escape(set.Fault), maxFault)
	}
	now := replacementBy(n, c)
	if was := &known.Replacements[i]; set.From != now.From || was.From != now.From || was.FromDigest != now.FromDigest {
		return nil, "its contents were not compared with what is installed now"
	}
	if n.Recorded(now.From) != nil && len(n.Governing(c.Package)) > 0 && !n.InstalledAsRecorded(now.From) {
		return nil, "what is installed has not the contents that are recorded of " + text.Name(now.From)
	}
	if set.Digest() == "" {
		return nil, "its contents have no digest"
	}
	return set, ""
}

const notRead = "its contents are not among those that were read"

// unpackedOf returns what OLM unpacked of a ClusterServiceVersion that a plan refers to, or why that is not known.
func unpackedOf(n *state.Namespace, c *Bundle) (bundle *olm.Bundle, unknown string) {
	if c.Plan == nil {
		return nil, "no InstallPlan installs it"
	}
	known, unknown := n.ReadingOf(c.Plan)
	if unknown != "" {
		return nil, unknown
	}
	bundle = known.Bundles[c.Name]
	switch {
	case bundle == nil:
		return nil, notRead
	case bundle.Fault != "":
		return nil, text.Truncate(text.Escape(bundle.Fault), maxFault)
	}
	return bundle, ""
}

// maxFault bounds why contents cannot be read, in bytes.
const maxFault = 512
