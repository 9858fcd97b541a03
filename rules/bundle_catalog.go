package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on the image that a catalog runs.
const (
	RuleBundleCatalogDigest verdict.RuleID = "bundle/catalog-digest"
	RuleBundleCatalogJump   verdict.RuleID = "bundle/catalog-jump"
)

var (
	bundleCatalogDigest = verdict.Rule{ID: RuleBundleCatalogDigest, Outcomes: verdict.Holds, Override: true,
		Edit:    acceptImage,
		Summary: "the catalog of a ClusterServiceVersion of the plan runs an image that is not in the policy's catalog.accepted, or is not known, and its catalog.image is Hold"}
	bundleCatalogJump = verdict.Rule{ID: RuleBundleCatalogJump, Outcomes: verdict.Holds, Override: true,
		Edit:    acceptImage,
		Summary: "an image of that catalog changed too many packages, moved a channel backwards or is for another platform, is not accepted, and the policy's catalog.jump is Hold"}
)

// heldCatalogDigest holds what a catalog offers whose image is not accepted: behind a tag it changes without a change
// of the CatalogSource (threat O26).
func heldCatalogDigest(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.CatalogImages == nil || !p.CatalogImages.HoldImage || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	if held != "" {
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held", Accepted: held}
	}
	if slices.Contains(p.CatalogImages.Accepted, digest) {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
		Accepted: facts.CatalogName(c.catalogs[0]) + " runs image " + digest +
			"; add that to " + acceptedImages + " once it is reviewed, " + p.CatalogImages.AcceptedText()}
}

// heldCatalogJump holds what a catalog offers after an image that changed more than usual (threat O28).
func heldCatalogJump(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.CatalogImages == nil || !p.CatalogImages.HoldJump || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	switch {
	case held != "" && p.CatalogImages.HoldImage: // bundle/catalog-digest says so
		return verdict.Finding{}
	case held != "":
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held", Accepted: held}
	case slices.Contains(p.CatalogImages.Accepted, digest):
		return verdict.Finding{}
	}
	name := facts.CatalogName(c.catalogs[0])
	history, known := in.Namespace.Facts().Histories[c.catalogs[0]]
	known = known && history.Newest() == digest
	review := "; add " + digest + ", which it runs, to " + acceptedImages + " once it is reviewed"
	switch {
	case !known && p.CatalogImages.HoldImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case !known:
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
			Accepted: "it is not known yet what the image that " + name +
				" runs changes; waits until its packages are compared, or" + strings.TrimPrefix(review, ";")}
	}
	jump := history.Jump(p.CatalogImages.MaxChanged, p.CatalogImages.Accepted)
	if jump == "" {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
		Accepted: name + " has jumped: " + text.Escape(jump) + review}
}

// acceptedImages is the field of a policy that accepts images of catalogs.
const acceptedImages = "spec.catalog.accepted"

// catalogImage returns the digest of the image that the catalog of a ClusterServiceVersion runs, or what it is held for
// if that is not known.
func catalogImage(in *PlanInput, c *Bundle, p *state.OperatorPolicy) (digest, held string) {
	if len(c.catalogs) != 1 {
		return "", "its catalog is not known, or sources disagree about it; waits until the status of the plan names one"
	}

	digest, unknown := in.Namespace.Facts().RunningDigest(c.catalogs[0])
	if unknown != "" {
		return "", unknown + "; " + p.CatalogImages.AcceptedText() + ", in " + acceptedImages
	}
	return digest, ""
}
