// Package dependency evaluates dependencies: it reads Policies and PolicySets, maintains the dependency graph, and
// decides which dependencies are met, what to do with each template, and what the status reports. It judges writes of
// both kinds:
//
//	JudgePolicy     creating and updating a Policy; Needs lists the rights that its author must have
//	JudgePolicySet  creating and updating a PolicySet
//
// Everything here is pure: no clock, client, context or logger. Callers observe the cluster first and pass plain
// values.
package dependency

// PolicyGroup is the API group of Policy, PolicySet, OperatorPolicy and the kinds of the other policy controllers.
const PolicyGroup = "policy.open-cluster-management.io"

// Other API groups whose kinds are handled specially.
const (
	ConstraintGroup           = "operators.coreos.com"
	GatekeeperTemplateGroup   = "templates.gatekeeper.sh"
	GatekeeperConstraintGroup = "constraints.gatekeeper.sh"
)

// Kinds that are handled specially.
const (
	KindPolicy             = "Policy"
	KindPolicySet          = "PolicySet"
	KindOperatorPolicy     = "OperatorPolicy"
	KindConstraint         = "Constraint"
	KindConstraintTemplate = "ConstraintTemplate"
)

// Annotations that the background loop writes or reads.
const (
	// AnnotationPending suspends an OperatorPolicy or a Constraint: its value is "<namespace>/<name>" of the Policy
	// that waits. A suspended one holds approvals.
	AnnotationPending = "opgate.io/pending"
	// AnnotationHubError on a template says that the hub could not resolve the template.
	AnnotationHubError = PolicyGroup + "/hub-templates-error"
)

// Labels of the objects that are created from templates, and of their CRDs.
const (
	// LabelPolicy is the name of the Policy.
	LabelPolicy = PolicyGroup + "/policy"
	// LabelClusterName and LabelClusterNamespace name the cluster to the existing policy controllers. The cluster's
	// namespace is that of the Policy here.
	LabelClusterName           = PolicyGroup + "/cluster-name"
	LabelClusterNamespace      = PolicyGroup + "/cluster-namespace"
	LabelPlainClusterName      = "cluster-name"
	LabelPlainClusterNamespace = "cluster-namespace"
	// LabelTemplate, with value "template" on a CRD, marks a kind that templates may have.
	LabelTemplate      = PolicyGroup + "/policy-type"
	LabelTemplateValue = "template"
)

// Finalizer keeps a Policy until its cluster-scoped template objects, which cannot have an owner reference to it, are
// deleted.
const Finalizer = PolicyGroup + "/cleanup-cluster-scoped-policies"

// PendingGuards is what happens to an OperatorPolicy or a Constraint whose dependencies are not met.
type PendingGuards string

const (
	// Suspend keeps the object, which then holds approvals. It is the default: a deleted one restricts nothing.
	Suspend PendingGuards = "suspend"
	// Delete treats it like the object of any other template.
	Delete PendingGuards = "delete"
)
