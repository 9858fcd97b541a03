package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// Text below a line of three dashes is for readers of the Go code;
// controller-gen leaves it out of the CRD.

// ConstraintSpec is what operators must satisfy, and what the cluster offers.
// ---
//
// Unknown fields are kept, so that the webhook refuses them by name: a misspelt "constraints" that vanished
// would be a restriction that silently does not exist. The limits of length count characters, which are never more than
// bytes: the webhook counts bytes, of all fields together.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ConstraintSpec struct {
	// What every operator must satisfy that is installed or upgraded anywhere in
	// the cluster: text that holds a JSON list. Each element is an object with
	// type "olm.constraint" and a value.
	//
	// The value is either a rule, with "rule" (CEL that returns a boolean),
	// "message" (what a refusal says), "messageExpression" (CEL that returns
	// the message, optional), "evaluator" ({"id": "cel"}, optional) and "action"
	// ({"id": "require"}, the default, refuses; {"id": "warn"} only warns), or
	// one of OLM's own constraints, with "failureMessage" and one of "cel",
	// "package", "gvk", "all", "any" and "not".
	//
	// At most 65,536 bytes for each element, 256 elements here and in rules, and
	// 1,048,576 bytes for the whole spec. Optional; rules without JSON are written
	// in rules.
	// ---
	// The second form is that of github.com/operator-framework/api/pkg/constraints.
	//
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Constraints string `json:"constraints,omitempty"`

	// What the cluster offers to operators, which their own constraints may ask
	// for: text that holds a JSON list. Each element is an object with a type (any
	// text that is not empty) and a value (any JSON), as in
	// [{"type": "olm.label", "value": {"label": "secured"}}].
	//
	// At most 1,024 elements here and in offers, and 1,048,576 bytes for the whole
	// spec. Optional; properties without JSON are written in offers.
	//
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Properties string `json:"properties,omitempty"`

	// What every operator must satisfy, beside constraints: rules in CEL. They mean
	// what a rule in constraints means. At most 256, with those in constraints.
	// Optional.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Rules []ConstraintRule `json:"rules,omitempty"`

	// What the cluster offers to operators, beside properties. At most 1,024, with
	// those in properties. Optional.
	//
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Offers []ConstraintOffer `json:"offers,omitempty"`

	// Whether operators may be deleted, anywhere in the cluster. Absent, nothing is
	// refused. The API server judges deletions by itself, with chart value
	// policy.backstop.
	// ---
	// An addition of Opgate, as spec.deletion of an OperatorPolicy.
	//
	// +optional
	Deletion *ConstraintDeletion `json:"deletion,omitempty"`

	// Operators for which the Constraint is set aside until a time, each with a
	// reason. Optional, at most 32. To add one, or to prolong or widen one, needs
	// the verb override on this Constraint; to remove or shorten one does not. What
	// would have been refused is a warning that names the exception. One that has
	// ended has no effect.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Exceptions []Exception `json:"exceptions,omitempty"`
}

// ConstraintDeletion says which operators may be deleted.
// ---
// Unknown fields are kept, as in the spec.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ConstraintDeletion struct {
	// Whether what belongs to the operators may be deleted: Allow; Confirm, by
	// annotation opgate.io/delete-confirmed with the UID of the object; or Deny,
	// until this is edited to Allow. Also protected are the namespaces that the
	// operators are in, and this Constraint.
	//
	// +required
	Action policyv1beta2.DeletionAction `json:"action"`

	// The packages of the operators. Optional; absent or empty, all of them, and all
	// CatalogSources.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	Packages []string `json:"packages,omitempty"`

	// CatalogSources that are protected as well, and their namespaces. Optional.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Catalogs []DeletionCatalog `json:"catalogs,omitempty"`
}

// DeletionCatalog names a CatalogSource.
// ---
// Unknown fields are kept, as in the spec.
//
// +kubebuilder:pruning:PreserveUnknownFields
type DeletionCatalog struct {
	// The name of the CatalogSource. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Source string `json:"source"`

	// Its namespace. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	SourceNamespace string `json:"sourceNamespace"`
}

