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

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// Policy is what dependency evaluation reads of one Policy. It is immutable.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Disabled is set where its objects are to be removed, Deleting while it is being deleted.
	Disabled, Deleting bool
	Templates          []Template
	// Faults are fields that are not valid, and that the schema lets pass. A dependency with one is never met.
	Faults field.ErrorList
	// Clashes are objects that it wants in two states at once, or names in two API versions.
	Clashes []Clash
	// NamesKnown is set where the names of all templates could be read: without them it is not known which objects to
	// prune.
	NamesKnown bool
	// Unreadable is set for a Policy that does not decode. Nothing is done for it.
	Unreadable bool
	// HidesTemplates is set where a template with dependencies cannot be read, so that it may be about any
	// OperatorPolicy of the namespace.
	HidesTemplates bool
	// Warnings are for the author of the Policy.
	Warnings []Warning

	// State and the fields below are read from the status.
	State              State
	ObservedGeneration int64
	// Evaluating is set where the status reports that templates are not evaluated yet, Excluded where it reports that
	// the namespace is excluded.
	Evaluating, Excluded bool
	// PendingDependencies are what the templates wait for.
	PendingDependencies []policyv1.DependencyStatus
}

// Ref returns the reference to the Policy.
func (p *Policy) Ref() Ref { return PolicyRef(p.Namespace, p.Name) }

// Observed returns the Policy as its dependents see it. A nil Policy does not exist.
func (p *Policy) Observed() Observed {
	if p == nil {
		return Observed{Reason: NotFound}
	}
	return observed(p.UID, p.Generation, p.ObservedGeneration, p.State, p.Evaluating)
}

// Template is one of spec.policy-templates.
type Template struct {
	Index int
	// Name is metadata.name, or template-<index> if there is none.
	Name string
	// Ref is the object that the template creates, Version its API version. Both are empty if Readable is false.
	Ref      Ref
	Version  string
	Readable bool
	// Suspendable is set for an OperatorPolicy or a Constraint.
	Suspendable   bool
	IgnorePending bool
	// Dependencies are those of the Policy and of the template, one per object, sorted. Templates share those of the
	// Policy, which would take far more than the Policy otherwise. They must not be modified.
	Dependencies []*Dependency
	// Fault is why the template cannot be applied until the Policy is edited; empty if it can.
	Fault string
	// Met is what the status reports as status.details[].dependencies while the dependencies are met; empty for a
	// template that is never suspended. Reported is what it reports.
	Met, Reported string
	// HubError is the value of metakey.HubError. Unlike Fault it counts only once the dependencies are met.
	HubError string
}

// Dependency is an object that a template depends on, and its wanted state.
type Dependency struct {
	Ref
	// Version is empty if any served version will do.
	Version string
	Want    State
	// Path is the path of the field.
	Path string
}

// Clash is one object that a Policy names inconsistently, which a rule refuses.
type Clash struct {
	Ref  Ref
	Rule verdict.RuleID
	// What is that which differs: "states" or "API versions". Paths are the fields, Says their values.
	What        string
	Paths, Says []string
}

// Warning is a consequence that the author of a Policy may not expect.
type Warning struct{ Path, Text string }

// Ref names one object, regardless of the API version. Namespace is empty for kinds that are known to be
// cluster-scoped.
type Ref struct{ Group, Kind, Namespace, Name string }

// String returns "Policy shop/db", "Constraint curated", and for groups other than Opgate's own "Widget.example.com
// shop/w".
func (r Ref) String() string {
	kind := r.Kind
	if r.Group != PolicyGroup && r.Group != ConstraintGroup && r.Group != "" {
		kind += "." + r.Group
	}
	if r.Namespace == "" {
		return text.Name(kind) + " " + text.Name(r.Name)
	}
	return text.Name(kind) + " " + text.Name(r.Namespace) + "/" + text.Name(r.Name)
}

// Compare orders by the printed kind, then by namespace and name.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(strings.Compare(r.Kind, other.Kind), strings.Compare(r.Group, other.Group),
		strings.Compare(r.Namespace, other.Namespace), strings.Compare(r.Name, other.Name))
}

// PolicyRef returns the Ref of a Policy.
func PolicyRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicy, Namespace: namespace, Name: name}
}

// OperatorPolicyRef returns the Ref of an OperatorPolicy.
func OperatorPolicyRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindOperatorPolicy, Namespace: namespace, Name: name}
}

// ConstraintRef returns the Ref of a Constraint.
func ConstraintRef(name string) Ref {
	return Ref{Group: ConstraintGroup, Kind: KindConstraint, Name: name}
}

// SetRef returns the Ref of a PolicySet.
func SetRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicySet, Namespace: namespace, Name: name}
}

// IsPolicy reports whether the object is a Policy.
func (r Ref) IsPolicy() bool { return r.Group == PolicyGroup && r.Kind == KindPolicy }

// IsSet reports whether the object is a PolicySet.
func (r Ref) IsSet() bool { return r.Group == PolicyGroup && r.Kind == KindPolicySet }

// Suspendable reports whether the object restricts what may be installed: it is suspended where others are deleted.
func (r Ref) Suspendable() bool {
	return r.Group == PolicyGroup && r.Kind == KindOperatorPolicy || r.Group == ConstraintGroup &&
		r.Kind == KindConstraint
}

// Gatekeeper reports whether the kind is one of Gatekeeper's.
func (r Ref) Gatekeeper() bool {
	return r.Group == GatekeeperConstraintGroup || r.constraintTemplate()
}

func (r Ref) constraintTemplate() bool {
	return r.Group == GatekeeperTemplateGroup && r.Kind == KindConstraintTemplate
}

// clusterScoped reports whether the kind is known to be cluster-scoped. The scope of other kinds only the cluster
// knows.
func (r Ref) clusterScoped() bool {
	return r.Group == ConstraintGroup && r.Kind == KindConstraint || r.Gatekeeper()
}

// State is a compliance state as written in a status. Empty is unknown. Objects of other controllers may have other
// states than these three.
type State string

// The states that Opgate itself sets.
const (
	Compliant    State = "Compliant"
	NonCompliant State = "NonCompliant"
	Pending      State = "Pending"
	Unknown      State = ""
)

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

// LabelTemplateValue is the value of metakey.PolicyType on the CRDs of templates.
const LabelTemplateValue = "template"

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
