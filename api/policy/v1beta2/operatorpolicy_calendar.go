package v1beta2

// ApprovalWindow is a span of time, again and again, in which InstallPlans are approved.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ApprovalWindow struct {
	// When the window opens, as five fields of cron: minute, hour, day of month,
	// month and day of week. Required. "0 22 * * 6" is every Saturday at 22:00. If
	// day of month and day of week are both restricted, either is enough.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Cron string `json:"cron"`

	// How long the window is open, from 1m to 168h, such as 4h or 1h30m. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +required
	Duration string `json:"duration"`

	// The time zone of cron, by its name in the IANA database, such as
	// Europe/Berlin. Default: UTC. On the day on which clocks go forward, a window
	// of the hour that is left out opens when they do; on the day on which they go
	// back, one of the hour that comes twice opens the first time only.
	//
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Freeze is a span of time in which no InstallPlan is approved.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Freeze struct {
	// When the freeze begins, as in RFC 3339: 2026-12-15T00:00:00Z, or with an
	// offset. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Start string `json:"start"`

	// When the freeze ends, in the same form and after start. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	End string `json:"end"`

	// Why, for refusals and the status. Optional; at most 256 characters.
	//
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
}
