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
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/internal/apijson"
)

// maxComponent is the maximum length of the name of a label, without its prefix.
const maxComponent = 63

// Component is <package>.<namespace> as OLM truncates it for the name of a label; empty if a part is not known.
func Component(pkg, namespace string) string {
	if pkg == "" || namespace == "" {
		return ""
	}
	name := pkg + "." + namespace
	return strings.TrimRight(name[:min(len(name), maxComponent)], "._-")
}

// ObjectMeta is the part of metadata that rules read.
type ObjectMeta struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
	Namespace    string `json:"namespace"`
	UID          string `json:"uid"`
	// ResourceVersion is opaque; the snapshot reports the newest one.
	ResourceVersion string `json:"resourceVersion"`
	// CreationTimestamp is set by the API server, as RFC 3339 in UTC: two of them compare as strings.
	CreationTimestamp string `json:"creationTimestamp"`
	// DeletionTimestamp is set on an object whose deletion is blocked by a finalizer.
	DeletionTimestamp string      `json:"deletionTimestamp"`
	Annotations       Annotations `json:"annotations"`
	Labels            Labels      `json:"labels"`
	// Finalizers reports whether the object has any.
	Finalizers filled `json:"finalizers"`
	// OwnerReferences are read of the plans that are created.
	OwnerReferences Owners `json:"ownerReferences"`
}

// Trim removes what is not read of the metadata of a stored object: properties of bundles, what OLM makes of a
// CatalogSource, and which owners it has.
func (m *ObjectMeta) Trim() {
	m.Annotations.Properties, m.Annotations.AuthorProperties, m.Annotations.ImageTemplate = "", "", ""
	if len(m.OwnerReferences) > 0 {
		m.OwnerReferences = unnamedOwner
	}
}

// Reference returns what identifies one version of an object, as it is written: enough to delete it.
func (m *ObjectMeta) Reference(kind schema.GroupVersionKind) map[string]any {
	return map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{
		"namespace": m.Namespace, "name": m.Name, "uid": m.UID, "resourceVersion": m.ResourceVersion}}
}

// filled reports whether a list, a text or an object is not empty.
type filled bool

// UnmarshalJSON only looks for what is between the brackets.
func (f *filled) UnmarshalJSON(raw []byte) error {
	*f = len(raw) > 1 && raw[0] != 'n' && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	return nil
}

// Owners are the owners of an object; unnamedOwner where they are too many to be read.
type Owners []metav1.OwnerReference

var unnamedOwner = Owners{{}}

// maxOwnerValues bounds the JSON of the owners. One has six values.
const maxOwnerValues = 256

// UnmarshalJSON counts the values first.
func (o *Owners) UnmarshalJSON(raw []byte) error {
	// A text replaces what is too large to be stored.
	if n, _ := apijson.Measure(raw); n > maxOwnerValues || raw[0] == '"' {
		*o = unnamedOwner
		return nil
	}
	return apijson.Unmarshal(raw, (*[]metav1.OwnerReference)(o))
}

// Annotations are those that rules read.
type Annotations struct {
	// Properties is set by OLM on ClusterServiceVersions: {"properties":[{"type":..., "value":...}]}.
	Properties string `json:"operatorframework.io/properties"`
	// GeneratedBy names the InstallPlan from which OLM created a Subscription, for a dependency.
	GeneratedBy string `json:"olm.generated-by"`
	// OverrideReason is the break-glass annotation on InstallPlans.
	OverrideReason string `json:"opgate.io/override-reason"`
	// OverrideExpires is when an override ends.
	OverrideExpires string `json:"opgate.io/override-expires"`
	// Consent and ConsentBy are what users have consented to on InstallPlans, and who.
	Consent   string `json:"opgate.io/consent"`
	ConsentBy string `json:"opgate.io/consent-by"`
	// ConsentExpires is when such a consent ends.
	ConsentExpires string `json:"opgate.io/consent-expires"`
	// RequestedApproval is the installPlanApproval of a Subscription before Opgate changed it to Manual.
	RequestedApproval string `json:"opgate.io/requested-approval"`
	// ManagedBy is the OperatorPolicy that manages a Subscription, as <namespace>.<name>.
	ManagedBy string `json:"operatorpolicy.policy.open-cluster-management.io/managed"`
	// PolicyFields lists the fields of a Subscription that Opgate set when it created it; nil if it did not.
	PolicyFields *string `json:"opgate.io/policy-fields"`
	// CreatedBy is the UID of the OperatorPolicy that created a Subscription or an OperatorGroup.
	CreatedBy string `json:"opgate.io/created-by"`
	// OperatorNamespace is the namespace of the operator that a ClusterServiceVersion, or its copy, belongs to.
	OperatorNamespace string `json:"olm.operatorNamespace"`
	// AuthorProperties holds properties that authors of bundles write by hand, as a plain list.
	AuthorProperties string `json:"olm.properties"`
	// ImageTemplate is what OLM writes into spec.image of a CatalogSource.
	ImageTemplate string `json:"olm.catalogImageTemplate"`

	// Present reports whether the object has annotations at all: if not, a JSON patch must add the whole field.
	Present bool `json:"-"`
}

