package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// Grant is a right of Opgate's account that an installation may withhold (threat G25), as flag --right names it.
type Grant string

// The grants.
const (
	GrantDeployments           Grant = "deployments"
	GrantNamespaces            Grant = "namespaces"
	GrantDefinitions           Grant = "definitions"
	GrantVirtualOperators      Grant = "virtual-operators"
	GrantConfigurationPolicies Grant = "configuration-policies"
	GrantContents              Grant = "contents"
)

// CatalogNamespacesValue is the value of the chart that names the namespaces in which Opgate reads what catalogs unpack
// and run.
const CatalogNamespacesValue = "olm.catalogNamespaces"

// grants describes each grant: the value of the chart that grants it, and what it allows.
var grants = map[Grant]struct{ value, allows string }{
	GrantDeployments:           {"rights.deployments", "read Deployments"},
	GrantNamespaces:            {"rights.namespaces", "create namespaces"},
	GrantDefinitions:           {"rights.definitions", "delete CustomResourceDefinitions"},
	GrantVirtualOperators:      {"rights.virtualOperators", "write ClusterServiceVersions"},
	GrantConfigurationPolicies: {"rights.configurationPolicies", "write ConfigurationPolicies and CertificatePolicies"},
	GrantContents:              {"policy.consent.enabled", "read what plans change"},
}

// Grants are the rights that an installation withholds from Opgate. The zero value withholds none.
type Grants struct {
	withheld map[Grant]bool
	// Catalogs are the namespaces in which ConfigMaps and pods of catalogs may be read; nil for all.
	Catalogs []string
}

// NewGrants returns the grants of an installation with these, and without the others.
func NewGrants(granted []string, catalogs []string) (Grants, error) {
	g := Grants{withheld: map[Grant]bool{}, Catalogs: catalogs}
	for right := range grants {
		g.withheld[right] = !slices.Contains(granted, string(right))
	}
	for _, name := range granted {
		if _, known := grants[Grant(name)]; !known && name != "none" {
			return g, fmt.Errorf("%q is not one of %q, or none", name, AllGrants())
		}
	}
	return g, nil
}

// AllGrants returns the names of all grants, sorted.
func AllGrants() []string {
	var names []string
	for _, right := range slices.Sorted(maps.Keys(grants)) {
		names = append(names, string(right))
	}
	return names
}

// Value returns the value of the chart that grants a right.
func (g Grant) Value() string { return grants[g].value }

// Missing returns a sentence about a right that is withheld, with the value of the chart that grants it; "" for one
// that is not.
func (g *Grants) Missing(right Grant) string {
	if !g.withheld[right] {
		return ""
	}
	return "opgate may not " + grants[right].allows + " here: chart value " + right.Value() + " grants it"
}

// MissingCatalog returns a sentence about catalogs in a namespace of which Opgate may not read what they unpack and
// run; "" if it may.
func (g *Grants) MissingCatalog(namespace string) string {
	if g.Catalogs == nil || slices.Contains(g.Catalogs, namespace) {
		return ""
	}
	return "opgate may not read ConfigMaps and Pods of catalogs in namespace " + text.Name(namespace) + ": add it to chart value " + CatalogNamespacesValue
}

// previewGrants warns of what an OperatorPolicy needs and the installation withholds.
func previewGrants(in *OperatorPolicyInput, p *OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	ineffective := func(what, missing string) {
		if missing != "" {
			preview(RuleOperatorPolicyIneffective, what, missing)
		}
	}
	spec := &in.Policy.Spec
	if spec.RemovalBehavior.CustomResourceDefinitions == policyv1beta2.RemovalDelete {
		ineffective("spec.removalBehavior.customResourceDefinitions Delete deletes none", in.Grants.Missing(GrantDefinitions))
	}
	if spec.ComplianceConfig.DeploymentsUnavailable == policyv1beta2.ConfigNonCompliant && spec.ComplianceType != policyv1beta2.MustNotHave {
		ineffective("spec.complianceConfig.deploymentsUnavailable has no effect", in.Grants.Missing(GrantDeployments))
	}
	if p.Enforced && spec.ComplianceType == policyv1beta2.MustHave && p.TargetNamespace != "" && !in.Namespace(p.TargetNamespace).Exists() {
		ineffective("namespace "+p.TargetNamespace+" does not exist and will not be created", in.Grants.Missing(GrantNamespaces))
	}
	if spec.Consent != nil {
		ineffective("every InstallPlan with package "+p.Package+" is held because of spec.consent", cmp.Or(in.Grants.Missing(GrantContents), p.missingCatalog(&in.Grants)))
	}
	if p.catalogImages.holds() {
		ineffective("every InstallPlan with package "+p.Package+" is held because of spec.catalog", p.missingCatalog(&in.Grants))
	}
}

// missingCatalog is MissingCatalog for the catalog of a policy; "" if it names none.
func (p *OperatorPolicy) missingCatalog(g *Grants) string {
	if p.Catalog.Namespace == "" {
		return ""
	}
	return g.MissingCatalog(p.Catalog.Namespace)
}

// MissingKind is Missing for the kind of a template.
func (g *Grants) MissingKind(of dependency.Ref) string {
	if of.Group == policyv1.Group && (of.Kind == "ConfigurationPolicy" || of.Kind == "CertificatePolicy") {
		return g.Missing(GrantConfigurationPolicies)
	}
	return ""
}
