package olm

import (
	"bytes"

	kjson "sigs.k8s.io/json"
)

// Labels and annotations that OLM, and authors of bundles, write.
const (
	// CopiedFromLabel marks the copies that OLM makes of a ClusterServiceVersion for other namespaces.
	CopiedFromLabel = "olm.copiedFrom"
	// ComponentLabelPrefix begins the labels by which OLM ties objects to an operator, as <package>.<namespace>.
	ComponentLabelPrefix = Group + "/"
	// PropertiesAnnotation holds the properties of the bundle that a ClusterServiceVersion comes from.
	PropertiesAnnotation = "operatorframework.io/properties"
	// OperatorNamespaceAnnotation is the namespace of the operator that a ClusterServiceVersion, or its copy, belongs to.
	OperatorNamespaceAnnotation = "olm.operatorNamespace"
)

// ObjectMeta is the part of metadata that rules read.
type ObjectMeta struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
	Namespace    string `json:"namespace"`
	UID          string `json:"uid"`
	// ResourceVersion is opaque; the snapshot reports the newest it has seen.
	ResourceVersion string `json:"resourceVersion"`
	// CreationTimestamp is the API server's, as RFC 3339 in UTC: two of them compare as strings.
	CreationTimestamp string `json:"creationTimestamp"`
	// DeletionTimestamp is set on an object that is being deleted and held by a finalizer.
	DeletionTimestamp string      `json:"deletionTimestamp"`
	Annotations       Annotations `json:"annotations"`
	Labels            Labels      `json:"labels"`
}

// Annotations are those that rules read.
type Annotations struct {
	// Properties is set by OLM on ClusterServiceVersions: {"properties":[{"type":..., "value":...}]}.
	Properties string `json:"operatorframework.io/properties"`
	// GeneratedBy names the InstallPlan that OLM generated a Subscription from, for a dependency.
	GeneratedBy string `json:"olm.generated-by"`
	// OverrideReason is the break-glass annotation on InstallPlans.
	OverrideReason string `json:"opgate.io/override-reason"`
	// RequestedApproval is what a Subscription asked for before a Constraint made it wait.
	RequestedApproval string `json:"opgate.io/requested-approval"`
	// AuthorProperties is where authors of bundles keep properties by hand, as a plain list.
	AuthorProperties string `json:"olm.properties"`

	// Present reports whether the object has annotations at all: a JSON patch can add one only to others.
	Present bool `json:"-"`
}

// UnmarshalJSON also sets Present.
func (a *Annotations) UnmarshalJSON(raw []byte) error {
	type plain Annotations
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, (*plain)(a)); err != nil {
		return err
	}
	a.Present = !bytes.Equal(raw, []byte("null"))
	return nil
}

// Labels are those that rules read.
type Labels struct {
	// CopiedFrom marks the copies that OLM makes of a ClusterServiceVersion for other namespaces.
	CopiedFrom string `json:"olm.copiedFrom"`
	// VirtualOperator marks the ClusterServiceVersions by which cluster properties reach OLM's resolver.
	VirtualOperator string `json:"opgate.io/virtual-operator"`
}

// Key is namespace/name, with the generated part of a name that the API server has not generated yet as "*".
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
