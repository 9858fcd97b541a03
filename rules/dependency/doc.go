// Package dependency decides what waits for what: it reads Policies and PolicySets, keeps the graph of what depends on
// what, tells which dependencies are met, what is to be done with each template, and what the status says.
//
// Everything here is pure: no clock, client, context or logger. What is known of the cluster is gathered before and
// handed in as plain values.
package dependency

// PolicyGroup is the API group of Policy, PolicySet, OperatorPolicy and the kinds of the policy controllers beside
// Opgate.
const PolicyGroup = "policy.open-cluster-management.io"

// Other API groups whose kinds have rules of their own.
const (
	ConstraintGroup           = "operators.coreos.com"
	GatekeeperTemplateGroup   = "templates.gatekeeper.sh"
	GatekeeperConstraintGroup = "constraints.gatekeeper.sh"
)

// Kinds that have rules of their own.
const (
	KindPolicy             = "Policy"
	KindPolicySet          = "PolicySet"
	KindOperatorPolicy     = "OperatorPolicy"
	KindConstraint         = "Constraint"
	KindConstraintTemplate = "ConstraintTemplate"
)

// Annotations that the loop writes or reads.
const (
	// AnnotationPending suspends a guard: its value is "<namespace>/<name>" of the Policy that waits. The guard holds
	// approvals for as long as it is there.
	AnnotationPending = "opgate.io/pending"
	// AnnotationHubError on a template says that what made the Policy could not fill it in.
	AnnotationHubError = PolicyGroup + "/hub-templates-error"
)

// Labels of the objects that are made from templates, and of the CRDs that they may be of.
const (
	// LabelPolicy has the name of the Policy.
	LabelPolicy = PolicyGroup + "/policy"
	// LabelClusterName and LabelClusterNamespace name the cluster to the existing policy controllers. Here the
	// cluster's namespace is that of the Policy.
	LabelClusterName           = PolicyGroup + "/cluster-name"
	LabelClusterNamespace      = PolicyGroup + "/cluster-namespace"
	LabelPlainClusterName      = "cluster-name"
	LabelPlainClusterNamespace = "cluster-namespace"
	// LabelTemplate, with value "template" on a CRD, marks its kind as one that a template may have.
	LabelTemplate      = PolicyGroup + "/policy-type"
	LabelTemplateValue = "template"
)

// Finalizer on a Policy keeps it until its cluster-scoped template objects, which can have no owner reference to it, are
// deleted.
const Finalizer = PolicyGroup + "/cleanup-cluster-scoped-policies"

// PendingGuards says what becomes of a guard (OperatorPolicy or Constraint) whose dependencies are not met.
type PendingGuards string

const (
	// Suspend keeps the guard and has it hold approvals. It is the default: a guard that is deleted restrains nothing.
	Suspend PendingGuards = "suspend"
	// Delete treats guards like all other templates.
	Delete PendingGuards = "delete"
)
