package v1beta2

// RemovalAction says what happens to one kind of object when an operator is
// removed.
type RemovalAction string

// Values of RemovalAction.
const (
	RemovalKeep   RemovalAction = "Keep"
	RemovalDelete RemovalAction = "Delete"
	// RemovalDeleteIfUnused is for operator groups only.
	RemovalDeleteIfUnused RemovalAction = "DeleteIfUnused"
)

// RemovalBehavior says, for each kind of object, whether it goes when an
// operator is removed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type RemovalBehavior struct {
	// The OperatorGroup of the namespace: Keep, Delete or DeleteIfUnused
	// (default), which deletes it only if no other Subscription is in the
	// namespace.
	//
	// +kubebuilder:validation:Enum=Keep;Delete;DeleteIfUnused
	// +kubebuilder:default=DeleteIfUnused
	// +optional
	OperatorGroups RemovalAction `json:"operatorGroups,omitempty"`

	// The Subscription: Keep or Delete (default).
	//
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Delete
	// +optional
	Subscriptions RemovalAction `json:"subscriptions,omitempty"`

	// The ClusterServiceVersion: Keep or Delete (default). Deleting it stops the
	// operator.
	//
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Delete
	// +optional
	ClusterServiceVersions RemovalAction `json:"clusterServiceVersions,omitempty"`

	// The InstallPlans of the operator: Keep (default) or Delete.
	//
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Keep
	// +optional
	InstallPlans RemovalAction `json:"installPlans,omitempty"`

	// The CustomResourceDefinitions that the operator owns: Keep (default) or
	// Delete. Deleting a definition deletes every object of its kind in the whole
	// cluster.
	//
	// +kubebuilder:validation:Enum=Keep;Delete
	// +kubebuilder:default=Keep
	// +optional
	CustomResourceDefinitions RemovalAction `json:"customResourceDefinitions,omitempty"`
}
