package bundle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on the catalog that a bundle comes from, and on the image that it runs.
const (
	RuleCatalog       verdict.RuleID = "bundle/catalog"
	RuleCatalogDigest verdict.RuleID = "bundle/catalog-digest"
	RuleCatalogJump   verdict.RuleID = "bundle/catalog-jump"
)

var (
	bundleCatalog = verdict.Rule{ID: RuleCatalog, Outcomes: verdict.DeniesOrHolds, Override: true, Edit: nameCatalog,
		Summary: "a ClusterServiceVersion comes from another catalog than the policy names, or from one that is not known"}
	bundleCatalogDigest = verdict.Rule{ID: RuleCatalogDigest, Outcomes: verdict.Holds, Override: true,
		Edit:    acceptImage,
		Summary: "the catalog of a ClusterServiceVersion of the plan runs an image that is not in the policy's catalog.accepted, or is not known, and its catalog.image is Hold"}
	bundleCatalogJump = verdict.Rule{ID: RuleCatalogJump, Outcomes: verdict.Holds, Override: true,
		Edit:    acceptImage,
		Summary: "an image of that catalog changed too many packages, moved a channel backwards or is for another platform, is not accepted, and the policy's catalog.jump is Hold"}
)

// heldCatalogDigest holds what a catalog offers whose image is not accepted: behind a tag it changes without a change
// of the CatalogSource (threat O26).
func heldCatalogDigest(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.CatalogImages == nil || !p.CatalogImages.HoldImage || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	if held != "" {
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held", Accepted: held}
	}
	if slices.Contains(p.CatalogImages.Accepted, digest) {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held",
		Accepted: facts.CatalogName(c.Catalogs[0]) + " runs image " + digest +
			"; add that to " + acceptedImages + " once it is reviewed, " + p.CatalogImages.AcceptedText()}
}

// heldCatalogJump holds what a catalog offers after an image that changed more than usual (threat O28).
func heldCatalogJump(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.CatalogImages == nil || !p.CatalogImages.HoldJump || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	switch {
	case held != "" && p.CatalogImages.HoldImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case held != "":
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held", Accepted: held}
	case slices.Contains(p.CatalogImages.Accepted, digest):
		return verdict.Finding{}
	}
	name := facts.CatalogName(c.Catalogs[0])
	history, known := in.Namespace.Facts().Histories[c.Catalogs[0]]
	known = known && history.Newest() == digest
	review := "; add " + digest + ", which it runs, to " + acceptedImages + " once it is reviewed"
	switch {
	case !known && p.CatalogImages.HoldImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case !known:
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held",
			Accepted: "it is not known yet what the image that " + name +
				" runs changes; waits until its packages are compared, or" + strings.TrimPrefix(review, ";")}
	}
	jump := history.Jump(p.CatalogImages.MaxChanged, p.CatalogImages.Accepted)
	if jump == "" {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held",
		Accepted: name + " has jumped: " + text.Escape(jump) + review}
}

// acceptedImages is the field of a policy that accepts images of catalogs.
const acceptedImages = "spec.catalog.accepted"

// catalogImage returns the digest of the image that the catalog of a ClusterServiceVersion runs, or what it is held for
// if that is not known.
func catalogImage(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) (digest, held string) {
	if len(c.Catalogs) != 1 {
		return "", "its catalog is not known, or sources disagree about it; waits until the status of the plan names one"
	}

	digest, unknown := in.Namespace.Facts().RunningDigest(c.Catalogs[0])
	if unknown != "" {
		return "", unknown + "; " + p.CatalogImages.AcceptedText() + ", in " + acceptedImages
	}
	return digest, ""
}

func foreignCSVCatalog(c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Unreadable() != "" || p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return verdict.Finding{}
	}
	if c.BypassesOLM {
		return verdict.Finding{Decision: verdict.Deny,
			What:     text.Name(c.Name) + ", which comes from no catalog, is not allowed",
			Accepted: "allowed is " + p.CatalogText()}
	}
	if len(c.Catalogs) == 0 {
		return verdict.Finding{Decision: verdict.Hold,
			What:     "the catalog of " + text.Name(c.Name) + " is not known and the plan is held",
			Accepted: "allowed is " + p.CatalogText()}
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
