package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Text below a line of three dashes is for readers of the Go code;
// controller-gen leaves it out of the CRD.

// RemediationAction says whether the templates of a policy act or only report.
// ---
// Source: the public Policy API.
type RemediationAction string

// Values of RemediationAction. The capitalised spellings mean the same.
const (
	Inform  RemediationAction = "inform"
	Enforce RemediationAction = "enforce"
)

// ComplianceState is the outcome for a policy or for one of its templates.
// ---
// Pending is an addition of the proposal; the others are older.
type ComplianceState string

// Values of ComplianceState.
const (
	Compliant    ComplianceState = "Compliant"
	NonCompliant ComplianceState = "NonCompliant"
	// Pending is for what waits for something it depends on.
	Pending ComplianceState = "Pending"
)

// PolicySpec is what the author of a policy asks for.
// ---
// The public API, as of governance-policy-propagator 19b1b7b. Fields that it gets later are kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicySpec struct {
	// Whether the policy is switched off. A policy that is switched off has none
	// of its templates applied: objects that it made are deleted.
	// ---
	// Always written, because the public API requires it; not required here, because the example of the
	// proposal leaves it out.
	//
	// +kubebuilder:default=false
	// +optional
	Disabled bool `json:"disabled"`

	// Whether the templates act or only report. It takes the place of
	// spec.remediationAction in each template; a template that says InformOnly
	// only reports in any case. Without it, each template says for itself.
	//
	// Inform and Enforce mean the same as the lower-case words.
	//
	// +kubebuilder:validation:Enum=Inform;inform;Enforce;enforce
	// +optional
	RemediationAction RemediationAction `json:"remediationAction,omitempty"`

	// What has to be so before any of the templates is applied. A template waits
	// for these and for its own extraDependencies. Optional; at most 500.
	// ---
	// The limit lets the API server bound the cost of the rule on namespaces.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Dependencies []PolicyDependency `json:"dependencies,omitempty"`

	// The objects that the policy applies. Required; at most 500.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +required
	PolicyTemplates []*PolicyTemplate `json:"policy-templates"`

	// Read by a hub that copies the policy to other clusters. Not used here.
	//
	// +optional
	CopyPolicyMetadata *bool `json:"copyPolicyMetadata,omitempty"`

	// Read by a hub that resolves its own templates in the policy. Not used here.
	//
	// +optional
	HubTemplateOptions *HubTemplateOptions `json:"hubTemplateOptions,omitempty"`
}

// HubTemplateOptions says how a hub resolves its own templates in a policy.
// ---
// Source: the public Policy API.
//
// +kubebuilder:pruning:PreserveUnknownFields
type HubTemplateOptions struct {
	// The service account on the hub whose rights are used.
	//
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// PolicyDependency names an object and the state it has to be in.
// ---
// The rule on namespaces is that of the public API. apiVersion is required there, but the
// example of the proposal leaves it out.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!(self.kind in ['ConfigurationPolicy', 'CertificatePolicy']) || !has(self.namespace) || self.namespace.size() == 0",message="must be empty for a ConfigurationPolicy or a CertificatePolicy, which is looked for in the namespace of the policy: leave it out",fieldPath=".namespace",reason=FieldValueInvalid
type PolicyDependency struct {
	// The API version of the object, such as
	// policy.open-cluster-management.io/v1. Left out, the object is one of the
	// group policy.open-cluster-management.io, in any version.
	//
	// +kubebuilder:validation:MaxLength=317
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// The kind of the object, such as Policy, PolicySet, OperatorPolicy or
	// ConfigurationPolicy. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`

	// The name of the object. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// The namespace of the object. Left out, it is that of the policy. Kinds of
	// the group policy.open-cluster-management.io whose name ends in Policy, but
	// for Policy itself, are always looked for in the namespace of the policy;
	// for ConfigurationPolicy and CertificatePolicy the field must be empty.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// The state that the object has to be in: Compliant, NonCompliant or Pending.
	// It is read from status.compliant of the object, or from
	// status.complianceState. Required.
	//
	// +kubebuilder:validation:Enum=Compliant;Pending;NonCompliant
	// +required
	Compliance ComplianceState `json:"compliance"`
}

// PolicyTemplate is one object that a policy applies.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicyTemplate struct {
	// The object. A namespaced one is always made in the namespace of the policy.
	// Required.
	// ---
	// Any object can be stored here. One without a kind or a name is reported as a template error, and does not
	// stop the other templates.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +required
	ObjectDefinition runtime.RawExtension `json:"objectDefinition"`

	// What has to be so before this template is applied, besides
	// spec.dependencies. Optional; at most 500.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	ExtraDependencies []PolicyDependency `json:"extraDependencies,omitempty"`

	// Whether the template counts as Compliant while it waits for its
	// dependencies. It waits all the same.
	//
	// +optional
	IgnorePending bool `json:"ignorePending,omitempty"`
}

// Policy holds objects that are applied together, each as soon as what it
// depends on is in the wanted state, and reports on them.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=policies,singular=policy,scope=Namespaced,shortName=plc,categories=opgate
// +kubebuilder:printcolumn:name="Remediation action",type=string,JSONPath=`.spec.remediationAction`,description="Whether the templates act (enforce) or only report (inform)"
// +kubebuilder:printcolumn:name="Compliance state",type=string,JSONPath=`.status.compliant`,description="Whether the cluster is as the policy asks, or the policy waits"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Policy struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the policy applies, and what it waits for. Required.
	//
	// +required
	Spec PolicySpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status PolicyStatus `json:"status,omitzero"`
}

// PolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Policy `json:"items"`
}
