package v1

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

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
	// +kubebuilder:validation:Enum=Allow;Confirm;Deny
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
