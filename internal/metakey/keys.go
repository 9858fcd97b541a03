// Package metakey has the keys of all annotations and labels that Opgate reads or writes. docs/threats.md has who may write
// each.
package metakey

// Keys of Opgate.
const (
	// OverrideReason is the break-glass annotation, and OverrideExpires when an override ends.
	OverrideReason  = "opgate.io/override-reason"
	OverrideExpires = "opgate.io/override-expires"
	// Consent has the digests of the changes that users have consented to on an InstallPlan, separated by commas or
	// blanks. ConsentBy is the user, and ConsentExpires when the consent ends.
	Consent        = "opgate.io/consent"
	ConsentBy      = "opgate.io/consent-by"
	ConsentExpires = "opgate.io/consent-expires"
	// RequestedApproval is the installPlanApproval of a Subscription before Opgate changed it to Manual.
	RequestedApproval = "opgate.io/requested-approval"
	// PolicyFields is on a Subscription that a policy created, and lists the optional fields of its spec that Opgate
	// wrote. A field of the list that is not wanted any more is removed. A Subscription without it belongs to its users.
	PolicyFields = "opgate.io/policy-fields"
	// CreatedBy is on a Subscription and an OperatorGroup that a policy created, and is the UID of the policy.
	CreatedBy = "opgate.io/created-by"
	// ResyncRequested of a Subscription is when Opgate last made OLM resolve again, EarlierResync that of earlier releases.
	ResyncRequested = "opgate.io/resync-requested-at"
	EarlierResync   = "opgate.io/nudged-at"
	// VirtualOperator labels the ClusterServiceVersions that expose cluster properties to OLM's resolver.
	VirtualOperator = "opgate.io/virtual-operator"
	// VirtualOperatorNamespaces of a Constraint selects the namespaces of its virtual operators, by labels.
	VirtualOperatorNamespaces = "opgate.io/virtual-operator-namespaces"
	// Verified is the mark of a Policy whose author's rights were verified: "<signature> [<kind>.<group>...]".
	Verified = "opgate.io/verified"
	// Pending suspends an OperatorPolicy or a Constraint, which holds approvals then: "<namespace>/<name>" of its Policy.
	Pending = "opgate.io/pending"
	// Conversion carries what the present version of an object cannot express. In v1beta2, in which policies are
	// stored and judged, that is the dialect: {"dialect":"installPlanApproval"}.
	Conversion = "opgate.io/conversion"
	// DeleteConfirmed, with the UID of the object, confirms a deletion where spec.deletion is Confirm.
	DeleteConfirmed = "opgate.io/delete-confirmed"
	// Ungoverned of a namespace sets, with approve or hold, what to do there with operators without a policy.
	Ungoverned = "opgate.io/ungoverned"
	// Record labels the ConfigMaps with what is installed, and UnreviewedInstalls is the annotation of the Lease with
	// the ClusterServiceVersions that were stored without a review.
	Record             = "opgate.io/record"
	UnreviewedInstalls = "opgate.io/escapes"
	// RotateCA requests a rotation of the CA when its value changes; RotatedCA is the last value that was processed.
	RotateCA  = "opgate.io/rotate-ca"
	RotatedCA = "opgate.io/rotated-ca"
	// NextCAPublished is since when all caBundles contain the next CA, in RFC 3339.
	NextCAPublished = "opgate.io/next-ca-published"
	// CARetire is when certificates are removed from the bundle: a JSON object of times by fingerprint.
	CARetire = "opgate.io/ca-retire"
)

// Types of causes in the answers of admission. They are keys of no object.
const (
	CauseDecision = "opgate.io/decision"
	CausePolicy   = "opgate.io/policy"
	CauseDigest   = "opgate.io/digest"
)

// Prefixes of the keys of Opgate and of Policies.
const (
	OwnPrefix    = "opgate.io/"
	policyPrefix = "policy.open-cluster-management.io/"
)

