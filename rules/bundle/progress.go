package bundle

import (
	"fmt"
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
	c := in.c
	if p.CatalogImages == nil || !p.CatalogImages.HoldImage {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, p)
	if held != "" {
		return verdict.OnHold(text.Name(c.Name), held)
	}
	if slices.Contains(p.CatalogImages.Accepted, digest) {
		return verdict.Finding{}
	}
	return verdict.OnHold(text.Name(c.Name), facts.CatalogName(c.Catalog)+" runs image "+digest+"; add that to "+
		acceptedImages+" once it is reviewed, "+p.CatalogImages.AcceptedText()).Accepting(digest)
}

// heldCatalogJump holds what a catalog offers after an image that changed more than usual.
func heldCatalogJump(in planned, p *operatorpolicy.Policy) verdict.Finding {
	c := in.c
	if p.CatalogImages == nil || !p.CatalogImages.HoldJump {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, p)
	switch {
	case held != "" && p.CatalogImages.HoldImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case held != "":
		return verdict.OnHold(text.Name(c.Name), held)
	case slices.Contains(p.CatalogImages.Accepted, digest):
		return verdict.Finding{}
	}
	name := facts.CatalogName(c.Catalog)
	history := in.Namespace.Facts().Histories[c.Catalog]
	known := history.Newest() == digest
	review := "; add " + digest + ", which it runs, to " + acceptedImages + " once it is reviewed"
	switch {
	case !known && p.CatalogImages.HoldImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case !known:
		return verdict.OnHold(text.Name(c.Name), "it is not known yet what the image that "+name+
			" runs changes; waits until its packages are compared, or"+strings.TrimPrefix(review, ";")).Accepting(digest)
	}
	jump := history.Jump(p.CatalogImages.MaxChanged, p.CatalogImages.Accepted)
	if jump == "" {
		return verdict.Finding{}
	}
	return verdict.OnHold(text.Name(c.Name), name+" has jumped: "+text.Escape(jump)+review).Accepting(digest)
}

// acceptedImages is the field of a policy that accepts images of catalogs.
const acceptedImages = "spec.catalog.accepted"

// catalogImage returns the digest of the image that the catalog of a ClusterServiceVersion runs, or what it is held for
// if that is not known.
func catalogImage(in planned, p *operatorpolicy.Policy) (digest, held string) {
	c := in.c
	if c.Catalog == (olm.Catalog{}) {
		return "", "its catalog is not known, or sources disagree about it; waits until the status of the plan names one"
	}
	digest, unknown := in.Namespace.Facts().RunningDigest(c.Catalog)
	if unknown != "" {
		return "", unknown + "; " + p.CatalogImages.AcceptedText() + ", in " + acceptedImages
	}
	return digest, ""
}

// foreignCSVCatalog refuses what comes from another catalog than the policy names.
func foreignCSVCatalog(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
	if p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return verdict.Finding{}
	}
	if c.BypassesOLM {
		return verdict.NotAllowed(text.Name(c.Name)+", which comes from no catalog,", "allowed is "+p.CatalogText())
	}
	if len(c.Catalogs) == 0 {
		return verdict.OnHold("the catalog of "+text.Name(c.Name)+" is not known and the plan", "allowed is "+
			p.CatalogText())
	}
	for _, catalog := range c.Catalogs {
		if !p.AllowsCatalog(catalog) {
			return verdict.Finding{Decision: verdict.Deny, What: fmt.Sprintf("%s from catalog %s/%s is not allowed",
				text.Name(c.Name), text.Name(catalog.Namespace), text.Name(catalog.Name)),
				Accepted: "allowed is " + p.CatalogText()}
		}
	}
	return verdict.Finding{}
}

func foreignPlanChannel(in planned, p *operatorpolicy.Policy) verdict.Finding {
	if p.Channel == "" {
		return verdict.Finding{}
	}
	c := in.c
	for _, s := range in.Namespace.Subscribers(c.Package) {
		if s.Spec.Channel != p.Channel {
			return verdict.Finding{Decision: verdict.Hold,
				What: fmt.Sprintf("%s, from channel %s of subscription %s, is held", text.Name(c.Name),
					text.Quote(s.Spec.Channel), s.Metadata.Name),
				Accepted: "waits until it follows channel " + text.Name(p.Channel)}
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
	held := verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held"}
	seen, unknown := c.FirstSeen(in.Namespace)
	ready := seen.Add(p.Age.Least)
	urgent := "; in an emergency, name it in spec.urgent"
	switch {
	case unknown != "":
		held.Accepted = unknown + ", and spec.minimumAge is " + p.Age.Text + urgent
	case in.Now.IsZero():
		held.Accepted = "waits until the time is known, for spec.minimumAge"
	case in.Now.Before(ready):
		held.Accepted = facts.CatalogName(c.Catalog) + " has offered it since " + seen.Format(time.RFC3339) +
			", and it is old enough (" + p.Age.Text + ") at " + ready.Format(time.RFC3339) + urgent
	default:
		return verdict.Finding{}
	}
	return held
}

// OutsideWindow holds something outside of the windows of a policy. The message names no time but those of the policy,
// so that it is the same until one of them comes: it is in events and in the status.
func OutsideWindow(now time.Time, what string, p *operatorpolicy.Policy) verdict.Finding {
	if !p.Calendar.Restricts() {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: what + " is held"}
	if now.IsZero() {
		held.Accepted = "waits until the time is known, for spec.approvalWindows and spec.freezes"
		return held
	}
	when := p.Calendar.At(now)
	if when.Open {
		return verdict.Finding{}
	}
	frozen := ""
	if f := when.Freeze; f != nil {
		frozen = "approvals are frozen until " + f.End.Format(time.RFC3339)
		if f.Reason != "" {
			frozen += " (" + text.Quote(f.Reason) + ")"
		}
	}
	opens := when.Opens.Format(time.RFC3339)
	switch {
	case when.Opens.IsZero():
		held.Accepted = "no approval window opens within five years; change spec.approvalWindows or spec.freezes"
	case when.Window == nil && when.Opens.Equal(when.Freeze.End):
		held.Accepted = frozen
		return held
	case when.Window == nil:
		held.Accepted = "approvals are allowed at " + opens
	default:
		held.Accepted = "waits for the next approval window, which is open at " + opens + " (cron " +
			when.Window.String() + ")"
	}
	if frozen != "" {
		held.Accepted = frozen + "; " + held.Accepted
	}
	return held
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
