package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
)

// Kind is one kind of objects that the store holds.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the name in the API, such as installplans.
	Resource string
	// ClusterScoped is set for cluster-scoped kinds.
	ClusterScoped bool
	// Optional is set for a kind that not every cluster serves: the first snapshot does not wait for it there. One that
	// the Leader alone needs is asked for only while its CustomResourceDefinition is established.
	Optional bool
	// Selector is a label selector: other objects are not listed and not watched. Default: all objects are.
	Selector string
	// Own is set for a kind of which only objects in Opgate's own namespace are watched.
	Own bool
	// Readers are the components that need the kind.
	Readers Readers
	// skipUnchanged is set for kinds that change often in fields that are not stored: subscribers are not notified of such a
	// change.
	skipUnchanged bool

	index int
	// decode decodes an object. A nil value counts for nothing.
	decode func(raw []byte) (value any, err error)
	// salvage replaces decode if that fails; nil omits the value.
	salvage func(m *metav1.ObjectMeta, raw []byte, cause error) (value any)
	// add adds a value to the input of judging, of its namespace or of the cluster; nil for kinds that are not judged.
	add func(to *rules.Cluster, value any)
}

// Readers are the components that need a kind.
type Readers int

const (
	// EveryReplica judges by the kind: there is no snapshot before all its objects have been listed.
	EveryReplica Readers = iota
	// Ordering is every replica where Policies are evaluated. The first snapshot waits for Policies, which suspend
	// others.
	Ordering
	// Facts is every replica, for facts that Constraints may read. No snapshot waits for the kind: until it is known,
	// what reads the fact is held.
	Facts
	// Leader alone needs the kind. It is watched from the first time that this replica leads.
	Leader
)

// Subject is what an object belongs to: one namespace, or the cluster. The zero value stands for the policies that
// govern nothing yet.
type Subject struct {
	cluster   bool
	namespace string
}

// InNamespace returns the subject for one namespace.
func InNamespace(name string) Subject { return Subject{namespace: name} }

// InCluster returns the subject for the cluster: objects that affect every namespace, or none.
func InCluster() Subject { return Subject{cluster: true} }

// The kinds of the store.
var (
	OperatorPolicies = &Kind{GroupVersionKind: policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind),
		Resource: "operatorpolicies", decode: decodePolicy, salvage: salvagePolicy,
		add: adding(func(to *rules.Cluster, stored *storedPolicy) { to.AddPolicy(stored.policy) })}
	Constraints = &Kind{GroupVersionKind: constraintv1.GroupVersion.WithKind(constraintv1.Kind),
		Resource: "constraints", ClusterScoped: true,
		decode: decodeConstraint, salvage: salvageConstraint,
		add: adding(func(to *rules.Cluster, stored *storedConstraint) { to.AddConstraint(stored.definition) })}
	Namespaces = &Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		Resource: "namespaces", ClusterScoped: true, decode: decodeNamespace, add: addNamespace}
	Subscriptions = &Kind{GroupVersionKind: olm.SubscriptionGVK, Resource: "subscriptions",
		decode: decodeSubscription, salvage: salvageSubscription,
		add: addingTo(func(n *state.NamespaceContents, s *olm.Subscription) { n.Subscriptions = append(n.Subscriptions, s) })}
	InstallPlans = &Kind{GroupVersionKind: olm.InstallPlanGVK, Resource: "installplans", decode: decodePlan,
		add: addingTo(func(n *state.NamespaceContents, p *olm.InstallPlan) { n.Plans = append(n.Plans, p) })}
	ClusterServiceVersions = &Kind{GroupVersionKind: olm.ClusterServiceVersionGVK, Resource: "clusterserviceversions",
		decode: decodeCSV, salvage: salvageCSV, add: adding((*rules.Cluster).AddCSV)}
	OperatorGroups = &Kind{GroupVersionKind: olm.OperatorGroupGVK, Resource: "operatorgroups",
		decode: decodeOperatorGroup, salvage: salvageOperatorGroup,
		add: addingTo(func(n *state.NamespaceContents, g *olm.OperatorGroup) { n.Groups = append(n.Groups, g) })}

	OperatorConditions = &Kind{GroupVersionKind: olm.OperatorConditionGVK, Resource: "operatorconditions", Optional: true,
		decode: optional(decodeOperatorCondition), salvage: salvageOperatorCondition, add: addOperatorCondition}

	Policies = &Kind{GroupVersionKind: policyv1.GroupVersion.WithKind(policyv1.Kind), Resource: policyv1.Resource,
		Readers: Ordering, Optional: true, decode: decodeOrdered, salvage: salvageOrdered}
	PolicySets = &Kind{GroupVersionKind: policyv1beta1.GroupVersion.WithKind(policyv1beta1.PolicySetKind),
		Resource: policyv1beta1.PolicySetResource, Readers: Ordering, decode: decodeMembers, salvage: salvageMembers}

	CatalogSources = &Kind{GroupVersionKind: olm.CatalogSourceGVK, Resource: "catalogsources", skipUnchanged: true,
		decode: decodeCatalog, add: adding(func(to *rules.Cluster, c *olm.CatalogSource) {
			to.Facts.AddCatalog(olm.Catalog{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}, c)
		})}
	Pods = &Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: "pods",
		Readers: Facts, skipUnchanged: true, Selector: metakey.CatalogSource,
		// one that does not decode shows nothing of its image
		decode: optional(olm.DecodeCatalogPod),
		add:    adding(func(to *rules.Cluster, pod *olm.CatalogPod) { to.Facts.AddServed(pod.Catalog, pod.Digest) })}
	// Services are those by which OLM connects to catalogs.
	Services = &Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services",
		Readers: Facts, skipUnchanged: true, Selector: metakey.ServiceHash,
		decode: optional(olm.DecodeCatalogService),
		add:    adding(func(to *rules.Cluster, s *olm.CatalogService) { to.Facts.AddService(s) })}
	// Records are the ConfigMaps with what the images of catalogs changed, and with what was installed in each
	// namespace.
	Records = &Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps",
		Own: true, decode: decodeRecords, add: addRecords}
	Deployments = &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource: "deployments", Readers: Leader, skipUnchanged: true, decode: decodeDeployment}
	CustomResourceDefinitions = &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io",
		Version: "v1", Kind: "CustomResourceDefinition"}, Resource: "customresourcedefinitions", ClusterScoped: true,
		Readers: Leader, skipUnchanged: true, decode: decodeDefinition}
	// ClusterExtensions and ClusterObjectSets of OLM v1 show which operators its migration tool has taken over.
	ClusterExtensions = &Kind{GroupVersionKind: olm.ClusterExtensionGVK, Resource: "clusterextensions",
		ClusterScoped: true, Optional: true,
		Readers: Leader, skipUnchanged: true, decode: decodeMigrated(olm.KindClusterExtension)}
	ClusterObjectSets = &Kind{GroupVersionKind: olm.ClusterObjectSetGVK, Resource: "clusterobjectsets",
		ClusterScoped: true, Optional: true,
		Readers: Leader, skipUnchanged: true, decode: decodeMigrated(olm.KindClusterObjectSet)}
)