// Keys of Policies and OperatorPolicies.
const (
	// DisableTemplates, with value true, has the templates of an OperatorPolicy read as text.
	DisableTemplates = policyPrefix + "disable-templates"
	// HubError on a template reports that the hub could not resolve the template.
	HubError = policyPrefix + "hub-templates-error"
	// Policy labels what is created from a template with the name of its Policy.
	Policy = policyPrefix + "policy"
	// ClusterName and ClusterNamespace, and the plain ones, name the cluster to the existing policy controllers. The
	// cluster's namespace is that of the Policy here.
	ClusterName           = policyPrefix + "cluster-name"
	ClusterNamespace      = policyPrefix + "cluster-namespace"
	PlainClusterName      = "cluster-name"
	PlainClusterNamespace = "cluster-namespace"
	// PolicyType, with value "template" on a definition, marks a kind that templates may have.
	PolicyType = policyPrefix + "policy-type"
	// Managed is the label, and the annotation with the policy's name, of a Subscription that an OperatorPolicy manages.
	Managed = "operatorpolicy." + policyPrefix + "managed"
)

// Keys of OLM and of authors of bundles.
const (
	// CopiedFrom labels the copies of a ClusterServiceVersion that OLM creates in other namespaces.
	CopiedFrom = "olm.copiedFrom"
	// OLMManaged, with value true, labels what OLM creates, and what bundles bring.
	OLMManaged = "olm.managed"
	// ContentEncoding of a ConfigMap is how OLM has encoded an unpacked bundle.
	ContentEncoding = "olm.contentEncoding"
	// Properties holds the properties of the bundle that a ClusterServiceVersion comes from, AuthorProperties those that
	// its author has written, as a plain list.
	Properties       = "operatorframework.io/properties"
	AuthorProperties = "olm.properties"
	// OperatorNamespace is the namespace of the operator that a ClusterServiceVersion, or its copy, belongs to.
	OperatorNamespace = "olm.operatorNamespace"
	// GeneratedBy names the InstallPlan from which OLM created a Subscription, for a dependency.
	GeneratedBy = "olm.generated-by"
	// CatalogSource labels the pods of a catalog.
	CatalogSource = "olm.catalogSource"
	// ImageTemplate is what OLM writes into spec.image of a CatalogSource.
	ImageTemplate = "olm.catalogImageTemplate"
	// ServiceHash is on the Services that OLM makes for CatalogSources. OLM replaces a Service without it by its own.
	ServiceHash = "olm.service-spec-hash"
	// ComponentPrefix is the prefix of the labels by which OLM associates objects with an operator, as
	// <package>.<namespace>.
	ComponentPrefix = "operators.coreos.com/"
	// PermissionsHash labels roles and bindings that OLM makes for a ClusterServiceVersion, and Owner that and other
	// objects with what it made them for, as OwnerKind and OwnerNamespace do.
	PermissionsHash = "olm.permissions.hash"
	Owner           = "olm.owner"
	OwnerKind       = "olm.owner.kind"
	OwnerNamespace  = "olm.owner.namespace"
	// SuggestedNamespace and the labels for architectures are in what a catalog offers.
	SuggestedNamespace = "operatorframework.io/suggested-namespace"
	ArchitecturePrefix = "operatorframework.io/arch."
	// MigratedFrom and PackageName are on what OLM v1 has taken over from a Subscription.
	MigratedFrom = "olm.operatorframework.io/migrated-from-subscription"
	PackageName  = "olm.operatorframework.io/package-name"
)

// Keys of Kubernetes and others.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	// Version labels an object with the version of Opgate that it belongs to.
	Version = "app.kubernetes.io/version"
	// NamespaceName is set by the API server, and cannot be changed.
	NamespaceName = "kubernetes.io/metadata.name"
	// InjectedCA is that by which cert-manager writes the caBundles of an object.
	InjectedCA      = "cert-manager.io/inject-ca-from"
	LastApplied     = "kubectl.kubernetes.io/last-applied-configuration"
	AggregatePrefix = "rbac.authorization.k8s.io/aggregate-to-"
)

// Kept returns the keys from which Opgate takes orders, on whatever kind: static policies compare them on all objects that
// they keep, and a policy or a Constraint is judged again where one of them changes.
func Kept() []string {
	return []string{Verified, VirtualOperatorNamespaces, Pending, Conversion, DisableTemplates, ClusterName, PlainClusterName,
		PolicyType, Version, InjectedCA, RotateCA, RotatedCA, NextCAPublished, CARetire}
}
