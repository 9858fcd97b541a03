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

// Labels of the objects that are created from templates, and of their CRDs.
const (
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
