package v1beta2

// DeprecatedAction says what happens to what the catalog deprecates.
type DeprecatedAction string

// Values of DeprecatedAction.
const (
	DeprecatedHold  DeprecatedAction = "Hold"
	DeprecatedAllow DeprecatedAction = "Allow"
)

// CatalogAction says what happens to InstallPlans from a catalog with an image that is not accepted.
type CatalogAction string

// Values of CatalogAction.
const (
	CatalogHold  CatalogAction = "Hold"
	CatalogAllow CatalogAction = "Allow"
)

// Catalog says from which images of a catalog InstallPlans are approved.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Catalog struct {
	// What happens to InstallPlans while the catalog runs an image that is not in
	// accepted: Hold or Allow (default). With Hold no plan is approved either while
	// it is not known which image the catalog runs.
	//
	// +kubebuilder:validation:Enum=Hold;Allow
	// +optional
	Image CatalogAction `json:"image,omitempty"`

	// What happens to InstallPlans after a jump of the catalog, until the image that
	// jumped, or a later one, is in accepted: Hold or Allow (default). An image jumps
	// if it changes the newest versions of more than maxChangedPackages packages,
	// moves the newest version of a channel backwards, or offers versions for another
	// platform than this cluster's. With Hold no plan is approved either while an
	// image has not been compared with the one before, which takes a minute.
	//
	// +kubebuilder:validation:Enum=Hold;Allow
	// +optional
	Jump CatalogAction `json:"jump,omitempty"`

	// The number of packages that an image may change, or add and remove, without
	// being a jump. Default: 50.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxChangedPackages int32 `json:"maxChangedPackages,omitempty"`

	// The images of the catalog from which InstallPlans are approved, as the digests
	// that refusals and the status name: sha256: and 64 hexadecimal digits. At most
	// 64; remove those that the catalog does not run any more.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Accepted []string `json:"accepted,omitempty"`
}
