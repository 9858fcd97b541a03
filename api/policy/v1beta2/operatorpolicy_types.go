package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Text below a line of three dashes is for readers of the Go code;
// controller-gen leaves it out of the CRD.

// RemediationAction is whether the policy acts or only reports.
//
// With inform, the default, nothing is refused, created, changed or deleted.
// What the policy would have refused appears as a warning, in audit annotations
// and in the status.
//
// With enforce, writes that break the policy are refused, InstallPlans that it
// allows are approved, and with complianceType mustnothave the operator is
// removed as removalBehavior says.
//
// Inform and Enforce mean the same as the lower-case words.
//
// +kubebuilder:validation:Enum=Inform;inform;Enforce;enforce
type RemediationAction string

// Values of RemediationAction.
const (
	Inform  RemediationAction = "inform"
	Enforce RemediationAction = "enforce"
)

// ComplianceType says whether the operator has to be present, may be present, or has to be absent.
type ComplianceType string

// Values of ComplianceType.
const (
	MustHave    ComplianceType = "musthave"
	MayHave     ComplianceType = "mayhave"
	MustNotHave ComplianceType = "mustnothave"
)

// OperatorPolicySpec is what the author of a policy asks for.
// ---
// Unknown fields are kept in storage here and in the structures below:
// pruning a misspelt "version" would leave a policy that allows every version, and the webhook nothing to refuse.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.planApproval) || self.complianceType != 'mustnothave'",message="a mustnothave policy approves no plan: remove planApproval, or write complianceType musthave or mayhave",fieldPath=".planApproval",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.planApproval) || self.remediationAction in ['enforce', 'Enforce']",message="a policy that informs approves no plan: remove planApproval, or write remediationAction enforce",fieldPath=".planApproval",reason=FieldValueForbidden
type OperatorPolicySpec struct {
	// +kubebuilder:default=inform
	// +optional
	RemediationAction RemediationAction `json:"remediationAction,omitempty"`

	// +optional
	Severity Severity `json:"severity,omitempty"`

	// Whether the operator has to be present (musthave), may be present (mayhave)
	// or has to be absent (mustnothave). Required, in lower case.
	//
	// With musthave and mayhave, versions and versionRange say which versions are
	// allowed. With musthave the policy installs the operator; with mayhave it
	// installs, corrects and removes nothing, approves what others ask for and the
	// policy allows, and is Compliant while there is no operator, so that
	// operatorGroup has no effect, and subscription.config is only compared.
	// With mustnothave they say which versions are unwanted, and upgradeApproval
	// has no effect.
	//
	// +kubebuilder:validation:Enum=musthave;mayhave;mustnothave
	// +required
	ComplianceType ComplianceType `json:"complianceType"`

	// The OperatorGroup that the operator's namespace should have. Optional:
	// without it, an OperatorGroup that is already in the namespace is taken as it
	// is, and a group for all namespaces is used when there is none.
	//
	// +optional
	OperatorGroup *OperatorGroupTemplate `json:"operatorGroup,omitempty"`

	// The OLM Subscription of the operator. Required. The policy governs every
	// Subscription in this namespace whose spec.name is the name given here,
	// whatever the Subscription object is called.
	//
	// +required
	Subscription SubscriptionTemplate `json:"subscription"`

	// +optional
	Versions Versions `json:"versions,omitempty"`

	// A range of semantic versions, compared with the version that the bundle
	// declares in its olm.package property; the name of the ClusterServiceVersion
	// is never parsed. Optional; at most 1024 characters. Absent or empty, any
	// version is in range.
	//
	// Conditions separated by a space must all hold, and || separates
	// alternatives. Operators are =, !=, >, >=, < and <=; x stands for any number.
	// Examples:
	//
	// - ">=1.2.0 <2.0.0": from 1.2.0 up to, not including, 2.0.0
	// - "1.4.x": any 1.4 version
	// - ">=1.2.0 <2.0.0 !=1.3.1 || >=2.1.0": without 1.3.1, or 2.1.0 and later
	//
	// A pre-release comes before its release: 2.0.0-rc.1 is less than 2.0.0 and so
	// is in the range of the first example.
	//
	// With complianceType musthave or mayhave the range says which versions are allowed, with
	// mustnothave which are unwanted. If versions is set as well, a
	// ClusterServiceVersion is meant only if it is both listed and in range. With
	// musthave or mayhave, subscription.startingCSV is allowed even if it is out of range. A
	// range that no version can satisfy is refused when the policy is written.
	//
	// Like versions, a range makes the Subscription's installPlanApproval Manual
	// in an enforced policy.
	// ---
	// An addition of Opgate. The syntax is that of github.com/blang/semver/v4 ParseRange.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	VersionRange string `json:"versionRange,omitempty"`

	// Whether upgrades of an operator that is already installed are approved.
	// Required.
	//
	// - Automatic: an upgrade is approved if versions and versionRange allow it.
	// - None: no upgrade is approved.
	// - Never: an earlier spelling of None.
	//
	// The first installation does not depend on this field: it is approved if
	// versions and versionRange allow it. The field has no effect with
	// complianceType mustnothave, but is required there as well.
	//
	// In an enforced policy it also decides installPlanApproval of the
	// Subscription: Automatic only if complianceType is not mustnothave, this field is
	// Automatic, versions and versionRange are empty, none of deprecated, a class of
	// consent, catalog, approvalWindows, freezes and minimumAge holds plans, and no cluster constraint applies; Manual
	// otherwise. With Manual, planApproval says who approves.
	//
	// +kubebuilder:validation:Enum=Automatic;None;Never
	// +required
	UpgradeApproval UpgradeApproval `json:"upgradeApproval"`

	// Which of the InstallPlans that the policy allows Opgate approves. A user
	// approves the others. Optional.
	//
	// - IfRequested, the default with mayhave: those for which the Subscription asks
	//   for Automatic, by installPlanApproval or annotation opgate.io/requested-approval.
	// - IfAllowed, the default with musthave: all of them, also if the Subscription
	//   says Manual, as in git. Its author needs the right to update InstallPlans there.
	//
	// A plan is approved once this holds for every operator in it. upgradeApproval
	// None holds upgrades whatever this field says, and installPlanApproval does not
	// depend on it. Refused with remediationAction inform and complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:Enum=IfRequested;IfAllowed
	// +optional
	PlanApproval PlanApproval `json:"planApproval,omitempty"`

	// What happens to InstallPlans with a version that is deprecated in its
	// catalog, or whose channel or package is. Optional.
	//
	// - Allow, the default: deprecations are reported in the status and refuse
	//   nothing.
	// - Hold: such a plan is not approved, also if versions or startingCSV name
	//   the version, nor is one while its PackageManifest is not known. What is
	//   installed already stays.
	//
	// Like versions, Hold makes the Subscription's installPlanApproval Manual in
	// an enforced policy. It has no effect with complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:Enum=Hold;Allow
	// +optional
	Deprecated DeprecatedAction `json:"deprecated,omitempty"`

	// Which changes that an InstallPlan makes need consent before it is approved,
	// beyond what is installed: new rights, webhooks, images and the like, by class.
	// Optional; absent, no change is looked at. An empty object warns of all of
	// them.
	//
	// A plan with a change of a class that is Hold is not approved until a user
	// consents to exactly that change: by its digest in accepted, or by annotation
	// opgate.io/consent on the plan, which needs the verb approve on this policy.
	// Nor is a plan approved while its contents are not known.
	//
	// A class that is Hold makes the Subscription's installPlanApproval Manual in
	// an enforced policy. It has no effect with complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +optional
	Consent *Consent `json:"consent,omitempty"`

	// From which images of its catalog the operator is installed and upgraded.
	// Optional; absent, the catalog may run any image.
	//
	// A catalog offers what is behind a tag, mostly, and OLM follows the tag. With
	// image Hold, no InstallPlan from a catalog is approved while it runs an image
	// whose digest is not in accepted; with jump Hold, none after an image that
	// changed more than a usual one does.
	//
	// Like versions, Hold makes the Subscription's installPlanApproval Manual in
	// an enforced policy. It has no effect with complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +optional
	Catalog *Catalog `json:"catalog,omitempty"`

	// +optional
	Deletion DeletionAction `json:"deletion,omitempty"`

	// When InstallPlans are approved, first installations included. Optional, at
	// most 16; absent, at any time. Outside of every window a plan that the policy
	// governs is not approved, by anybody without the verb override on this policy;
	// the refusal and the status say when the next window opens. A plan that was
	// approved in a window is installed to its end.
	//
	// Like versions, a window makes the Subscription's installPlanApproval Manual
	// in an enforced policy. It has no effect with complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ApprovalWindows []ApprovalWindow `json:"approvalWindows,omitempty"`

	// When no InstallPlan is approved, inside of approvalWindows as well. Optional,
	// at most 64. Otherwise as approvalWindows.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Freezes []Freeze `json:"freezes,omitempty"`

	// How long a catalog has to have offered a version before InstallPlans with it
	// are approved, from 1s to 8760h, such as 168h for a week. Optional. It counts
	// from when Opgate first saw the version in the catalog, which is recorded: what
	// was there when the record began counts from then. Nor is a plan approved
	// while that is not known, as for a catalog that is not run from an image.
	//
	// Like versions, an age makes the Subscription's installPlanApproval Manual
	// in an enforced policy. It has no effect with complianceType mustnothave.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxLength=32
	// +optional
	MinimumAge string `json:"minimumAge,omitempty"`

	// The ClusterServiceVersions that minimumAge does not hold, in the form of
	// versions: by exact name, or by name and digest. Optional; at most 64.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	// +listType=atomic
	// +optional
	Urgent []string `json:"urgent,omitempty"`

	// How long an upgrade may wait for approval, from 1s to 8760h, before that is
	// reported by metric opgate_upgrade_deadline_timestamp_seconds and its alert.
	// Optional. It refuses and approves nothing.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxLength=32
	// +optional
	MaximumWait string `json:"maximumWait,omitempty"`

	// Rules that are set aside for some versions until a time, each with a reason.
	// Optional, at most 32. To add one, or to prolong or widen one, needs the verb
	// override on this policy; to remove or shorten one does not. What a rule would
	// have refused is a warning that names the exception. One that has ended has no
	// effect, and what it let in counts as not allowed again.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Exceptions []Exception `json:"exceptions,omitempty"`

	// What is deleted and what is kept when the operator is removed. It applies
	// only with complianceType mustnothave. Objects that are kept do not make the
	// policy NonCompliant.
	//
	// +kubebuilder:default={}
	// +optional
	RemovalBehavior RemovalBehavior `json:"removalBehavior,omitzero"`

	// Which findings make the policy NonCompliant. A field that is left out is
	// filled in when the policy is written: from statusConfig if the same field is
	// set there, else with its default.
	//
	// +optional
	ComplianceConfig ComplianceConfig `json:"complianceConfig,omitzero"`

	// The earlier name of complianceConfig, still read. Use complianceConfig in
	// new policies. Setting the same field in both to different meanings is
	// refused.
	//
	// StatusMessageOnly, Condition and Compliant are all read as Compliant: the
	// finding is reported and the policy stays Compliant. NonCompliant is read as
	// NonCompliant.
	// ---
	// A pointer, because absent and empty differ to
	// conversion, which has to give back what was written.
	//
	// +optional
	StatusConfig *StatusConfig `json:"statusConfig,omitempty"`
}

