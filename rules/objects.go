package rules

import (
	"bytes"
	"crypto/sha256"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/rules/constraint"
)

// The types below are the parts of OLM's objects that rules read, and nothing more. They are decoded
// straight from the API server's JSON with sigs.k8s.io/json, which reads keys as the API server does
// (case-sensitive, the last of two duplicates counts); encoding/json would match keys in any case, and a
// key that the gate reads and the API server does not is a bypass (threat G19).

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
	Annotations       annotations `json:"annotations"`
	Labels            labels      `json:"labels"`
}

type annotations struct {
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

	// present tells whether the object has any annotations: a JSON patch can add one only to others.
	present bool
}

// UnmarshalJSON also notes that there are annotations at all.
func (a *annotations) UnmarshalJSON(raw []byte) error {
	type plain annotations
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, (*plain)(a)); err != nil {
		return err
	}
	a.present = !bytes.Equal(raw, []byte("null"))
	return nil
}

type labels struct {
	// CopiedFrom marks the copies that OLM makes of a ClusterServiceVersion for other namespaces.
	CopiedFrom string `json:"olm.copiedFrom"`
	// VirtualOperator marks the ClusterServiceVersions by which cluster properties reach OLM's resolver.
	VirtualOperator string `json:"opgate.io/virtual-operator"`
}

// OverrideReasonAnnotation is where a break-glass approver gives a reason (R-AP-6).
const OverrideReasonAnnotation = "opgate.io/override-reason"

// Subscription is operators.coreos.com/v1alpha1 Subscription.
type Subscription struct {
	Metadata ObjectMeta         `json:"metadata"`
	Spec     SubscriptionSpec   `json:"spec"`
	Status   SubscriptionStatus `json:"status"`
}

// SubscriptionSpec holds plain strings only, so that two of them compare with ==.
type SubscriptionSpec struct {
	// Package is spec.name: the package subscribed to, not the name of the object.
	Package             string `json:"name"`
	Channel             string `json:"channel"`
	Source              string `json:"source"`
	SourceNamespace     string `json:"sourceNamespace"`
	StartingCSV         string `json:"startingCSV"`
	InstallPlanApproval string `json:"installPlanApproval"`
}

// catalog is where the Subscription takes its package from.
func (s *Subscription) catalog() Catalog {
	return Catalog{Namespace: s.Spec.SourceNamespace, Name: s.Spec.Source}
}

// wantsAutomatic tells whether OLM would approve plans for this Subscription by itself, had no Constraint made it wait.
func (s *Subscription) wantsAutomatic() bool {
	return s.Spec.InstallPlanApproval != ApprovalManual || s.Metadata.Annotations.RequestedApproval == ApprovalAutomatic
}

// SubscriptionStatus is what OLM says of a Subscription.
type SubscriptionStatus struct {
	// CurrentCSV is what the Subscription is moving to, InstalledCSV what it has.
	CurrentCSV   string `json:"currentCSV"`
	InstalledCSV string `json:"installedCSV"`
	// InstallPlan is the plan that brings the Subscription to CurrentCSV.
	InstallPlan struct {
		Name string `json:"name"`
	} `json:"installPlanRef"`
}

// The values of installPlanApproval. OLM takes everything that is not exactly Manual, empty included, for
// Automatic.
const (
	ApprovalAutomatic = "Automatic"
	ApprovalManual    = "Manual"
)

// InstallPlan is operators.coreos.com/v1alpha1 InstallPlan.
type InstallPlan struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     InstallPlanSpec   `json:"spec"`
	Status   InstallPlanStatus `json:"status"`
}

// InstallPlanHead is an InstallPlan without its status: all that is read of the new object when the main
// resource is updated, since the API server restores the stored status there.
type InstallPlanHead struct {
	Metadata ObjectMeta      `json:"metadata"`
	Spec     InstallPlanSpec `json:"spec"`
}

