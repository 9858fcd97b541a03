package v1beta2

import "strings"

// IsEnforced reports whether the policy may refuse and write. Only inform, in any case, and leaving the field
// out make it a policy that informs: an unknown value must not disable a policy.
func (s *OperatorPolicySpec) IsEnforced() bool {
	return s.RemediationAction != "" && !strings.EqualFold(string(s.RemediationAction), string(Inform))
}

// IsMustNotHave reports whether the policy wants the operator to be absent.
func (s *OperatorPolicySpec) IsMustNotHave() bool {
	return s.ComplianceType == MustNotHave
}

// UpgradeApproval says whether upgrades of an installed operator are approved.
type UpgradeApproval string

// Values of UpgradeApproval. Read it through
// OperatorPolicySpec.EffectiveUpgradeApproval.
const (
	UpgradeApprovalAutomatic UpgradeApproval = "Automatic"
	UpgradeApprovalNone      UpgradeApproval = "None"
	// UpgradeApprovalNever is an older spelling of None.
	UpgradeApprovalNever UpgradeApproval = "Never"
)

// EffectiveUpgradeApproval is UpgradeApproval with the older spelling Never read as None.
func (s *OperatorPolicySpec) EffectiveUpgradeApproval() UpgradeApproval {
	if s.UpgradeApproval == UpgradeApprovalNever {
		return UpgradeApprovalNone
	}
	return s.UpgradeApproval
}

// PlanApproval says which of the InstallPlans that a policy allows Opgate approves.
type PlanApproval string

// Values of PlanApproval. Read it through OperatorPolicySpec.EffectivePlanApproval.
const (
	PlanApprovalIfRequested PlanApproval = "IfRequested"
	PlanApprovalIfAllowed   PlanApproval = "IfAllowed"
)

// EffectivePlanApproval is PlanApproval or its default: IfAllowed with musthave, else IfRequested, as with mustnothave.
func (s *OperatorPolicySpec) EffectivePlanApproval() PlanApproval {
	switch {
	case s.IsMustNotHave():
	case s.PlanApproval != "":
		return s.PlanApproval
	case s.ComplianceType == MustHave:
		return PlanApprovalIfAllowed
	}
	return PlanApprovalIfRequested
}

// ConsentAction says what happens to an InstallPlan that makes a change of a class to which no one has consented.
//
// +kubebuilder:validation:Enum=Hold;Warn;Ignore
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
	// +optional
	Permissions ConsentAction `json:"permissions,omitempty"`

	// Admission and conversion webhooks that are new or match more than before:
	// Hold, Warn (default) or Ignore.
	//
	// +optional
	Webhooks ConsentAction `json:"webhooks,omitempty"`

	// Changes of CustomResourceDefinitions that stored objects or clients may not
	// survive: Hold, Warn (default) or Ignore.
	//
	// +optional
	BreakingCRDs ConsentAction `json:"breakingCRDs,omitempty"`

	// Images from a registry that nothing installed comes from: Hold, Warn
	// (default) or Ignore.
	//
	// +optional
	Images ConsentAction `json:"images,omitempty"`

	// Settings of pods that reach the node, such as host namespaces, host paths
	// and privileged containers, what they mount, and every other field of a pod
	// that is not known to be harmless: Hold, Warn (default) or Ignore.
	//
	// +optional
	PodSecurity ConsentAction `json:"podSecurity,omitempty"`

	// New and changed objects of the bundle that no other field is about, and new
	// install modes: Hold, Warn (default) or Ignore.
	//
	// +optional
	Scope ConsentAction `json:"scope,omitempty"`

	// What happens to a first installation, which replaces nothing, so that
	// everything it brings is new: Hold, Warn or Ignore (default). It applies to
	// all classes above, except those that are Ignore.
	//
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

// DeletionAction is whether the operator may be deleted: its Subscription, its
// ClusterServiceVersion, the OperatorGroups of its namespace, the CatalogSource
// that the policy names, the CustomResourceDefinitions that OLM has labelled as
// the operator's, the namespaces of all of these and of the policy, and the
// policy itself. Optional.
//
//   - Allow, the default: nothing is refused.
//   - Confirm: a deletion is refused unless annotation opgate.io/delete-confirmed
//     of the object has its metadata.uid.
//   - Deny: a deletion is refused. To delete the operator, or the policy, set this
//     field to Allow first.
//
// The API server judges deletions by itself, so the field has an effect in an
// enforced policy only, and only with --backstop=enforce. OLM, Opgate, the
// garbage collector and the namespace controller are not refused.
//
// With complianceType mustnothave, or beside such a policy, Deny wins: the
// operator is not removed. Confirm does not keep a mustnothave policy from
// removing it.
// ---
// An addition of Opgate.
//
// +kubebuilder:validation:Enum=Allow;Confirm;Deny
type DeletionAction string

// Values of DeletionAction. Read it through OperatorPolicySpec.EffectiveDeletion.
const (
	DeletionAllow   DeletionAction = "Allow"
	DeletionConfirm DeletionAction = "Confirm"
	DeletionDeny    DeletionAction = "Deny"
)

// Effective is Allow for no value, and Deny for one that is none of the known ones, which must not open what it closes.
func (a DeletionAction) Effective() DeletionAction {
	switch a {
	case "", DeletionAllow:
		return DeletionAllow
	case DeletionConfirm, DeletionDeny:
		return a
	}
	return DeletionDeny
}

// EffectiveDeletion is what Deletion means: Allow for a policy that informs.
func (s *OperatorPolicySpec) EffectiveDeletion() DeletionAction {
	if !s.IsEnforced() {
		return DeletionAllow
	}
	return s.Deletion.Effective()
}

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
