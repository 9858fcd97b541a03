package v1beta2

// Severity is how grave it is when the policy is NonCompliant: low, medium, high
// or critical, each also with a capital first letter. It is repeated in reports
// and metrics and changes no decision. There is no default.
//
// +kubebuilder:validation:Enum=low;Low;medium;Medium;high;High;critical;Critical
type Severity string

// ComplianceConfigAction says what a finding does to the policy's compliance.
// +kubebuilder:validation:Enum=Compliant;NonCompliant
type ComplianceConfigAction string

// Values of ComplianceConfigAction.
const (
	ConfigCompliant    ComplianceConfigAction = "Compliant"
	ConfigNonCompliant ComplianceConfigAction = "NonCompliant"
)

// StatusConfigAction is the earlier form of ComplianceConfigAction.
// +kubebuilder:validation:Enum=StatusMessageOnly;Condition;Compliant;NonCompliant
type StatusConfigAction string

// Values of StatusConfigAction. All but NonCompliant are read as Compliant.
const (
	StatusConfigStatusMessageOnly StatusConfigAction = "StatusMessageOnly"
	StatusConfigCondition         StatusConfigAction = "Condition"
	StatusConfigCompliant         StatusConfigAction = "Compliant"
	StatusConfigNonCompliant      StatusConfigAction = "NonCompliant"
)

// ComplianceConfig says which findings make a policy NonCompliant. Each field
// is Compliant (the finding is reported and the policy stays Compliant) or
// NonCompliant (it makes the policy NonCompliant).
// ---
// The schema has no defaults here: a default would hide whether the author wrote the field,
// and statusConfig counts only where they did not. The mutating webhook fills in what is missing.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ComplianceConfig struct {
	// The CatalogSource is missing or unhealthy: Compliant or NonCompliant. Filled
	// in when the policy is written: from statusConfig.catalogSourceUnhealthy if
	// that is set, else Compliant.
	//
	// +optional
	CatalogSourceUnhealthy ComplianceConfigAction `json:"catalogSourceUnhealthy,omitempty"`

	// A Deployment of the operator is missing or not available, or OLM reports
	// the operator so for that reason: Compliant or NonCompliant. Filled in when the policy is written: from
	// statusConfig.deploymentsUnavailable if that is set, else NonCompliant.
	//
	// +optional
	DeploymentsUnavailable ComplianceConfigAction `json:"deploymentsUnavailable,omitempty"`

	// An upgrade is offered and not approved: Compliant or NonCompliant. A first
	// installation is not an upgrade. Filled in when the policy is written: from
	// statusConfig.upgradesAvailable if that is set, else Compliant.
	//
	// +optional
	UpgradesAvailable ComplianceConfigAction `json:"upgradesAvailable,omitempty"`

	// An InstallPlan is being carried out, or what it upgrades is not up yet:
	// Compliant (for ten minutes, unless it fails) or NonCompliant. Filled in when
	// the policy is written: from statusConfig.upgradesProgressing if that is set,
	// else Compliant.
	//
	// +optional
	UpgradesProgressing ComplianceConfigAction `json:"upgradesProgressing,omitempty"`

	// The package, the channel or the installed version is deprecated in the
	// catalog: Compliant or NonCompliant. Filled in with Compliant when the
	// policy is written.
	//
	// +optional
	DeprecationsPresent ComplianceConfigAction `json:"deprecationsPresent,omitempty"`

	// The package has a channel for a later minor version than the one the
	// Subscription follows: Compliant or NonCompliant. Filled in with Compliant
	// when the policy is written.
	//
	// +optional
	MinorChannelUpgradeAvailable ComplianceConfigAction `json:"minorChannelUpgradeAvailable,omitempty"`
}

// StatusConfig is the earlier form of ComplianceConfig.
//
// +kubebuilder:pruning:PreserveUnknownFields
type StatusConfig struct {
	// Read for complianceConfig.catalogSourceUnhealthy where that is not set.
	// NonCompliant is read as NonCompliant; StatusMessageOnly, Condition and
	// Compliant are read as Compliant. No default.
	//
	// +optional
	CatalogSourceUnhealthy StatusConfigAction `json:"catalogSourceUnhealthy,omitempty"`

	// Read for complianceConfig.deploymentsUnavailable where that is not set.
	// NonCompliant is read as NonCompliant; StatusMessageOnly, Condition and
	// Compliant are read as Compliant. No default.
	//
	// +optional
	DeploymentsUnavailable StatusConfigAction `json:"deploymentsUnavailable,omitempty"`

	// Read for complianceConfig.upgradesAvailable where that is not set.
	// NonCompliant is read as NonCompliant; StatusMessageOnly, Condition and
	// Compliant are read as Compliant. No default.
	//
	// +optional
	UpgradesAvailable StatusConfigAction `json:"upgradesAvailable,omitempty"`

	// Read for complianceConfig.upgradesProgressing where that is not set.
	// NonCompliant is read as NonCompliant; StatusMessageOnly, Condition and
	// Compliant are read as Compliant. No default.
	//
	// +optional
	UpgradesProgressing StatusConfigAction `json:"upgradesProgressing,omitempty"`
}
