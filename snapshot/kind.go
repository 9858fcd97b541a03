package snapshot

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Kind is one kind of objects that the store holds.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the name in the API, such as installplans.
	Resource string
	// ClusterScoped is set for kinds whose objects lie in no namespace.
	ClusterScoped bool
	// Readers are those who need the kind.
	Readers Readers

	index int
	// decode reads an object and returns what it concerns. A nil value counts for nothing.
	decode func(raw []byte) (value any, concerns Subject, err error)
	// salvage stands in for decode where that fails; nil leaves the value out, in the object's own namespace.
	salvage func(m *metav1.ObjectMeta, raw []byte, cause error) (value any, concerns Subject)
	// add adds a value to what is judged by; nil for kinds that do not count for that.
	add func(to *rules.Cluster, in string, value any)
	// keep returns the fields that controllers read besides; nil for none.
	keep func(raw []byte) map[string]any
}

// Readers are those who need a kind.
type Readers int

const (
	// EveryReplica judges by the kind: there is no snapshot before all objects of it have been read.
	EveryReplica Readers = iota
	// Ordering is every replica that looks at Policies. No snapshot waits for the kind: a suspended object says so itself.
	Ordering
	// Leader alone needs the kind. It is watched from the first time on that this replica leads.
	Leader
)

// Subject is what an object concerns: one namespace, or the cluster. The zero value stands for the policies that govern
// nothing yet.
type Subject struct {
	cluster   bool
	namespace string
}

// InNamespace is one namespace.
func InNamespace(name string) Subject { return Subject{namespace: name} }

// InCluster is the cluster: what concerns every namespace, or none.
func InCluster() Subject { return Subject{cluster: true} }

// The kinds of the store.
var (
	OperatorPolicies = &Kind{GroupVersionKind: policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind), Resource: "operatorpolicies",
		decode: decodePolicy, salvage: salvagePolicy, add: addPolicy}
	Constraints = &Kind{GroupVersionKind: constraintv1.GroupVersion.WithKind(constraintv1.Kind), Resource: "constraints", ClusterScoped: true,
		decode: decodeConstraint, salvage: salvageConstraint}
	Namespaces = &Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Resource: "namespaces", ClusterScoped: true,
		decode: decodeNamespace, add: addNamespace}
	Subscriptions = &Kind{GroupVersionKind: olm.SubscriptionGVK, Resource: "subscriptions",
		decode: decodeSubscription, add: addSubscription, keep: keeping(keptOfSubscription)}
	InstallPlans = &Kind{GroupVersionKind: olm.InstallPlanGVK, Resource: "installplans",
		decode: decodePlan, add: addPlan}
	ClusterServiceVersions = &Kind{GroupVersionKind: olm.ClusterServiceVersionGVK, Resource: "clusterserviceversions",
		decode: decodeCSV, salvage: salvageCSV, add: addCSV, keep: keepCSV}
	OperatorGroups = &Kind{GroupVersionKind: olm.OperatorGroupGVK, Resource: "operatorgroups",
		decode: decodeOperatorGroup, add: addOperatorGroup, keep: keeping(keptOfOperatorGroup)}

	Policies = &Kind{GroupVersionKind: policyv1.GroupVersion.WithKind(policyv1.Kind), Resource: policyv1.Resource, Readers: Ordering,
		decode: decodeOrdered, salvage: salvageOrdered}
	PolicySets = &Kind{GroupVersionKind: policyv1beta1.GroupVersion.WithKind(policyv1beta1.PolicySetKind), Resource: policyv1beta1.PolicySetResource, Readers: Ordering,
		decode: decodeMembers, salvage: salvageMembers}

	CatalogSources = &Kind{GroupVersionKind: olm.CatalogSourceGVK, Resource: "catalogsources", Readers: Leader,
		decode: concernsCluster, keep: keeping(keptOfCatalog)}
	Deployments = &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Readers: Leader,
		decode: concernsNamespace, keep: keeping(keptOfDeployment)}
	CustomResourceDefinitions = &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		Resource: "customresourcedefinitions", ClusterScoped: true, Readers: Leader, decode: decodeDefinition, keep: keeping(keptOfDefinition)}
)

var kinds = numbered(OperatorPolicies, Constraints, Namespaces, Subscriptions, InstallPlans, ClusterServiceVersions, OperatorGroups,
	Policies, PolicySets, CatalogSources, Deployments, CustomResourceDefinitions)

func numbered(kinds ...*Kind) []*Kind {
	for i, k := range kinds {
		k.index = i
	}
	return kinds
}

// Kinds returns the kinds of the store.
func Kinds() []*Kind { return slices.Clone(kinds) }

// KindOf returns the kind of objects of a group, version and kind; nil for one that the store does not hold.
func KindOf(gvk schema.GroupVersionKind) *Kind {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.GroupVersionKind == gvk })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// subject is what an object of the kind concerns by its name. OperatorPolicies are in the namespace that they say.
func (k *Kind) subject(key types.NamespacedName) Subject {
	switch k {
	case Namespaces:
		return InNamespace(key.Name)
	case Constraints, Policies, PolicySets, CatalogSources, CustomResourceDefinitions:
		return InCluster()
	}
	return InNamespace(key.Namespace)
}

// GroupVersionResource is where the API server serves the kind.
func (k *Kind) GroupVersionResource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}
