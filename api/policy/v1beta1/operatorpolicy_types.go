package v1beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/api/policy/v1beta2"
)

// Text below a line of three dashes is for readers of the Go code;
// controller-gen leaves it out of the CRD.

// OperatorPolicySpec is what the author of a policy asks for.
// ---
// Source: seeds 000 ("v1beta1 and v1beta2 Differences and Conversions") and 001 ("OperatorPolicy Syntax").
// Unknown fields are kept for the reason given at v1beta2.OperatorPolicySpec.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OperatorPolicySpec struct {
	// +kubebuilder:default=inform
	// +optional
	RemediationAction v1beta2.RemediationAction `json:"remediationAction,omitempty"`

	// +optional
	Severity v1beta2.Severity `json:"severity,omitempty"`

	// Whether the operator has to be present (musthave), may be present (mayhave)
	// or has to be absent (mustnothave). Required, in lower case.
	//
	// With musthave and mayhave, versions says which versions are
	// allowed. With musthave the policy installs the operator; with mayhave it
	// installs, corrects and removes nothing, approves what others ask for and the
	// policy allows, and is Compliant while there is no operator, so that
	// operatorGroup has no effect, and subscription.config is only compared.
	// With mustnothave it says which versions are unwanted, and upgradeApproval
	// has no effect.
	//
	// +kubebuilder:validation:Enum=musthave;mayhave;mustnothave
	// +required
	ComplianceType v1beta2.ComplianceType `json:"complianceType"`

	// The OperatorGroup that the operator's namespace should have. Optional:
	// without it, an OperatorGroup that is already in the namespace is taken as it
	// is, and a group for all namespaces is used when there is none.
	//
	// +optional
	OperatorGroup *v1beta2.OperatorGroupTemplate `json:"operatorGroup,omitempty"`

	// The OLM Subscription of the operator. Required. The policy governs every
	// Subscription in this namespace whose spec.name is the name given here,
	// whatever the Subscription object is called.
	//
	// +required
	Subscription SubscriptionTemplate `json:"subscription"`

	// +optional
	Versions v1beta2.Versions `json:"versions,omitempty"`

	// Whether upgrades of an operator that is already installed are approved:
	// Automatic (an upgrade is approved if versions allows it) or None. The first
	// installation does not depend on it.
	//
	// Either this field or subscription.installPlanApproval, its earlier form, is
	// required. If both are set they must say the same: Automatic is Automatic in
	// both, None here is Manual there.
	//
	// +kubebuilder:validation:Enum=Automatic;None
	// +optional
	UpgradeApproval v1beta2.UpgradeApproval `json:"upgradeApproval,omitempty"`

	// +optional
	Deletion v1beta2.DeletionAction `json:"deletion,omitempty"`

	// What is deleted and what is kept when the operator is removed. It applies
	// only with complianceType mustnothave. Objects that are kept do not make the
	// policy NonCompliant.
	//
	// +kubebuilder:default={}
	// +optional
	RemovalBehavior v1beta2.RemovalBehavior `json:"removalBehavior,omitzero"`

	// Which findings make the policy NonCompliant. A field that is left out is
	// filled in with its default when the policy is written.
	//
	// +optional
	ComplianceConfig ComplianceConfig `json:"complianceConfig,omitzero"`
}

