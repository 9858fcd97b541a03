package rules

import (
	"cmp"
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// catalogImages is spec.catalog of a policy, prepared for judging. Nil holds nothing.
type catalogImages struct {
	holdImage, holdJump bool
	// maxChanged is the number of packages that an image may change without being a jump.
	maxChanged int
	// accepted are the digests in the order of the policy.
	accepted []string
}

// newCatalogImages returns the settings with their defaults.
func newCatalogImages(spec *policyv1beta2.Catalog) *catalogImages {
	if spec == nil {
		return nil
	}
	return &catalogImages{holdImage: spec.Image == policyv1beta2.CatalogHold,
		holdJump:   spec.Jump == policyv1beta2.CatalogHold,
		maxChanged: cmp.Or(int(spec.MaxChangedPackages), operatorpolicy.DefaultMaxChanged), accepted: spec.Accepted}
}

// holds reports whether any plan may be held.
func (c *catalogImages) holds() bool { return c != nil && (c.holdImage || c.holdJump) }

// previewCatalog warns of settings of spec.catalog that cannot have the effect that their author will expect.
func previewCatalog(op *policyv1beta2.OperatorPolicy, p *OperatorPolicy, preview func(id verdict.RuleID, what,
	more string)) {
	c := p.catalogImages
	switch {
	case c == nil:
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.catalog has no effect with complianceType mustnothave, which allows no installation",
			"remove it, or write complianceType musthave or mayhave")
	case !c.holds() && len(op.Spec.Catalog.Accepted) > 0:
		preview(RuleOperatorPolicyIneffective,
			fmt.Sprintf("spec.catalog.accepted names %d digests, but neither spec.catalog.image nor jump is %s",
				len(c.accepted), policyv1beta2.CatalogHold), "the catalog may run any image; write spec.catalog.image: "+
				string(policyv1beta2.CatalogHold))
	case !c.holds():
		preview(RuleOperatorPolicyIneffective, "spec.catalog holds nothing",
			"write spec.catalog.image or jump: "+string(policyv1beta2.CatalogHold)+", or remove spec.catalog")
	case op.Spec.Catalog.MaxChangedPackages > 0 && !c.holdJump:
		preview(RuleOperatorPolicyIneffective,
			"spec.catalog.maxChangedPackages has no effect without spec.catalog.jump: "+
				string(policyv1beta2.CatalogHold),
			"write that, or remove it")
	}
}

// acceptedText returns the accepted digests for messages.
func (c *catalogImages) acceptedText() string {
	switch len(c.accepted) {
	case 0:
		return "no digest is accepted yet"
	case 1:
		return "accepted is " + c.accepted[0]
	}
	return "accepted are " + text.Names(c.accepted, verdict.MaxListed)
}
