package verdict

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// RuleID names a rule in messages, metrics, documentation and tests. The part before the slash is the kind of object
// that is judged, "bundle" for what an object of any kind brings, "deletion" for the end of one, or "gate" where no
// policy is read at all; policy/unreadable alone is about another kind, the OperatorPolicy that should judge. The
// constant of a rule spells its ID: RulePlanFrozen is plan/frozen, and bundle.RuleVersion is bundle/version.
type RuleID string

// OfGate reports whether a rule is about the gate or the review, not about the object.
func (id RuleID) OfGate() bool { return strings.HasPrefix(string(id), "gate/") }

// ForDeletions reports whether a rule is on deletions: the API server judges by it, and no webhook does.
func (id RuleID) ForDeletions() bool { return strings.HasPrefix(string(id), "deletion/") }

// Outcomes are the possible effects of a rule under an enforcing policy, the most common first: Deny refuses for as long as
// the policy exists, Hold until something else has happened, and Warn never refuses. Under an informing policy each is a
// warning.
type Outcomes string

// What the outcomes of a rule can be.
const (
	Denies        Outcomes = "Deny"
	Holds         Outcomes = "Hold"
	Warns         Outcomes = "Warn"
	DeniesOrHolds Outcomes = "Deny,Hold"
	DeniesOrWarns Outcomes = "Deny,Warn"
	HoldsOrWarns  Outcomes = "Hold,Warn"
	AnyOutcome    Outcomes = "Deny,Hold,Warn"
)

// Rule is all that is known of one rule apart from how it judges: commands, documentation, the table of the API server
// and tests read it here.
type Rule struct {
	ID       RuleID
	Outcomes Outcomes
	// Summary is one sentence: when the rule applies.
	Summary string
	// Override reports whether a user with the verb override may set it aside. That is so for rules on what a
	// plan brings and an OperatorGroup changes, not for those that protect judged contents from changes.
	Override bool
	// SetsAside reports whether its warnings are refusals that a user with the verb override has set aside.
	SetsAside bool
	// Backstop reports whether the API server itself holds a part of it as well (package backstop).
	Backstop bool
	// Edit proposes the edit of a policy that ends a refusal; nil if none does.
	Edit Edit
}

// Edit proposes an edit of an OperatorPolicy that may end a refusal; empty if there is none. Its caller judges with the
// edit before it shows it.
type Edit func(EditInput) []PatchOperation

// EditInput is what an Edit depends on.
type EditInput struct {
	// Policy is the OperatorPolicy as it is stored.
	Policy map[string]any
	// CSV is the refused ClusterServiceVersion of the plan. Its version, channel and catalog are empty if not known.
	CSV, Version, Channel string
	Catalog               olm.Catalog
	// Digest is that of the refusal.
	Digest string
}

// PatchOperation is one operation of a JSON patch (RFC 6902).
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns changes as a JSON patch.
func Patch(changes []Change) []PatchOperation {
	operations := make([]PatchOperation, len(changes))
	for i, c := range changes {
		operations[i] = PatchOperation{Op: "add", Path: c.Path, Value: c.Value}
		if c.Remove {
			operations[i] = PatchOperation{Op: "remove", Path: c.Path}
		}
	}
	return operations
}

// PolicyRef names an object that may refuse a write: an OperatorPolicy, or a Constraint, which has no namespace.
type PolicyRef struct{ Kind, Namespace, Name string }

// The kinds that a PolicyRef may have.
const (
	KindOperatorPolicy = "OperatorPolicy"
	KindConstraint     = "Constraint"
)

// String returns the object's name as used in reasons: "OperatorPolicy policies/etcd", "Constraint curated"; "" for none.
func (g PolicyRef) String() string { return strings.TrimSpace(g.Kind + " " + g.Key()) }

// Key returns namespace/name, or the name of what is cluster-scoped.
func (g PolicyRef) Key() string { return strings.TrimPrefix(g.Namespace+"/"+g.Name, "/") }

// MarshalText writes a reference into JSON as String does.
func (g PolicyRef) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (g *PolicyRef) UnmarshalText(written []byte) error {
	kind, key, _ := strings.Cut(string(written), " ")
	namespace, name, namespaced := strings.Cut(key, "/")
	if *g = (PolicyRef{kind, namespace, name}); !namespaced {
		*g = PolicyRef{Kind: kind, Name: key}
	}
	return nil
}

// Reference returns the object as the API refers to it, nil for none.
func (g PolicyRef) Reference() *corev1.ObjectReference {
	switch g.Kind {
	case KindOperatorPolicy:
		return &corev1.ObjectReference{APIVersion: policyv1beta2.GroupVersion.String(), Kind: g.Kind,
			Namespace: g.Namespace, Name: g.Name}
	case KindConstraint:
		return &corev1.ObjectReference{APIVersion: constraintv1.GroupVersion.String(), Kind: g.Kind, Name: g.Name}
	}
	return nil
}
