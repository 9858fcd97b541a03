// Package grant has the rights of Opgate's account that an installation may withhold. It has no rule.
package grant

import (
	"fmt"
	"maps"
	"slices"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/text"
)

// Right is a right of Opgate's account that an installation may withhold, as flag --right names it.
type Right string

// The rights.
const (
	Deployments           Right = "deployments"
	Namespaces            Right = "namespaces"
	Definitions           Right = "definitions"
	VirtualOperators      Right = "virtual-operators"
	ConfigurationPolicies Right = "configuration-policies"
	Contents              Right = "contents"
	ClusterExtensions     Right = "cluster-extensions"
)

// CatalogNamespacesValue is the value of the chart that names the namespaces in which Opgate reads what catalogs unpack
// and run.
const CatalogNamespacesValue = "olm.catalogNamespaces"

// all describes each right: the value of the chart that grants it, and what it allows.
var all = map[Right]struct{ value, allows string }{
	Deployments:           {"rights.deployments", "read Deployments"},
	Namespaces:            {"rights.namespaces", "create namespaces"},
	Definitions:           {"rights.definitions", "delete CustomResourceDefinitions"},
	VirtualOperators:      {"rights.virtualOperators", "write ClusterServiceVersions"},
	ConfigurationPolicies: {"rights.configurationPolicies", "write ConfigurationPolicies and CertificatePolicies"},
	Contents:              {"policy.consent.enabled", "read what plans change"},
	ClusterExtensions:     {"olmv1", "read ClusterExtensions and ClusterObjectSets"},
}

// Set is which rights an installation withholds from Opgate. The zero value withholds none.
type Set struct {
	withheld map[Right]bool
	// Catalogs are the namespaces in which ConfigMaps, pods and Services of catalogs may be read; nil for all.
	Catalogs []string
}

// NewSet returns the set of an installation with these, and without the others.
func NewSet(granted []string, catalogs []string) (Set, error) {
	g := Set{withheld: map[Right]bool{}, Catalogs: catalogs}
	for right := range all {
		g.withheld[right] = !slices.Contains(granted, string(right))
	}
	for _, name := range granted {
		if _, known := all[Right(name)]; !known && name != "none" {
			return g, fmt.Errorf("%q is not one of %q, or none", name, All())
		}
	}
	return g, nil
}

// All returns the names of all rights, sorted.
func All() []string {
	var names []string
	for _, right := range slices.Sorted(maps.Keys(all)) {
		names = append(names, string(right))
	}
	return names
}

// Value returns the value of the chart that grants a right.
func (g Right) Value() string { return all[g].value }

// Missing returns a sentence about a right that is withheld, with the value of the chart that grants it; "" for one
// that is not.
func (g *Set) Missing(right Right) string {
	if !g.withheld[right] {
		return ""
	}
	return "opgate may not " + all[right].allows + " here: chart value " + right.Value() + " grants it"
}

// MissingCatalog returns a sentence about catalogs in a namespace of which Opgate may not read what they unpack and
// run; "" if it may.
func (g *Set) MissingCatalog(namespace string) string {
	if g.Catalogs == nil || slices.Contains(g.Catalogs, namespace) {
		return ""
	}
	return "opgate may not read ConfigMaps, Pods and Services of catalogs in namespace " + text.Name(namespace) +
		": add it to chart value " + CatalogNamespacesValue
}

// MissingKind is Missing for the kind of a template.
func (g *Set) MissingKind(group, kind string) string {
	if group == policyv1.Group && (kind == "ConfigurationPolicy" || kind == "CertificatePolicy") {
		return g.Missing(ConfigurationPolicies)
	}
	return ""
}
