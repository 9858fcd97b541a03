// Package olm defines OLM's API as far as it is used here: kinds and resources, labels, annotations and phases, the
// parts of objects that are read, the properties of bundles, versions and version ranges. It is pure and judges
// nothing: package rules does.
//
// Types have only the fields that are read. They are decoded from the API server's JSON with sigs.k8s.io/json, which
// reads keys as the API server does (case-sensitive, the last of two duplicates counts); encoding/json would match keys
// in any case, and a key that the gate reads and the API server does not is a bypass. Decoding is lenient:
// a part that is too large or has the wrong shape is recorded as unreadable, with the reason, if the rest of the object
// can be judged without it.
package olm

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of OLM, of which the Constraint is part too.
const Group = "operators.coreos.com"

// The kinds of OLM that are read or written here.
const (
	KindSubscription          = "Subscription"
	KindInstallPlan           = "InstallPlan"
	KindClusterServiceVersion = "ClusterServiceVersion"
	KindCatalogSource         = "CatalogSource"
	KindOperatorGroup         = "OperatorGroup"
	KindOperatorCondition     = "OperatorCondition"
	KindPackageManifest       = "PackageManifest"
	KindClusterExtension      = "ClusterExtension"
	KindClusterCatalog        = "ClusterCatalog"
	KindClusterObjectSet      = "ClusterObjectSet"
)

// The versions of OLM's API: V1 is that of OperatorGroup, V2 that of OperatorCondition, V1alpha1 that of the other
// kinds.
var (
	V1alpha1 = schema.GroupVersion{Group: Group, Version: "v1alpha1"}
	V1       = schema.GroupVersion{Group: Group, Version: "v1"}
	V2       = schema.GroupVersion{Group: Group, Version: "v2"}
)

// ExtensionsV1 is the API of OLM v1, a successor of OLM which may be on the same cluster.
var ExtensionsV1 = schema.GroupVersion{Group: "olm.operatorframework.io", Version: "v1"}

// The kinds with their versions.
var (
	SubscriptionGVK          = V1alpha1.WithKind(KindSubscription)
	InstallPlanGVK           = V1alpha1.WithKind(KindInstallPlan)
	ClusterServiceVersionGVK = V1alpha1.WithKind(KindClusterServiceVersion)
	CatalogSourceGVK         = V1alpha1.WithKind(KindCatalogSource)
	OperatorGroupGVK         = V1.WithKind(KindOperatorGroup)
	OperatorConditionGVK     = V2.WithKind(KindOperatorCondition)
	ClusterExtensionGVK      = ExtensionsV1.WithKind(KindClusterExtension)
	ClusterCatalogGVK        = ExtensionsV1.WithKind(KindClusterCatalog)
	ClusterObjectSetGVK      = ExtensionsV1.WithKind(KindClusterObjectSet)
)

// The resources with their versions. PackageManifests is an aggregated API, which can be listed but not watched.
var (
	Subscriptions          = V1alpha1.WithResource("subscriptions")
	InstallPlans           = V1alpha1.WithResource("installplans")
	ClusterServiceVersions = V1alpha1.WithResource("clusterserviceversions")
	CatalogSources         = V1alpha1.WithResource("catalogsources")
	OperatorGroups         = V1.WithResource("operatorgroups")
	PackageManifests       = schema.GroupVersionResource{Group: "packages." + Group, Version: "v1",
		Resource: "packagemanifests"}
)
