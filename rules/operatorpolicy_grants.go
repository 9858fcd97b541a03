package rules

import (
	"cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// previewGrants warns of what an OperatorPolicy needs and the installation withholds.
func previewGrants(
	in *OperatorPolicyInput, p *state.OperatorPolicy, preview func(id verdict.RuleID, what, more string),
) {
	ineffective := func(what, missing string) {
		if missing != "" {
			preview(RuleOperatorPolicyIneffective, what, missing)
		}
	}
	spec := &in.Policy.Spec
	if spec.RemovalBehavior.CustomResourceDefinitions == policyv1beta2.RemovalDelete {
		ineffective("spec.removalBehavior.customResourceDefinitions Delete deletes none",
			in.Grants.Missing(grant.Definitions))
	}
	if spec.ComplianceConfig.DeploymentsUnavailable == policyv1beta2.ConfigNonCompliant &&
		spec.ComplianceType != policyv1beta2.MustNotHave {
		ineffective("spec.complianceConfig.deploymentsUnavailable has no effect", in.Grants.Missing(grant.Deployments))
	}
	if p.Enforced && spec.ComplianceType == policyv1beta2.MustHave && p.TargetNamespace != "" &&
		!in.Namespace(p.TargetNamespace).Exists() {
		ineffective("namespace "+p.TargetNamespace+" does not exist and will not be created",
			in.Grants.Missing(grant.Namespaces))
	}
	if spec.Consent != nil {
		ineffective("every InstallPlan with package "+p.Package+" is held because of spec.consent",
			cmp.Or(in.Grants.Missing(grant.Contents), missingCatalog(p, &in.Grants)))
	}
	if p.Age.Holds() {
		ineffective("every InstallPlan with package "+p.Package+" is held because of spec.minimumAge",
			missingCatalog(p, &in.Grants))
	}
	if p.CatalogImages.Holds() {
		ineffective("every InstallPlan with package "+p.Package+" is held because of spec.catalog",
			missingCatalog(p, &in.Grants))
	}
}

// missingCatalog is MissingCatalog for the catalog of a policy; "" if it names none.
func missingCatalog(p *state.OperatorPolicy, g *grant.Set) string {
	if p.Catalog.Namespace == "" {
		return ""
	}
	return g.MissingCatalog(p.Catalog.Namespace)
}
