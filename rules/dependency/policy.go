package dependency

import "k8s.io/apimachinery/pkg/types"

// Policy is what dependency evaluation reads of one Policy. It is immutable.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Disabled is set where its objects are to be removed, Deleting while it is being deleted.
	Disabled, Deleting bool
	Templates          []Template
	// Conflicts are objects that it wants in two states at once, Duplicates those that it names in two API versions.
	Conflicts, Duplicates []Clash
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
	PendingDependencies []PendingDependency
}

// Ref returns the reference to the Policy.
func (p *Policy) Ref() Ref { return PolicyRef(p.Namespace, p.Name) }

// Observed returns the Policy as its dependents see it. A nil Policy does not exist.
func (p *Policy) Observed() Observed {
	if p == nil {
		return Observed{Reason: NotFound}
	}
	return Observed{
		UID: p.UID, Generation: p.Generation, ObservedGeneration: p.ObservedGeneration,
		HasObserved: p.ObservedGeneration != 0,
		State:       p.State, HasState: p.State != Unknown, Evaluating: p.Evaluating,
	}
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
	// Policy, which would take far more than the Policy otherwise (threat G35). They must not be modified.
	Dependencies []*Dependency
	// Fault is why the template cannot be applied until the Policy is edited; empty if it can.
	Fault string
	// Met is what the status reports as status.details[].dependencies while the dependencies are met; empty for a
	// template that is never suspended. Reported is what it reports.
	Met, Reported string
	// HubError is the value of AnnotationHubError. Unlike Fault it counts only once the dependencies are met.
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
	// IgnoredNamespace is a namespace in the spec that is ignored.
	IgnoredNamespace string
}

// Clash is one object that a Policy names inconsistently.
type Clash struct {
	Ref Ref
	// Paths are the fields, Says their values: states or API versions.
	Paths, Says []string
}

// PendingDependency is one unmet dependency in the status of a Policy.
type PendingDependency struct {
	Ref         Ref
	Reason      Reason
	Want, State State
	// Templates are the names of the waiting templates; the list may be truncated.
	Templates []string
}

// Warning is a consequence that the author of a Policy may not expect.
type Warning struct{ Path, Text string }
