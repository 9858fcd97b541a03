package operatorpolicy

import (
	"cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// defaultMaxChanged is the default of spec.catalog.maxChangedPackages.
const defaultMaxChanged = 50

// CatalogImages is spec.catalog of a policy, prepared for judging. Nil holds nothing.
type CatalogImages struct {
	// HoldImage holds what comes from an image that is not accepted, HoldJump what comes after a jump.
	HoldImage, HoldJump bool
	// MaxChanged is the number of packages that an image may change without being a jump.
	MaxChanged int
	// Accepted are the digests in the order of the policy.
	Accepted []string
}

// catalog reads spec.catalog.
func (r *reader) catalog(spec *policyv1beta2.Catalog) *CatalogImages {
	if spec == nil {
		return nil
	}
	r.digests(specPath.Child("catalog", "accepted"), spec.Accepted)
	return &CatalogImages{HoldImage: spec.Image == policyv1beta2.CatalogHold,
		HoldJump:   spec.Jump == policyv1beta2.CatalogHold,
		MaxChanged: cmp.Or(int(spec.MaxChangedPackages), defaultMaxChanged), Accepted: spec.Accepted}
}

// Holds reports whether any plan may be held.
func (c *CatalogImages) Holds() bool { return c != nil && (c.HoldImage || c.HoldJump) }

// AcceptedText returns the accepted digests for messages.
func (c *CatalogImages) AcceptedText() string {
	switch len(c.Accepted) {
	case 0:
		return "no digest is accepted yet"
	case 1:
		return "accepted is " + c.Accepted[0]
	}
	return "accepted are " + text.Names(c.Accepted, verdict.MaxListed)
}