// OperatorPolicy says whether and in which versions an operator may be
// installed in a namespace by the Operator Lifecycle Manager, and reports on
// its installation and health.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=operatorpolicies,singular=operatorpolicy,scope=Namespaced,shortName=oppol,categories=opgate
// +kubebuilder:metadata:labels="policy.open-cluster-management.io/policy-type=template"
// +kubebuilder:printcolumn:name="Compliance",type=string,JSONPath=`.status.compliant`,description="Whether the cluster is as the policy asks"
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.remediationAction`,description="Whether the policy acts (enforce) or only reports (inform)"
// +kubebuilder:printcolumn:name="Package",type=string,JSONPath=`.spec.subscription.name`,description="The package of the operator"
// +kubebuilder:printcolumn:name="Installed",type=string,JSONPath=`.status.installedVersion`,description="The installed ClusterServiceVersion"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="ClusterServiceVersionCompliant")].reason`,description="The state of the ClusterServiceVersion, such as InstallSucceeded"
// +kubebuilder:printcolumn:name="Waiting",type=string,JSONPath=`.status.waiting`,description="The ClusterServiceVersion that waits for approval, and what for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Upgrades",type=string,priority=1,JSONPath=`.spec.upgradeApproval`,description="Whether upgrades are approved"
// +kubebuilder:printcolumn:name="Approves",type=string,priority=1,JSONPath=`.spec.planApproval`,description="Which allowed InstallPlans Opgate approves, where the policy says so"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="InstallPlanCompliant")].message`,description="The InstallPlan, and every reason why it waits"
type OperatorPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the policy asks for. Required.
	//
	// +required
	Spec OperatorPolicySpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status OperatorPolicyStatus `json:"status,omitzero"`
}

// OperatorPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type OperatorPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []OperatorPolicy `json:"items"`
}
