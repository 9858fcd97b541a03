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
func (c *Bundle) Explain(f *constraint.Finding, ns *state.Namespace) {
	if f.Outcome != constraint.Undecided || f.Attributes&constraint.InCSV == 0 || !c.byReference() {
		return
	}
	if _, unknown := unpackedOf(ns, c); unknown != "" {
		f.Why += " (" + unknown + ")"
	}
}

var _ constraint.Manifest = &olm.Demands{}

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
	if history, known := around.Histories[from]; known &&
		(!exists || source.ServedImage() != "" && around.Misconnected(from) == "") {
		if seen = history.FirstSeen(c.Package, c.Name); !seen.IsZero() {
			return seen, ""
		}
	}
	if _, unknown = around.RunningDigest(from); unknown != "" {
		return seen, unknown
	}
	return seen, "there is no record yet of when " + facts.CatalogName(from) + " first offered it"
}
