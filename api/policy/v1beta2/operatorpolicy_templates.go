package v1beta2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Label is a lowercase RFC 1123 label, or template text.
//
// +kubebuilder:validation:XValidation:rule="self.contains('{{') || self.matches('^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$')",messageExpression=`!self.matches("^[ -~]*$") ? "must be ASCII: type the name instead of copying it" : self.size() > 63 ? "must be no more than 63 characters" : "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"`
type Label = string

// Subdomain is a lowercase RFC 1123 subdomain, or template text.
//
// +kubebuilder:validation:XValidation:rule="self.contains('{{') || self.size() <= 253 && self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')",messageExpression=`!self.matches("^[ -~]*$") ? "must be ASCII: type the name instead of copying it" : self.size() > 253 ? "must be no more than 253 characters" : "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"`
type Subdomain = string

// Versions are the ClusterServiceVersions that the policy is about, by exact
// and case-sensitive name, such as etcdoperator.v0.9.4. Optional; at most 1000
// entries, and 10000 names in all. An entry may hold several names separated by
// commas, in at most 65536 characters; white space
// around a name is ignored and so is an empty name. A list that is absent, or
// empty once it has been read like this, stands for every version.
//
// A name followed by the digest of a bundle image, such as
// etcdoperator.v0.9.4@sha256: and 64 hexadecimal digits, is that version with
// these contents only. InstallPlans are compared by the digest in
// status.bundleLookups; the repository may be that of a mirror. A plan whose
// bundle has no digest, or that contains the bundle itself, is refused. The
// digest of an installed operator is not known: there the name counts, and
// nothing is removed by its digest.
//
// With complianceType musthave or mayhave these are the versions that may be installed
// and that count as compliant. subscription.startingCSV is allowed even if it
// is not listed. With mustnothave these are the versions that must not be
// present.
//
// In an enforced policy, a list that is not empty makes the Subscription's
// installPlanApproval Manual, so that each InstallPlan can be checked before
// it is approved.
//
// +kubebuilder:validation:MaxItems=1000
// +kubebuilder:validation:items:MaxLength=65536
// +listType=atomic
type Versions []string

// Channel is the channel of the package to follow. Optional; the default
// is the package's own default channel. If set, a Subscription with another
// channel breaks the policy.
//
// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not start or end with white space"
type Channel = string

// Source is the name of the CatalogSource that the operator comes from. Optional;
// the default is the catalog that offers the package. If set, a Subscription with
// another source breaks the policy.
//
// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not start or end with white space"
// +kubebuilder:validation:XValidation:rule="self.contains('{{') || self.size() <= 253",message="must be no more than 253 characters"
type Source = string

// OperatorGroupTemplate describes the OperatorGroup of the operator's
// namespace. Fields that are not listed are refused when the policy is
// written.
// ---
// The fields of an OLM OperatorGroup's spec stand beside the
// design's own target. Unknown fields are kept in storage, because pruning them would leave the webhook
// nothing to refuse. Fields of type JSON may hold the text of a template where an object or list is meant.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OperatorGroupTemplate struct {
	// The name of the OperatorGroup object. Required within operatorGroup.
	//
	// +kubebuilder:validation:MinLength=1
	// +required
	Name Subdomain `json:"name"`

	// The namespace of the OperatorGroup. Optional; the default is
	// subscription.namespace, and if both are set they must be equal.
	//
	// +optional
	Namespace Label `json:"namespace,omitempty"`

	// The namespaces that the operator watches, as a list or as a selector.
	// Optional; it says the same as targetNamespaces and selector of this
	// operatorGroup and cannot be combined with them. Without any of these the
	// group targets all namespaces.
	//
	// +optional
	Target *OperatorGroupTarget `json:"target,omitempty"`

	// The names of the namespaces that the operator watches, as a list of strings.
	// Optional. It cannot be combined with selector or target. Without any of
	// these the group targets all namespaces.
	//
	// +optional
	TargetNamespaces *apiextensionsv1.JSON `json:"targetNamespaces,omitempty"`

	// A label selector, with matchLabels or matchExpressions, for the namespaces
	// that the operator watches. Optional. It cannot be combined with
	// targetNamespaces or target.
	//
	// +optional
	Selector *apiextensionsv1.JSON `json:"selector,omitempty"`

	// The name of a ServiceAccount in the group's namespace. Optional. OLM
	// installs the operator with the rights of this account instead of its own.
	//
	// +optional
	ServiceAccountName Subdomain `json:"serviceAccountName,omitempty"`

	// Whether the list of APIs that the group provides is fixed: true or false.
	// Optional; the default is false, and OLM then keeps the list up to date.
	//
	// +optional
	StaticProvidedAPIs *apiextensionsv1.JSON `json:"staticProvidedAPIs,omitempty"`

	// How OLM upgrades the operators of the group: Default or
	// TechPreviewUnsafeFailForward. Optional; the default is Default.
	//
	// +optional
	UpgradeStrategy string `json:"upgradeStrategy,omitempty"`
}

// OperatorGroupTarget names the namespaces that an operator watches. One of
// the two fields may be set.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OperatorGroupTarget struct {
	// The names of the namespaces that the operator watches, as a list of strings.
	// Optional. It cannot be combined with selector.
	//
	// +optional
	Namespaces *apiextensionsv1.JSON `json:"namespaces,omitempty"`

	// A label selector, with matchLabels or matchExpressions, for the namespaces
	// that the operator watches. Optional. It cannot be combined with namespaces.
	//
	// +optional
	Selector *apiextensionsv1.JSON `json:"selector,omitempty"`
}

// SubscriptionTemplate describes the OLM Subscription of the operator. Fields
// that are not listed are refused when the policy is written.
// ---
// Unknown fields are kept in storage, because pruning them
// would leave the webhook nothing to refuse.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SubscriptionTemplate struct {
	// The package of the operator in its catalog, and the name of the Subscription
	// where the policy creates one. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +required
	Name Label `json:"name"`

	// The namespace of the Subscription, in which the operator is installed.
	// Optional; the default is the namespace that the package suggests. A policy
	// governs nothing until its namespace is known, so set it here where you can.
	//
	// +optional
	Namespace Label `json:"namespace,omitempty"`

	// +optional
	Channel Channel `json:"channel,omitempty"`

	// +optional
	Source Source `json:"source,omitempty"`

	// The namespace of the CatalogSource. Optional; the default is the namespace
	// of the catalog that offers the package.
	//
	// +optional
	SourceNamespace Label `json:"sourceNamespace,omitempty"`

	// The name of the ClusterServiceVersion to install first. Optional; the
	// default is the newest one in the channel. With complianceType musthave this
	// version is allowed even if versions does not list it or it is outside
	// versionRange.
	//
	// +optional
	StartingCSV Subdomain `json:"startingCSV,omitempty"`

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

	// Prohibited: a policy that sets this is refused. Use spec.upgradeApproval
	// instead: Automatic where this said Automatic, None where it said Manual. The
	// value on the Subscription follows from upgradeApproval, versions and
	// versionRange.
	// ---
	// Declared only so that validation can name it and `kubectl explain` can explain it. Of any JSON
	// type, because every value is refused by the webhook, with the fix.
	//
	// +optional
	InstallPlanApproval *apiextensionsv1.JSON `json:"installPlanApproval,omitempty"`
}
