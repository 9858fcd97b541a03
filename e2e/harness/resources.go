package harness

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources of the kinds that tests read and write.
var (
	OLMVersion       = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}
	Subscriptions    = OLMVersion.WithResource("subscriptions")
	InstallPlans     = OLMVersion.WithResource("installplans")
	OperatorPolicies = schema.GroupVersionResource{
		Group:    "policy.open-cluster-management.io",
		Version:  "v1beta2",
		Resource: "operatorpolicies",
	}
	Policies = schema.GroupVersionResource{
		Group:    "policy.open-cluster-management.io",
		Version:  "v1",
		Resource: "policies",
	}
	policySets = schema.GroupVersionResource{
		Group:    "policy.open-cluster-management.io",
		Version:  "v1beta1",
		Resource: "policysets",
	}
	Constraints = schema.GroupVersionResource{
		Group:    "operators.coreos.com",
		Version:  "v1",
		Resource: "constraints",
	}
	OperatorGroups = schema.GroupVersionResource{
		Group:    "operators.coreos.com",
		Version:  "v1",
		Resource: "operatorgroups",
	}
	OperatorConditions = schema.GroupVersionResource{
		Group:    "operators.coreos.com",
		Version:  "v2",
		Resource: "operatorconditions",
	}
	ClusterServiceVersions = OLMVersion.WithResource("clusterserviceversions")
	namespaces             = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

	extensions = schema.GroupVersion{Group: "olm.operatorframework.io", Version: "v1"}

	// Resources maps kinds to their resources.
	Resources = map[string]schema.GroupVersionResource{
		"Subscription":             Subscriptions,
		"InstallPlan":              InstallPlans,
		"ClusterServiceVersion":    OLMVersion.WithResource("clusterserviceversions"),
		"CatalogSource":            OLMVersion.WithResource("catalogsources"),
		"Pod":                      {Version: "v1", Resource: "pods"},
		"Service":                  {Version: "v1", Resource: "services"},
		"CustomResourceDefinition": DefinitionResource,
		"OperatorGroup":            OperatorGroups,
		"OperatorCondition":        OperatorConditions,
		"OperatorPolicy":           OperatorPolicies,
		"Constraint":               Constraints,
		"Policy":                   Policies,
		"PolicySet":                policySets,
		"Namespace":                namespaces,
		"ConfigMap":                {Version: "v1", Resource: "configmaps"},
		"Lease":                    {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		"ClusterExtension":         extensions.WithResource("clusterextensions"),
		"ClusterCatalog":           extensions.WithResource("clustercatalogs"),
	}
)

// Resources by which the API server calls Opgate.
var (
	ValidatingResource = schema.GroupVersionResource{
		Group:    "admissionregistration.k8s.io",
		Version:  "v1",
		Resource: "validatingwebhookconfigurations",
	}
	DefinitionResource = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
)

// Versions of OperatorPolicy.
const (
	Earlier = "v1beta1"
	Present = "v1beta2"
)

// OperatorPoliciesIn is the resource in one of its versions.
func OperatorPoliciesIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:    OperatorPolicies.Group,
		Version:  version,
		Resource: OperatorPolicies.Resource,
	}
}

// ChartDir is the directory of the Helm chart, from a package of tests.
const ChartDir = "../../manifests/chart/opgate"