// InstallPlanSpec is written by OLM on create; afterwards only Approved changes.
type InstallPlanSpec struct {
	CSVNames   []string `json:"clusterServiceVersionNames"`
	Approval   string   `json:"approval"`
	Approved   bool     `json:"approved"`
	Generation int64    `json:"generation"`
}

// InstallPlanStatus is written by OLM in a call of its own after the create.
type InstallPlanStatus struct {
	Phase         string         `json:"phase"`
	BundleLookups []BundleLookup `json:"bundleLookups"`
	Steps         []Step         `json:"plan"`
	Conditions    []struct {
		Type               string `json:"type"`
		Status             string `json:"status"`
		LastTransitionTime string `json:"lastTransitionTime"`
	} `json:"conditions"`
	// ServiceAccount is what steps are written as, where the OperatorGroup names one; without it OLM writes
	// them with its own rights, which are those of a cluster admin.
	ServiceAccount struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"attenuatedServiceAccountRef"`
}

// The phases of an InstallPlan that rules tell apart. OLM runs a plan in phase Installing without looking
// at spec.approved again (threat O1).
const (
	phasePlanning         = "Planning"
	PhaseRequiresApproval = "RequiresApproval"
	PhaseInstalling       = "Installing"
	PhaseComplete         = "Complete"
	PhaseFailed           = "Failed"
)

// BundleLookup says which bundle, from which catalog, a ClusterServiceVersion comes from; only bundles by
// image have one. It leaves out the conditions, which OLM updates, and compares with ==.
type BundleLookup struct {
	Path       string  `json:"path"`
	Identifier string  `json:"identifier"`
	Replaces   string  `json:"replaces"`
	Catalog    Catalog `json:"catalogSourceRef"`
	Properties string  `json:"properties"`
}

// Catalog names a CatalogSource.
type Catalog = catalog.Source

// Step is one object that a plan will write. Status says whether OLM has written it already: it skips steps that are
// Present or Created.
type Step struct {
	Resolving string       `json:"resolving"`
	Status    string       `json:"status"`
	Optional  bool         `json:"optional"`
	Resource  StepResource `json:"resource"`
}

// WritesDefinition reports whether the step writes a CustomResourceDefinition.
func (s *Step) WritesDefinition() bool {
	return s.Resource.Group == "apiextensions.k8s.io" && s.Resource.Kind == "CustomResourceDefinition"
}

// InstalledAt is when OLM had carried out the plan, as RFC 3339 in UTC; "" where it has not.
func (s *InstallPlanStatus) InstalledAt() string {
	for _, c := range s.Conditions {
		if c.Type == "Installed" && c.Status == "True" {
			return c.LastTransitionTime
		}
	}
	return ""
}

// sameStep tells whether two steps write the same in the same way. What was read of a manifest does not count: its
// digest says more.
func sameStep(a, b Step) bool {
	for _, m := range []*Manifest{&a.Resource.Manifest, &b.Resource.Manifest} {
		m.Spec, m.text, m.grants = nil, nil, nil
	}
	return a == b
}

// StepResource is the object of a Step.
type StepResource struct {
	Group            string   `json:"group"`
	Version          string   `json:"version"`
	Kind             string   `json:"kind"`
	Name             string   `json:"name"`
	CatalogName      string   `json:"sourceName"`
	CatalogNamespace string   `json:"sourceNamespace"`
	Manifest         Manifest `json:"manifest"`
}

// Manifest is what is kept of a step's manifest, which may be hundreds of kilobytes of JSON inside a JSON
// string: its digest, to notice a change, and the bundle properties of a ClusterServiceVersion.
type Manifest struct {
	// Digest is the SHA-256 of the manifest as it stands in the object's JSON.
	Digest [sha256.Size]byte
	// Properties is annotation operatorframework.io/properties of the object in the manifest, and AuthorProperties
	// its annotation olm.properties.
	Properties, AuthorProperties string
	// Spec is that of a ClusterServiceVersion; nil where the manifest is not in the plan.
	Spec *CSVSpec
	// Unreadable is set where the manifest should have properties and does not decode.
	Unreadable bool

	// text is the manifest as it stands in the object's JSON, until Trim; grants is what Trim read of it.
	text   *[]byte
	grants *grants
}

var propertiesAnnotation = []byte("operatorframework.io/properties")

// UnmarshalJSON keeps the digest and looks inside only where the annotation occurs, which is in
// ClusterServiceVersions and next to nowhere else.
func (m *Manifest) UnmarshalJSON(raw []byte) error {
	*m = Manifest{Digest: sha256.Sum256(raw), text: &raw}
	if !bytes.Contains(raw, propertiesAnnotation) {
		return nil
	}
	m.Unreadable = m.read(raw) != nil // it holds the plan; the rest of the object is read all the same
	return nil
}

// read takes what counts from the object whose JSON is in a JSON string.
func (m *Manifest) read(raw []byte) error {
	var text string
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &text); err != nil {
		return err
	}
	csv, err := DecodeCSV([]byte(text))
	if err != nil {
		return err
	}
	m.Properties, m.AuthorProperties = csv.Metadata.Annotations.Properties, csv.Metadata.Annotations.AuthorProperties
	m.Spec = &csv.Spec
	return nil
}

// CSV is what rules read of operators.coreos.com/v1alpha1 ClusterServiceVersion.
type CSV struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     CSVSpec    `json:"spec"`
}

// CSVSpec is what rules read of what an operator is.
type CSVSpec struct {
	// MinKubeVersion is the oldest Kubernetes that the operator runs on. OLM looks at it after it has installed it.
	MinKubeVersion string
	// clusterPermissions and permissions are those of spec.install.spec, webhooks is spec.webhookdefinitions.
	clusterPermissions, permissions, webhooks unread

	// digest is the SHA-256 of the whole spec as it stands in the object's JSON.
	digest [sha256.Size]byte
	// raw is the JSON of the spec until keepContents replaces it by contents, its digest as contentsDigest has it.
	raw      []byte
	contents [sha256.Size]byte
}

// UnmarshalJSON also notes what the rest of the spec is.
func (s *CSVSpec) UnmarshalJSON(raw []byte) error {
	var parts struct {
		MinKubeVersion string `json:"minKubeVersion"`
		Install        struct {
			Spec struct {
				ClusterPermissions unread `json:"clusterPermissions"`
				Permissions        unread `json:"permissions"`
			} `json:"spec"`
		} `json:"install"`
		Webhooks unread `json:"webhookdefinitions"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts); err != nil {
		return err
	}
	*s = CSVSpec{MinKubeVersion: parts.MinKubeVersion, clusterPermissions: parts.Install.Spec.ClusterPermissions,
		permissions: parts.Install.Spec.Permissions, webhooks: parts.Webhooks, digest: sha256.Sum256(raw), raw: raw}
	return nil
}

// Prepare compiles the constraints that the bundles of the plan bring along, so that no judging has to, and keeps of
// manifests their digests only.
func (p *InstallPlan) Prepare() {
	prepare := func(properties string) {
		if b, err := ParseBundle(properties); err == nil {
			constraint.Prepare(b.Properties)
		}
	}
	for i := range p.Status.BundleLookups {
		prepare(p.Status.BundleLookups[i].Properties)
	}
	for i := range p.Status.Steps {
		prepare(p.Status.Steps[i].Resource.Manifest.Properties)
		p.Status.Steps[i].Resource.Manifest.Spec.keepContents()
	}
}

// key is namespace/name, with the generated part of a name that the API server has not given yet left open.
func (m *ObjectMeta) key() string {
	name := m.Name
	if name == "" && m.GenerateName != "" {
		name = m.GenerateName + "*"
	}
	if m.Namespace == "" {
		return name
	}
	return m.Namespace + "/" + name
}