// UnmarshalJSON is UnmarshalJSONFrom for decoders that do not know it.
func (a *Annotations) UnmarshalJSON(raw []byte) error { return apijson.Unmarshal(raw, a) }

// UnmarshalJSONFrom also sets Present. It reads what is large, such as what kubectl applied last, once.
func (a *Annotations) UnmarshalJSONFrom(r *jsontext.Decoder) error {
	type plain Annotations
	a.Present = r.PeekKind() != 'n'
	return json.UnmarshalDecode(r, (*plain)(a))
}

// Labels are those that rules read.
type Labels struct {
	// CopiedFrom marks the copies of a ClusterServiceVersion that OLM creates in other namespaces.
	CopiedFrom string `json:"olm.copiedFrom"`
	// VirtualOperator marks the ClusterServiceVersions that expose cluster properties to OLM's resolver, and Managed the
	// Subscriptions that an enforced policy manages. Both are nil without the label.
	VirtualOperator *string `json:"opgate.io/virtual-operator"`
	Managed         *string `json:"operatorpolicy.policy.open-cluster-management.io/managed"`
}

// Key returns namespace/name, with "*" for the part of a generated name that the API server has not set yet.
func (m *ObjectMeta) Key() string {
	name := m.Name
	if name == "" && m.GenerateName != "" {
		name = m.GenerateName + "*"
	}
	if m.Namespace == "" {
		return name
	}
	return m.Namespace + "/" + name
}

// DecodePlan reads the JSON of an InstallPlan; one with more values than maxPlanValues is an error.
func DecodePlan(raw []byte) (*InstallPlan, error) {
	if n, _ := apijson.Measure(raw); n > maxPlanValues {
		return nil, fmt.Errorf("the InstallPlan holds %d values, at most %d are read", n, maxPlanValues)
	}
	return Decode[InstallPlan](raw)
}

// Decode reads the JSON of an object of OLM; of an InstallPlan see DecodePlan.
func Decode[T any](raw []byte) (*T, error) {
	into := new(T)
	if err := apijson.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *into, err)
	}
	return into, nil
}

// Limits of what is read of OLM's objects, which may be as large as etcd accepts (1.5 MiB) and are written by tenants,
// or come from any catalog. A list of empty objects takes a hundred times its size when decoded, so values are counted
// first. What exceeds a limit is not read, and holds whatever depends on it. The limit of a whole review
// is in package admission. docs/performance.md lists all of them.
const (
	// MaxValues bounds the JSON of the properties of a bundle: elements of lists and members of objects, at any depth.
	// The largest operators in use have some 200 kinds.
	MaxValues = 32_768
	// MaxProperties bounds the number of properties of one bundle.
	MaxProperties = 4096
	// maxListValues and maxListBytes bound each of the lists clusterPermissions, permissions and webhookdefinitions,
	// and the annotations, of a ClusterServiceVersion, and an RBAC object of a plan. The largest operators in use have
	// some 700 rules, of twenty values and 150 bytes each.
	maxListValues = MaxValues
	maxListBytes  = 256 << 10
	// maxImages bounds the images of the Deployments of a ClusterServiceVersion, and those in spec.relatedImages;
	// maxImageText each text of one, in bytes. The largest operators in use name some 200.
	maxImages    = 1000
	maxImageText = 512
	// maxAnnotation bounds one annotation of a ClusterServiceVersion that CEL rules may read, as JSON in bytes.
	maxAnnotation = 1 << 10
	// maxPlanValues bounds a whole InstallPlan, in which a manifest is one value. One step has about 12.
	maxPlanValues = 131_072
	// MaxPlanEntries bounds the total of names, steps and bundle lookups of a plan. The largest plans in use have some
	// 400.
	MaxPlanEntries = 16_384
	// maxMessage bounds the message of a plan, as stored, in bytes.
	maxMessage = 1 << 10
	// maxGroupValues bounds the names in an OperatorGroup, including its status.
	maxGroupValues = 65_536
	// maxConfigValues and maxConfigBytes bound spec.config of a Subscription, which is kept as a whole; maxConfigFault
	// bounds the text about one that cannot be read, in bytes.
	maxConfigValues = 2048
	maxConfigBytes  = 16 << 10
	maxConfigFault  = 200
	// maxReportedValues and maxReportedBytes bound the conditions of a Subscription, which are only reported on.
	maxReportedValues = 1024
	maxReportedBytes  = 64 << 10
	// maxInstallModes bounds the install modes of a ClusterServiceVersion, of which OLM knows four.
	maxInstallModes = 16
	// maxStoredDeployments bounds the Deployments of one operator, of which those in use have a dozen; maxUnmet the
	// requirements that it does not meet, of which the first are shown, and maxUnmetText each of them, in bytes.
	maxStoredDeployments = 1000
	maxUnmet             = 5
	maxUnmetText         = 500
	// maxConditionValues bounds an OperatorCondition, and the conditions of an InstallPlan. One condition has
	// six values.
	maxConditionValues = 4096
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

// PackageManifests is an aggregated API, which can be listed but not watched.
var PackageManifests = schema.GroupVersionResource{Group: "packages." + Group, Version: "v1", Resource: "packagemanifests"}
