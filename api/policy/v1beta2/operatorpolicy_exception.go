package v1beta2

// Exception sets some rules aside for some versions until a time.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Exception struct {
	// The ClusterServiceVersions that the exception is for, in the form of
	// spec.versions: by exact name, or by name and digest of the bundle image.
	// Required; at most 32 names in all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +required
	Versions []string `json:"versions"`

	// The rules that are set aside, by the IDs that refusals name, such as
	// bundle/version. Required. Only rules on what is installed can be named that
	// a user with the verb override can set aside, too.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +required
	Rules []string `json:"rules"`

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
