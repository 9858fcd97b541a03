package dependency

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/internal/text"
)

// Set is what dependency evaluation reads of one PolicySet. It is immutable.
type Set struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Policies are the names of its members, without duplicates, in the order of the PolicySet. They are in its own
	// namespace.
	Policies []string
	// Fault is why the members are not read; "" if they are.
	Fault string
	// State and the fields below are read from its status.
	State              State
	ObservedGeneration int64
	Evaluating         bool
}

// Ref returns the reference to the PolicySet.
func (s *Set) Ref() Ref { return SetRef(s.Namespace, s.Name) }

// Has reports whether a Policy of its namespace is a member.
func (s *Set) Has(policy string) bool {
	return slices.Contains(s.Policies, policy)
}

// Observed returns the PolicySet as its dependents see it. A nil PolicySet does not exist.
func (s *Set) Observed() Observed {
	switch {
	case s == nil:
		return Observed{Reason: NotFound}
	case s.Fault != "":
		return Observed{Reason: TooMany, Detail: s.Fault}
	}
	return observed(s.UID, s.Generation, s.ObservedGeneration, s.State, s.Evaluating)
}

// MaxMembers bounds the members of a PolicySet, as its definition does. A set with more was stored under another
// definition: the objects that depend on it wait, so that its author cannot exhaust the memory of Opgate.
const MaxMembers = 1_000

// ReadSet reads a PolicySet.
func ReadSet(set *policyv1beta1.PolicySet) *Set {
	s := &Set{
		Namespace: set.Namespace, Name: set.Name, UID: set.UID, Generation: set.Generation,
		State: State(set.Status.Compliant), ObservedGeneration: set.Status.ObservedGeneration,
	}
	s.Evaluating = s.State == Unknown && hasReason(set.Status.Conditions, ReasonNotEvaluated)
	if len(set.Spec.Policies) > MaxMembers {
		s.Fault = fmt.Sprintf("spec.policies has %d members, at most %d are read: split the PolicySet",
			len(set.Spec.Policies), MaxMembers)
		return s
	}
	seen := make(map[policyv1beta1.NonEmptyString]bool, len(set.Spec.Policies))
	for _, name := range set.Spec.Policies {
		if name != "" && !seen[name] {
			seen[name] = true
			s.Policies = append(s.Policies, string(name))
		}
	}
	s.Policies = slices.Clip(s.Policies)
	return s
}

// maxMemberNames bounds the members that each part of a PolicySet's message names.
const maxMemberNames = 50

// NextSetStatus returns the status of a PolicySet with status before. members returns nil for a Policy that does not
// exist. If a member is missing or its state is unknown, that of the set is unknown too, and what depends on the set
// waits. Nothing is known in a namespace that Opgate excludes.
func NextSetStatus(
	set *Set, before *policyv1beta1.PolicySetStatus, members func(name string) *Policy, isExcluded bool, now time.Time,
) policyv1beta1.PolicySetStatus {
	var pending, disabled, unreported, missing, nonCompliant []string
	evaluating := true
	for _, name := range set.Policies {
		p := members(name)
		switch {
		case p == nil:
			missing, evaluating = append(missing, name), false
			continue
		case p.Disabled:
			disabled = append(disabled, name)
			continue
		}
		switch o := p.Observed(); {
		case o.Stale():
			unreported = append(unreported, name)
		case o.State == Compliant:
		case o.State == NonCompliant:
			nonCompliant = append(nonCompliant, name)
		case o.State == Pending:
			pending = append(pending, name)
		default:
			unreported, evaluating = append(unreported, name), evaluating && o.Evaluating
		}
	}
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+": "+text.Names(names, maxMemberNames))
		}
	}
	add("Policies awaiting pending dependencies", pending)
	add("Disabled policies", disabled)
	add("No status provided while awaiting policy status", unreported)
	add("Deleted policies", missing)
	switch {
	case isExcluded:
		parts = []string{excluded}
	case set.Fault != "":
		parts, evaluating = []string{set.Fault}, false
	case len(parts) == 0:
		parts = []string{"All policies are reporting status"}
	}

	next := *before.DeepCopy()
	next.StatusMessage = strings.Join(parts, "; ")
	next.ObservedGeneration = set.Generation
	c := summary{state: Compliant, message: next.StatusMessage}
	switch {
	case isExcluded:
		c.state, c.reason = Unknown, ReasonExcluded
	case len(nonCompliant) > 0:
		c = summary{state: NonCompliant, message: "NonCompliant: " + text.Names(nonCompliant, maxMemberNames)}
	case len(pending) > 0:
		c.state = Pending
	case len(unreported)+len(missing) > 0 || set.Fault != "":
		if c.state = Unknown; evaluating {
			c.reason = ReasonNotEvaluated
		}
	}
	next.Compliant = string(c.state)
	setCondition(&next.Conditions, c, set.Generation, metav1.NewTime(now))
	return next
}