var declared = [...]*Kind{OperatorPolicies, Constraints, Namespaces, Subscriptions, InstallPlans,
	ClusterServiceVersions, OperatorGroups, OperatorConditions, Policies, PolicySets, CatalogSources, Pods, Services,
	Records, Deployments, CustomResourceDefinitions, ClusterExtensions, ClusterObjectSets}

// kindCount is the number of kinds, known when this is compiled: what is indexed by kind has a place for each.
const kindCount = len(declared)

var kinds = numbered(declared[:])

func numbered(kinds []*Kind) []*Kind {
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

// subject returns the subject of an object of the kind, from its name. OperatorPolicies belong to the namespace that
// they name.
func (k *Kind) subject(key types.NamespacedName) Subject {
	switch k {
	case Namespaces:
		return InNamespace(key.Name)
	case Records:
		return subjectOfRecords(key.Name)
	case Constraints, Policies, PolicySets, CatalogSources, Pods, Services, CustomResourceDefinitions,
		ClusterExtensions, ClusterObjectSets:
		return InCluster()
	}
	return InNamespace(key.Namespace)
}

// GroupVersionResource returns the resource of the kind in the API.
func (k *Kind) GroupVersionResource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// Definition is the part of a CustomResourceDefinition that is stored. Schemas are most of its size, and are not read.
type Definition struct {
	// Metadata has no resourceVersion.
	Metadata            olm.ObjectMeta
	Group, Kind, Plural string
	// Versions are the served versions, the preferred one first.
	Versions []string
	// Storage is the storage version. It may be one that is not served.
	Storage    string
	Namespaced bool
	// Template reports whether the definition declares that templates may contain its kind.
	Template bool
	// Established reports whether the kind is served.
	Established bool
	// Operators are OLM's labels for the operators that it belongs to.
	Operators []string
	// Annotations is a digest of the annotations: after granting a right, an administrator annotates the definition to
	// have forbidden watches retried at once.
	Annotations [sha256.Size]byte
}

// GroupKind returns the kind that is defined.
func (d *Definition) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: d.Group, Kind: d.Kind}
}

func decodeDefinition(raw []byte) (any, error) {
	var o struct {
		Metadata struct {
			olm.ObjectMeta
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Group    string                                        `json:"group"`
			Scope    apiextensionsv1.ResourceScope                 `json:"scope"`
			Names    apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
			Versions []struct {
				Name    string `json:"name"`
				Served  bool   `json:"served"`
				Storage bool   `json:"storage"`
			} `json:"versions"`
		} `json:"spec"`
		Status apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return nil, err
	}
	o.Metadata.ResourceVersion = ""
	annotations, _ := json.Marshal(o.Metadata.Annotations) // decoded JSON always encodes, sorted
	d := &Definition{
		Metadata: o.Metadata.ObjectMeta,
		Group:    o.Spec.Group,
		// Requested names may be taken; the accepted ones count.
		Kind:        cmp.Or(o.Status.AcceptedNames.Kind, o.Spec.Names.Kind),
		Plural:      cmp.Or(o.Status.AcceptedNames.Plural, o.Spec.Names.Plural),
		Namespaced:  o.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Template:    o.Metadata.Labels[metakey.PolicyType] == dependency.LabelTemplateValue,
		Annotations: sha256.Sum256(annotations),
	}
	for label := range o.Metadata.Labels {
		if strings.HasPrefix(label, olm.Group+"/") {
			d.Operators = append(d.Operators, label)
		}
	}
	slices.Sort(d.Operators)
	for _, v := range o.Spec.Versions {
		if v.Served {
			d.Versions = append(d.Versions, v.Name)
		}
		if v.Storage {
			d.Storage = v.Name
		}
	}
	slices.SortFunc(d.Versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	for _, c := range o.Status.Conditions {
		d.Established = d.Established || c.Type == apiextensionsv1.Established &&
			c.Status == apiextensionsv1.ConditionTrue && len(d.Versions) > 0
	}
	return d, nil
}