// EffectiveDeletion is the action of Deletion: Allow where that is absent, and Deny for a value that is none of the
// known ones.
func (s *ConstraintSpec) EffectiveDeletion() policyv1beta2.DeletionAction {
	switch {
	case s.Deletion == nil:
		return policyv1beta2.DeletionAllow
	case s.Deletion.Action == "":
		return policyv1beta2.DeletionDeny
	}
	return s.Deletion.Action.Effective()
}

// Exception sets a Constraint aside for some versions until a time.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Exception struct {
	// The ClusterServiceVersions that the exception is for: by exact name, or by
	// name and digest of the bundle image, such as etcdoperator.v0.9.4@sha256: and
	// 64 hexadecimal digits. Required; at most 32 names in all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +required
	Versions []string `json:"versions"`

	// The package of these versions. Without it the exception counts for any package
	// with a version of that name, and is warned of. With or without, it counts only
	// for what comes from a catalog in a namespace of chart value
	// olm.catalogNamespaces.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Package string `json:"package,omitempty"`

	// The namespaces in which the exception counts. Optional; absent, all.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`

	// Why, for warnings, events and the status. Required; at most 256 characters.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="write why the rules are set aside",reason=FieldValueRequired
	// +required
	Reason string `json:"reason"`

	// When the exception ends, as in RFC 3339: 2026-12-15T00:00:00Z, or with an
	// offset. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Expires string `json:"expires"`
}

// ConstraintRule is a rule in CEL.
// ---
// Its values are spelled as in an element of constraints. What is called on there is target here: in YAML, on is a
// boolean. Unknown fields are kept, as in the spec.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ConstraintRule struct {
	// What is judged: bundle, which is every operator that is installed or
	// upgraded; catalogSource or operatorGroup, which is every write of one.
	// Default bundle.
	//
	// +kubebuilder:validation:Enum=bundle;catalogSource;operatorGroup
	// +optional
	Target string `json:"target,omitempty"`

	// CEL that returns true for what is allowed. Required; at most 10,000 bytes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10000
	// +required
	Expression string `json:"expression"`

	// What a refusal says. Optional; without it a refusal shows the expression.
	//
	// +kubebuilder:validation:MaxLength=5120
	// +optional
	Message string `json:"message,omitempty"`

	// CEL that returns the message; where it fails, message is shown. Optional; at
	// most 10,000 bytes.
	//
	// +kubebuilder:validation:MaxLength=10000
	// +optional
	MessageExpression string `json:"messageExpression,omitempty"`

	// Whether what does not satisfy the rule is refused (require) or only warned
	// of (warn). Default require.
	//
	// +kubebuilder:validation:Enum=require;warn
	// +optional
	Action string `json:"action,omitempty"`
}

// ConstraintOffer is a property that the cluster offers.
// ---
// Unknown fields are kept, as in the spec.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ConstraintOffer struct {
	// The type of the property, such as olm.label. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Type string `json:"type"`

	// The value of the property: any value but null. Required.
	//
	// +required
	Value apiextensionsv1.JSON `json:"value"`
}

// Constraint says what every operator must satisfy that comes to the cluster,
// and what the cluster offers to operators.
// ---
// The kind is that of the proposal's example, "Constraint", not the "constraint" of its
// definition: the two contradict each other.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=constraints,singular=constraint,scope=Cluster,shortName=constraint,categories=opgate
// +kubebuilder:metadata:labels="policy.open-cluster-management.io/policy-type=template"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the constraints and properties can be applied"
// +kubebuilder:printcolumn:name="Violating",type=integer,JSONPath=`.status.violating`,description="How many installed operators do not satisfy a constraint"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Constraint struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What operators must satisfy, and what the cluster offers. Required.
	//
	// +required
	Spec ConstraintSpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status ConstraintStatus `json:"status,omitzero"`
}

// ConstraintList is a list of Constraints.
//
// +kubebuilder:object:root=true
type ConstraintList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Constraint `json:"items"`
}
