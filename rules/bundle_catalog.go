package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
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

// JudgesByCatalogImage reports whether plans of the namespace are judged by the images that catalogs run.
func (n *Namespace) JudgesByCatalogImage() bool {
	return n != nil && slices.ContainsFunc(n.policies, func(p *OperatorPolicy) bool {
		return p.catalogImages.holds() || p.age.holds()
	})
}

// heldCatalogDigest holds what a catalog offers whose image is not accepted: behind a tag it changes without a change
// of the CatalogSource (threat O26).
func heldCatalogDigest(in *PlanInput, c *Bundle, p *OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.catalogImages == nil || !p.catalogImages.holdImage || p.faults != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	if held != "" {
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held", Accepted: held}
	}
	if slices.Contains(p.catalogImages.accepted, digest) {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
		Accepted: CatalogName(c.catalogs[0]) + " runs image " + digest +
			"; add that to " + acceptedImages + " once it is reviewed, " + p.catalogImages.acceptedText()}
}

// heldCatalogJump holds what a catalog offers after an image that changed more than usual (threat O28).
func heldCatalogJump(in *PlanInput, c *Bundle, p *OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.catalogImages == nil || !p.catalogImages.holdJump || p.faults != "" {
		return verdict.Finding{}
	}
	digest, held := catalogImage(in, c, p)
	switch {
	case held != "" && p.catalogImages.holdImage: // bundle/catalog-digest says so
		return verdict.Finding{}
	case held != "":
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held", Accepted: held}
	case slices.Contains(p.catalogImages.accepted, digest):
		return verdict.Finding{}
	}
	name, facts := CatalogName(c.catalogs[0]), in.Namespace.Facts()
	history, known := facts.Histories[c.catalogs[0]]
	known = known && history.Newest() == digest
	review := "; add " + digest + ", which it runs, to " + acceptedImages + " once it is reviewed"
	switch {
	case !known && p.catalogImages.holdImage: // bundle/catalog-digest holds it
		return verdict.Finding{}
	case !known:
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
			Accepted: "it is not known yet what the image that " + name +
				" runs changes; waits until its packages are compared, or" + strings.TrimPrefix(review, ";")}
	}
	jump := history.Jump(p.catalogImages.maxChanged, p.catalogImages.accepted)
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
func catalogImage(in *PlanInput, c *Bundle, p *OperatorPolicy) (digest, held string) {
	if len(c.catalogs) != 1 {
		return "", "its catalog is not known, or sources disagree about it; waits until the status of the plan names one"
	}
	facts := in.Namespace.Facts()
	digest, unknown := RunningDigest(facts, c.catalogs[0])
	if unknown != "" {
		return "", unknown + "; " + p.catalogImages.acceptedText() + ", in " + acceptedImages
	}
	return digest, ""
}

// RecordedCatalogs returns the catalogs of which policies here hold jumps or young versions.
func (n *Namespace) RecordedCatalogs() []olm.Catalog {
	var found []olm.Catalog
	for _, p := range n.Policies() {
		if !p.MustNotHave && (p.catalogImages != nil && p.catalogImages.holdJump || p.age.holds()) {
			found = append(found, n.catalogsOf(p)...)
		}
	}
	return found
}

// catalogsOf returns the catalogs that a policy is about: the one that it names, else those of the Subscriptions to its
// package.
func (n *Namespace) catalogsOf(p *OperatorPolicy) []olm.Catalog {
	if p.Catalog.Name != "" && p.Catalog.Namespace != "" {
		return []olm.Catalog{p.Catalog} // bundle/catalog refuses the others
	}
	var found []olm.Catalog
	for _, s := range n.subscribers(p.Package) {
		found = append(found, s.Catalog())
	}
	return found
}

// RunningDigest returns the digest of the image that a catalog runs, or why it is not known. What the pods run counts;
// without a pod it is the digest of spec.image, if that ends in one.
func RunningDigest(facts *state.Cluster, from olm.Catalog) (digest, unknown string) {
	source, exists := facts.Catalogs[from]
	served, runs := facts.Served[from]
	name, grants := CatalogName(from), grant.Set{Catalogs: facts.CatalogNamespaces}
	switch {
	case !exists:
		return "", name + " does not exist, or is not known"
	case source.ServedImage() == "" && source.Spec.ServedImage() != "":
		return "", "OLM does not connect to the Service of the pods of " + name +
			": its status.registryService names another one, which OLM corrects once the field is deleted"
	case source.ServedImage() == "":
		return "", name + " is not served from an image, so that it has no digest"
	case served != "":
		return served, ""
	case grants.MissingCatalog(from.Namespace) != "":
		return "", "it is not known which image " + name + " runs: " + grants.MissingCatalog(from.Namespace)
	case runs:
		return "", "it is not known which image " + name + " runs: its pods run different ones, or do not say"
	}
	if digest = olm.ImageDigest(source.ServedImage()); digest == "" {
		return "", "it is not known which image " + name + " runs: it has no pod that runs"
	}
	return digest, ""
}

// CatalogName returns a catalog as used in reasons.
func CatalogName(c olm.Catalog) string {
	return "catalog " + text.Name(c.Namespace) + "/" + text.Name(c.Name)
}
