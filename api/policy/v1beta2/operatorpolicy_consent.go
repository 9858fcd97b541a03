package v1beta2

// ConsentAction says what happens to an InstallPlan that makes a change of a class to which no one has consented.
type ConsentAction string

// Values of ConsentAction.
const (
	ConsentHold   ConsentAction = "Hold"
	ConsentWarn   ConsentAction = "Warn"
	ConsentIgnore ConsentAction = "Ignore"
)

// Consent says which changes, that a new version of the operator makes, need review.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Consent struct {
	// Rules of RBAC that nothing installed covers, for the operator or for others,
	// the ServiceAccounts that pods run as, their tokens, and Secrets of the bundle:
	// Hold, Warn (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	Permissions ConsentAction `json:"permissions,omitempty"`

	// Admission and conversion webhooks that are new or match more than before:
	// Hold, Warn (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	Webhooks ConsentAction `json:"webhooks,omitempty"`

	// Changes of CustomResourceDefinitions that stored objects or clients may not
	// survive: Hold, Warn (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	BreakingCRDs ConsentAction `json:"breakingCRDs,omitempty"`

	// Images from a registry that nothing installed comes from: Hold, Warn
	// (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	Images ConsentAction `json:"images,omitempty"`

	// Settings of pods that reach the node, such as host namespaces, host paths
	// and privileged containers, what they mount, and every other field of a pod
	// that is not known to be harmless: Hold, Warn (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	PodSecurity ConsentAction `json:"podSecurity,omitempty"`

	// New and changed objects of the bundle that no other field is about, and new
	// install modes: Hold, Warn (default) or Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	Scope ConsentAction `json:"scope,omitempty"`

	// What happens to a first installation, which replaces nothing, so that
	// everything it brings is new: Hold, Warn or Ignore (default). It applies to
	// all classes above, except those that are Ignore.
	//
	// +kubebuilder:validation:Enum=Hold;Warn;Ignore
	// +optional
	FirstInstall ConsentAction `json:"firstInstall,omitempty"`

	// The changes that were reviewed and may be installed, as the digests that
	// refusals, warnings and the status name: sha256: and 64 hexadecimal digits. A
	// digest stands for exactly one change from one version to another, and is
	// the same in every cluster. At most 64; remove those that are installed.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Accepted []string `json:"accepted,omitempty"`
}
