package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of conditions.
const (
	// ConditionReady reports whether a Constraint is applied as it is written.
	ConditionReady = "Ready"
	// ConditionVirtualOperators reports whether every namespace that is to see the properties sees them. A Constraint
	// without properties that asks for no virtual operators has none.
	ConditionVirtualOperators = "VirtualOperators"
)

// ConstraintStatus is what was observed when the Constraint was last
// evaluated.
type ConstraintStatus struct {
	// The metadata.generation that was last read. If it is less than the
	// Constraint's generation, the latest change has not been read yet.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The metadata.generation that the counts below are about: the last one whose
	// constraints were held against what is installed. Absent until then.
	//
	// +optional
	EvaluatedGeneration int64 `json:"evaluatedGeneration,omitempty"`

	// The condition Ready is True if the constraints and properties are applied.
	// It is False if they cannot be: then every installation and upgrade is held.
	// The condition VirtualOperators is there if there are properties or a selector of
	// namespaces, and True if these see them. The condition DependenciesSatisfied
	// is there, and False, while a Policy suspends the Constraint because of what
	// it waits for.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// What is installed, counted for each element of spec.constraints and then of
	// spec.rules. An operator that is installed in two namespaces counts twice.
	//
	// +listType=map
	// +listMapKey=index
	// +optional
	Constraints []ConstraintCount `json:"constraints,omitempty"`

	// How often an installed operator does not satisfy one of the constraints: the
	// sum of violating over status.constraints. Nothing is done to an operator
	// that is installed already.
	//
	// +optional
	Violating int `json:"violating"`

	// The first of these violations, sorted by namespace, name and constraint.
	// status.violating counts all of them.
	//
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Violators []ConstraintViolator `json:"violators,omitempty"`

	// How many operators were installed while Opgate was not running, and are
	// refused by this Constraint. An event on each ClusterServiceVersion says why.
	//
	// +optional
	Escaped int `json:"escaped,omitempty"`

	// How many namespaces have a ClusterServiceVersion that shows the properties
	// of this Constraint to OLM. See the annotation
	// opgate.io/virtual-operator-namespaces.
	//
	// +optional
	VirtualOperators int `json:"virtualOperators"`

	// The outcome, for a Policy that has this Constraint as a template or waits
	// for it: NonCompliant if it cannot be applied or if an installed operator
	// does not satisfy it, Pending while a Policy suspends it, else Compliant.
	// Absent until it was first evaluated, and while it cannot be determined of an
	// installed operator.
	// ---
	// The annotation opgate.io/pending suspends it.
	//
	// +kubebuilder:validation:Enum=Compliant;NonCompliant;Pending
	// +optional
	Compliant string `json:"compliant,omitempty"`

	// The latest end of an exception of the spec that has ended, as in RFC 3339.
	// None that ends then or before counts again, whatever the clock of a replica
	// says. At most one.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	EndedExceptions []string `json:"endedExceptions,omitempty"`
}

// ConstraintCount says how many installed operators satisfy one constraint.
type ConstraintCount struct {
	// Which constraint: its place in the list that spec.constraints holds, from 0;
	// the elements of spec.rules are counted after those.
	//
	// +kubebuilder:validation:Minimum=0
	// +required
	Index int `json:"index"`

	// The path of the constraint, such as spec.rules[0].
	//
	// +optional
	Field string `json:"field,omitempty"`

	// The message of the constraint. Absent if it has none.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// How many installed operators satisfy it.
	//
	// +required
	Satisfied int `json:"satisfied"`

	// How many installed operators do not satisfy it.
	//
	// +required
	Violating int `json:"violating"`

	// For how many installed operators it cannot be determined, because not enough is
	// known of them or because the rule failed.
	//
	// +required
	Unknown int `json:"unknown"`
}

// ConstraintViolator is an installed operator that does not satisfy one
// constraint.
type ConstraintViolator struct {
	// The namespace in which it is installed.
	//
	// +required
	Namespace string `json:"namespace"`

	// The name of its ClusterServiceVersion.
	//
	// +required
	ClusterServiceVersion string `json:"clusterServiceVersion"`

	// The message of the constraint, if it has one, and what must be satisfied.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