// ComplianceConfig says which findings make a policy NonCompliant. Each field
// is Compliant (the finding is reported and the policy stays Compliant) or
// NonCompliant (it makes the policy NonCompliant).
//
// +kubebuilder:pruning:PreserveUnknownFields
type ComplianceConfig struct {
	// The CatalogSource is missing or unhealthy: Compliant or NonCompliant. Filled
	// in with Compliant when the policy is written.
	//
	// +optional
	CatalogSourceUnhealthy v1beta2.ComplianceConfigAction `json:"catalogSourceUnhealthy,omitempty"`

	// A Deployment of the operator is missing or not available: Compliant or
	// NonCompliant. Filled in with NonCompliant when the policy is written.
	//
	// +optional
	DeploymentsUnavailable v1beta2.ComplianceConfigAction `json:"deploymentsUnavailable,omitempty"`

	// An upgrade is offered and not approved: Compliant or NonCompliant. A first
	// installation is not an upgrade. Filled in with Compliant when the policy is
	// written.
	//
	// +optional
	UpgradesAvailable v1beta2.ComplianceConfigAction `json:"upgradesAvailable,omitempty"`

	// The package, the channel or the installed version is deprecated in the
	// catalog: Compliant or NonCompliant. Filled in with Compliant when the
	// policy is written.
	//
	// +optional
	DeprecationsPresent v1beta2.ComplianceConfigAction `json:"deprecationsPresent,omitempty"`

	// The package has a channel for a later minor version than the one the
	// Subscription follows: Compliant or NonCompliant. Filled in with Compliant
	// when the policy is written.
	//
	// +optional
	MinorChannelUpgradeAvailable v1beta2.ComplianceConfigAction `json:"minorChannelUpgradeAvailable,omitempty"`
}

// SubscriptionTemplate describes the OLM Subscription of the operator. Fields
// that are not listed are refused when the policy is written.
// ---
// Source: seeds 000 and 001, "OperatorPolicy Syntax".
//
// +kubebuilder:pruning:PreserveUnknownFields
type SubscriptionTemplate struct {
	// The package of the operator in its catalog, and the name of the Subscription
	// where the policy creates one. Required.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +required
	Name v1beta2.Label `json:"name"`

	// The namespace of the Subscription, in which the operator is installed.
	// Optional; the default is the namespace that the package suggests. A policy
	// governs nothing until its namespace is known, so set it here where you can.
	//
	// +optional
	Namespace v1beta2.Label `json:"namespace,omitempty"`

	// +optional
	Channel v1beta2.Channel `json:"channel,omitempty"`

	// +optional
	Source v1beta2.Source `json:"source,omitempty"`

	// The namespace of the CatalogSource. Optional; the default is the namespace
	// of the catalog that offers the package.
	//
	// +optional
	SourceNamespace v1beta2.Label `json:"sourceNamespace,omitempty"`

	// The name of the ClusterServiceVersion to install first. Optional; the
	// default is the newest one in the channel. With complianceType musthave this
	// version is allowed even if versions does not list it.
	//
	// +optional
	StartingCSV v1beta2.Subdomain `json:"startingCSV,omitempty"`

	// How OLM sets up the operator's Deployments: env, envFrom, volumes,
	// volumeMounts, tolerations, resources, nodeSelector, affinity, selector and
	// annotations, as in spec.config of an OLM Subscription. Optional.
	//
	// In an enforced policy a Subscription with another config is refused. Without
	// one, or with {}, a Subscription may set what it likes but variables whose
	// names begin with RELATED_IMAGE_, envFrom, volumes and volumeMounts.
	//
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`

	// The earlier form of spec.upgradeApproval: Automatic, or Manual, which is read
	// as upgradeApproval: None. The value on the Subscription itself follows from
	// the policy as a whole.
	// ---
	// Of any JSON type: a value that fits neither is refused by the webhook, with the fix, and one that is
	// stored already is converted all the same.
	//
	// +optional
	InstallPlanApproval *apiextensionsv1.JSON `json:"installPlanApproval,omitempty"`
}

// OperatorPolicy says whether and in which versions an operator may be
// installed in a namespace by the Operator Lifecycle Manager, and reports on
// its installation and health.
// ---
// Served for documents of the first releases; v1beta2 is what is stored.
//
// +kubebuilder:object:root=true
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
	Status v1beta2.OperatorPolicyStatus `json:"status,omitzero"`
}

// OperatorPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type OperatorPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []OperatorPolicy `json:"items"`
}
