package rules

import (
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// previewCatalog warns of settings of spec.catalog that cannot have the effect that their author will expect.
func previewCatalog(op *policyv1beta2.OperatorPolicy, p *state.OperatorPolicy, preview func(id verdict.RuleID, what,
	more string)) {
	c := p.CatalogImages
	switch {
	case c == nil:
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.catalog has no effect with complianceType mustnothave, which allows no installation",
			"remove it, or write complianceType musthave or mayhave")
	case !c.Holds() && len(op.Spec.Catalog.Accepted) > 0:
		preview(RuleOperatorPolicyIneffective,
			fmt.Sprintf("spec.catalog.accepted names %d digests, but neither spec.catalog.image nor jump is %s",
				len(c.Accepted), policyv1beta2.CatalogHold), "the catalog may run any image; write spec.catalog.image: "+
				string(policyv1beta2.CatalogHold))
	case !c.Holds():
		preview(RuleOperatorPolicyIneffective, "spec.catalog holds nothing",
			"write spec.catalog.image or jump: "+string(policyv1beta2.CatalogHold)+", or remove spec.catalog")
	case op.Spec.Catalog.MaxChangedPackages > 0 && !c.HoldJump:
		preview(RuleOperatorPolicyIneffective,
			"spec.catalog.maxChangedPackages has no effect without spec.catalog.jump: "+
				string(policyv1beta2.CatalogHold),
			"write that, or remove it")
	}
}
