package dependency

import "k8s.io/apimachinery/pkg/types"

// Policy is what ordering knows of one Policy. It is not changed once it is made.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Disabled asks that nothing of it is there; Deleting says that it is being deleted.
	Disabled, Deleting bool
	Templates          []Template
	// Conflicts are objects that it waits for in two states at once, Duplicates those that it names in two API versions.
	Conflicts, Duplicates []Clash
	// NamesKnown says that the name of every template could be read: without that, nobody can tell what is to be pruned.
	NamesKnown bool
	// Warnings are for its author.
	Warnings []Warning

	// State and Observed are from the status, and so are Waits: what its templates wait for.
	State              State
	ObservedGeneration int64
	// Evaluating says that its status tells that its templates are not evaluated yet.
	Evaluating bool
	Waits      []Wait
}

// Ref is the reference to the Policy.
func (p *Policy) Ref() Ref { return PolicyRef(p.Namespace, p.Name) }

// Observed is what those that depend on the Policy see of it. A nil Policy does not exist.
func (p *Policy) Observed() Observed {
	if p == nil {
		return Observed{Reason: NotFound}
	}
	return Observed{
		UID: p.UID, Generation: p.Generation, ObservedGeneration: p.ObservedGeneration, HasObserved: p.ObservedGeneration != 0,
		State: p.State, HasState: p.State != Unknown, Evaluating: p.Evaluating,
	}
}

// Template is one of spec.policy-templates.
type Template struct {
	Index int
	// Name is metadata.name, or template-<index> where there is none.
	Name string
	// Ref is the object that the template makes, Version the API version that it is written in. Empty where Readable is
	// false.
	Ref      Ref
	Version  string
	Readable bool
	// Guard says that it is an OperatorPolicy or a Constraint.
	Guard         bool
	IgnorePending bool
	// Dependencies are those of the Policy and those of the template, one per object, sorted.
	Dependencies []Dependency
	// Fault is why the template cannot be applied, which only an edit of the Policy mends; empty if it can.
	Fault string
	// HubError is what the annotation AnnotationHubError says. Unlike Fault it counts only once nothing is waited for.
	HubError string
}

// Dependency is one object that is waited for, and the state it is wanted in.
type Dependency struct {
	Ref
	// Version is empty where any served version will do.
	Version string
	Want    State
	// Path is where it is written.
	Path string
	// IgnoredNamespace is the namespace that is written there and does not count.
	IgnoredNamespace string
}

// Clash is one object that a Policy names in two ways.
type Clash struct {
	Ref Ref
	// Paths are where, Says what is said there: the states or the API versions.
	Paths, Says []string
}

// Wait is one unmet dependency, as the status of a Policy tells it.
type Wait struct {
	Ref         Ref
	Reason      Reason
	Want, State State
	// Templates names those that wait; it may be cut.
	Templates []string
}

// Warning is something that the author of a Policy will not expect.
type Warning struct{ Path, Text string }
