package bundle

import (
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// heldCatalogDigest holds what a catalog offers whose image is not accepted: behind a tag it changes without a change
// of the CatalogSource.
func heldCatalogDigest(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if !p.CatalogImages.HoldsImage() {
		return verdict.Finding{}
	}
	digest, held := unacceptedImage(in, p)
	if digest == "" {
		return held
	}
	return verdict.OnHold(text.Name(in.c.Name), facts.CatalogName(in.c.Catalog)+" runs image "+digest+"; add that to "+
		acceptedImages+" once it is reviewed, "+p.CatalogImages.AcceptedText()).Accepting(digest)
}

// heldCatalogJump holds what a catalog offers after an image that changed more than usual.
func heldCatalogJump(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if !p.CatalogImages.HoldsJump() {
		return verdict.Finding{}
	}
	digest, held := unacceptedImage(in, p)
	if digest == "" {
		return held
	}
	csv, name := text.Name(in.c.Name), facts.CatalogName(in.c.Catalog)
	history := in.Namespace.Facts().Histories[in.c.Catalog]
	review := " add " + digest + ", which it runs, to " + acceptedImages + " once it is reviewed"
	if history.Newest() != digest {
		return verdict.OnHold(csv, "it is not known yet what the image that "+name+
			" runs changes; waits until its packages are compared, or"+review).Accepting(digest)
	}
	if jump := history.Jump(p.CatalogImages.MaxChanged(), p.CatalogImages.Accepted); jump != "" {
		return verdict.OnHold(csv, name+" has jumped: "+text.Escape(jump)+";"+review).Accepting(digest)
	}
	return verdict.Finding{}
}

// acceptedImages is the field of a policy that accepts images of catalogs.
const acceptedImages = "spec.catalog.accepted"

// unacceptedImage returns the digest of the image that the catalog of a ClusterServiceVersion runs; "" if it is accepted,
// or not known, for which the bundle is held.
func unacceptedImage(in planned, p *operatorpolicy.Policy) (digest string, held verdict.Finding) {
	name := text.Name(in.c.Name)
	if in.c.Catalog == (olm.Catalog{}) {
		return "", verdict.OnHold(name,
			"its catalog is not known, or sources disagree about it; waits until the status of the plan names one")
	}
	digest, unknown := in.Namespace.Facts().RunningDigest(in.c.Catalog)
	switch {
	case unknown != "":
		return "", verdict.OnHold(name, unknown+"; "+p.CatalogImages.AcceptedText()+", in "+acceptedImages)
	case slices.Contains(p.CatalogImages.Accepted, digest):
		return "", verdict.Finding{}
	}
	return digest, verdict.Finding{}
}

// foreignCSVCatalog refuses what comes from another catalog than the policy names.
func foreignCSVCatalog(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
	if p.Catalog == (olm.Catalog{}) {
		return verdict.Finding{}
	}
	name, allowed := text.Name(c.Name), "allowed is "+p.CatalogText()
	foreign := slices.IndexFunc(c.Catalogs, func(from olm.Catalog) bool { return !p.AllowsCatalog(from) })
	switch {
	case c.BypassesOLM:
		return verdict.NotAllowed(name+", which comes from no catalog,", allowed)
	case len(c.Catalogs) == 0:
		return verdict.OnHold("the catalog of "+name+" is not known and the plan", allowed)
	case foreign >= 0:
		return verdict.NotAllowed(name+" from "+facts.CatalogName(c.Catalogs[foreign]), allowed)
	}
	return verdict.Finding{}
}

func foreignPlanChannel(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if p.Channel == "" {
		return verdict.Finding{}
	}
	for _, s := range in.Namespace.Subscribers(in.c.Package) {
		if s.Spec.Channel != p.Channel {
			return verdict.OnHold(text.Name(in.c.Name)+", from channel "+text.Quote(s.Spec.Channel)+" of subscription "+
				s.Metadata.Name+",", "waits until it follows channel "+text.Name(p.Channel))
		}
	}
	return verdict.Finding{}
}

func heldDeprecated(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if !p.HoldDeprecated {
		return verdict.Finding{}
	}
	c := in.c
	name, from, channel := text.Name(c.Name), "its catalog", "its channel"
	if c.Catalog != (olm.Catalog{}) {
		from = facts.CatalogName(c.Catalog)
	}
	d, known := c.Deprecations(in.Namespace)
	if !known {
		return verdict.OnHold(name+", which may be deprecated,", "waits until the PackageManifest of package "+
			text.Name(c.Package)+" in "+from+" has it, or for spec.deprecated: Allow")
	}
	if channels := in.Namespace.Channels(c.Package); len(channels) == 1 && channels[0] != "" {
		channel = "channel " + text.Name(channels[0])
	}
	var deprecated []string
	accepted := ""
	for _, part := range []struct{ what, message, accepted string }{
		{"the version", d.Version, "allowed is a version that is not deprecated, or spec.deprecated: Allow"},
		{channel, d.Channel, "allowed is a version from a channel that is not deprecated, or spec.deprecated: Allow"},
		{"package " + text.Name(c.Package), d.Package, "no version of it is allowed without spec.deprecated: Allow"},
	} {
		if part.message != "" {
			deprecated, accepted = append(deprecated, part.what+" is deprecated ("+text.Quote(part.message)+")"),
				part.accepted
		}
	}
	if len(deprecated) == 0 {
		return verdict.Finding{}
	}
	return verdict.OnHold(name, strings.Join(deprecated, " and ")+" in "+from+"; "+accepted)
}

// heldAge holds what a catalog has offered for less time than the policy wants. The message names no time but that of
// the record, so that it is the same until the version is old enough.
func heldAge(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if !p.Age.Holds() {
		return verdict.Finding{}
	}
	c := in.c
	// where the digest is not known, names with one do not count
	if digest, _ := c.Digest(); p.Age.Urgent.Matches(c.Name, digest) {
		return verdict.Finding{}
	}
	seen, unknown := c.FirstSeen(in.Namespace)
	ready := seen.Add(p.Age.Least)
	urgent := "; in an emergency, name it in spec.urgent"
	accepted := ""
	switch {
	case unknown != "":
		accepted = unknown + ", and spec.minimumAge is " + p.Age.Text + urgent
	case in.Now.IsZero():
		accepted = "waits until the time is known, for spec.minimumAge"
	case in.Now.Before(ready):
		accepted = facts.CatalogName(c.Catalog) + " has offered it since " + seen.Format(time.RFC3339) +
			", and it is old enough (" + p.Age.Text + ") at " + ready.Format(time.RFC3339) + urgent
	default:
		return verdict.Finding{}
	}
	return verdict.OnHold(text.Name(c.Name), accepted)
}

// OutsideWindow holds something outside of the windows of a policy. The message names no time but those of the policy,
// so that it is the same until one of them comes: it is in events and in the status.
func OutsideWindow(now time.Time, what string, p *operatorpolicy.Policy) verdict.Finding {
	if !p.Calendar.Restricts() {
		return verdict.Finding{}
	}
	if now.IsZero() {
		return verdict.OnHold(what, "waits until the time is known, for spec.approvalWindows and spec.freezes")
	}
	when := p.Calendar.At(now)
	if when.Open {
		return verdict.Finding{}
	}
	var reasons []string
	if f := when.Freeze; f != nil {
		frozen := "approvals are frozen until " + f.End.Format(time.RFC3339)
		if f.Reason != "" {
			frozen += " (" + text.Quote(f.Reason) + ")"
		}
		reasons = append(reasons, frozen)
	}
	switch opens := when.Opens.Format(time.RFC3339); {
	case when.Opens.IsZero():
		reasons = append(reasons, "no approval window opens within five years; change spec.approvalWindows or spec.freezes")
	case when.Window != nil:
		reasons = append(reasons, "waits for the next approval window, which is open at "+opens+" (cron "+
			when.Window.String()+")")
	case !when.Opens.Equal(when.Freeze.End):
		reasons = append(reasons, "approvals are allowed at "+opens)
	}
	return verdict.OnHold(what, strings.Join(reasons, "; "))
}

func heldUpgrade(in planned, p *operatorpolicy.Policy) verdict.Finding {
	c := in.c
	installed, ends := in.Namespace.ReplacedBy(c.Package, c.Name)
	if p.ApproveUpgrades || installed == "" { // a first install needs no upgrade approval
		return verdict.Finding{}
	}
	return verdict.OnHold("the upgrade of "+text.Name(installed)+" to "+text.Name(c.Name),
		"waits for spec.upgradeApproval: Automatic"+ends)
}

// replacesAccepted is what spec.replaces may name.
const replacesAccepted = "spec.replaces may name versions of its own package only, since OLM deletes what it names"

// judgeReplaces judges spec.replaces of a bundle: once what has it is installed, OLM deletes the ClusterServiceVersion
// of that name, whose deletion the user may not be allowed. before is the stored object that is updated,
// nil for another write. Outcomes, unless both are of one package:
//
//   - Deny if it names an installed one that a policy governs, or that a Constraint protects
//   - Hold if an installed one names it, which a user may have prepared: OLM would delete it when it succeeds
func judgeReplaces(ns *state.Namespace, c, before *carrier.Bundle, now time.Time, v *verdict.Verdict) {
	names, name := c.Replaces(), text.Name(c.Name)
	if before != nil {
		known := before.Replaces()
		names = slices.DeleteFunc(names, func(csv string) bool { return slices.Contains(known, csv) })
	}
	for i := range ns.Installed() {
		other := &ns.Installed()[i]
		csv := text.Name(other.Name)
		switch {
		case other.Package == c.Package || other.Name == c.Name:
		case slices.Contains(names, other.Name):
			f := verdict.NotAllowed(name+" with spec.replaces "+csv+" of package "+text.Name(other.Package),
				replacesAccepted).At("spec.replaces")
			for _, p := range keepers(ns, other.Package) {
				recordOn(p, c, now, v, RuleReplaces, f)
			}
			for _, from := range protectors(ns, other.Package) {
				v.Record(RuleReplaces, from, true, f)
			}
		case before == nil && c.Plan != nil && other.Spec != nil && other.Spec.Replaces == c.Name:
			f := verdict.OnHold(name, "waits until "+csv+" of package "+text.Name(other.Package)+
				", whose spec.replaces names it, is deleted: OLM would delete it").At("spec.replaces")
			for _, p := range keepers(ns, c.Package) {
				recordOn(p, c, now, v, RuleReplaces, f)
			}
		}
	}
}

// keepers returns the policies of a package that do not forbid it.
func keepers(ns *state.Namespace, pkg string) []*operatorpolicy.Policy {
	return slices.DeleteFunc(slices.Clone(ns.Governing(pkg)),
		func(p *operatorpolicy.Policy) bool { return p.MustNotHave })
}

// protectors returns the Constraints that restrict the deletion of what is installed of a package.
func protectors(ns *state.Namespace, pkg string) (all []verdict.PolicyRef) {
	for _, d := range ns.Constraints().Definitions() {
		if d.Deletion.Of(pkg) {
			all = append(all, state.ConstraintRef(d))
		}
	}
	return all
}

// Kept is an installed ClusterServiceVersion that none of another package may replace.
type Kept struct {
	CSV, Package string
	// By is the first that refuses it.
	By verdict.PolicyRef
}

// KeptIn returns those of a namespace that an enforced policy governs or a Constraint protects, in order of their names.
func KeptIn(ns *state.Namespace) (kept []Kept) {
	for i := range ns.Installed() {
		c := &ns.Installed()[i]
		var by []verdict.PolicyRef
		for _, p := range keepers(ns, c.Package) {
			if p.Enforced {
				by = append(by, p.Ref())
			}
		}
		if by = append(by, protectors(ns, c.Package)...); len(by) > 0 && c.Package != "" && c.Spec != nil {
			kept = append(kept, Kept{CSV: c.Name, Package: c.Package, By: by[0]})
		}
	}
	return kept
}
