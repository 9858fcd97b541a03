// Package verdict has what rules return, and what is known of each of them: Decision, Verdict, Reason and Rule, and the
// texts of refusals, events and warnings. It knows neither policies nor namespaces, and has no rule.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/opgate/opgate/internal/text"
)

// Decision is the outcome of judging, ordered by severity: a verdict is as severe as its worst reason.
type Decision int

const (
	// Allow lets the write through.
	Allow Decision = iota
	// Hold refuses for now: something named in the reason has to happen first.
	Hold
	// Deny refuses for as long as the policy exists.
	Deny
)

// String returns the word used in the JSON of `opgate check` and in metrics.
func (d Decision) String() string {
	switch d {
	case Allow:
		return "Allow"
	case Hold:
		return "Hold"
	case Deny:
		return "Deny"
	}
	return "Deny" // an undefined value must never count as permission
}

// Reason is why a verdict refuses or warns.
type Reason struct {
	Rule RuleID
	// Source is the policy or the Constraint of the rule, as "OperatorPolicy policies/etcd", or empty if there is none.
	Source string
	// Decision is that of this reason alone. Warnings carry Allow.
	Decision Decision
	// Field is the path of the offending field, if there is one.
	Field string
	// Message is a full sentence without the object's name: the offending value, the policy, the rule in parentheses,
	// then what would be accepted.
	Message string

	// From is the source of the reason as an object; it determines who may override it. Zero if there is no single one.
	From PolicyRef
	// overridden is set on the warning that a refusal has become by an override, excepted on one by an exception.
	overridden, excepted bool
}

// Change is one field that the mutating webhook sets, as an "add" of RFC 6902 (which replaces an existing value).
type Change struct {
	Rule   RuleID
	Source string
	// Path is a JSON pointer.
	Path  string
	Value any
	// Remove makes it a "remove" of RFC 6902 instead.
	Remove bool
	// Message is what was changed and why; it is shown as an admission warning. Empty for a change that needs none.
	Message string
}

// Preview returns the message of a change that is not made.
func (c *Change) Preview() string {
	return strings.NewReplacer(" was changed ", " would be changed ", " was set to ",
		" would be set to ").Replace(c.Message)
}

// The bounds of what a message shows.
const (
	// MaxListed bounds the names that it lists.
	MaxListed = 10
	// MaxFaults bounds the faults collected from one list: more are not shown, and each takes kilobytes (threat G18).
	MaxFaults = 100
)

// Verdict is the outcome of judging one object.
type Verdict struct {
	// Object is "subscription shop/etcd": lower-case kind, namespace/name.
	Object   string
	Decision Decision
	// Reasons explain a Deny or Hold: all of them, the most severe first, in a stable order.
	Reasons []Reason
	// Warnings never refuse: what informing policies would have refused, contradictions, previews.
	Warnings []Reason
	// Changes are what the mutating webhook writes.
	Changes []Change
	// Consents are those by which changes pass that policies hold.
	Consents []Consent
	// CSVs has, for an InstallPlan, the disposition of each of its ClusterServiceVersions.
	CSVs []CSV
}

// Refusal returns the text for the user who made the write: the object, then the reasons. A hostile object may cause
// any number of these; beyond a readable number they are counted.
func (v *Verdict) Refusal() string {
	const most = 20
	parts := make([]string, 0, min(len(v.Reasons), most+1))
	for i, r := range v.Reasons {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(v.Reasons)-most))
			break
		}
		parts = append(parts, r.Message)
	}
	return v.Object + ": " + strings.Join(parts, "; ")
}

// WarningTexts returns the admission warnings: those of changes first, then the others.
func (v *Verdict) WarningTexts() []string {
	if len(v.Changes)+len(v.Warnings) == 0 {
		return nil
	}
	const most = 20 // the API server truncates all warnings of a response together at 4 KiB
	texts := make([]string, 0, min(len(v.Changes)+len(v.Warnings), most+2))
	for _, c := range v.Changes {
		if c.Message != "" {
			texts = append(texts, v.Object+": "+c.Message)
		}
	}
	for i, w := range v.Warnings {
		if i == most {
			return append(texts, fmt.Sprintf("%s: %d more warnings", v.Object, len(v.Warnings)-most))
		}
		texts = append(texts, v.Object+": "+w.Message)
	}
	return texts
}

// Refuse adds a reason.
func (v *Verdict) Refuse(r Reason) {
	v.Reasons = append(v.Reasons, r)
	v.Decision = max(v.Decision, r.Decision)
}

// Warn adds a warning.
func (v *Verdict) Warn(r Reason) {
	r.Decision = Allow
	v.Warnings = append(v.Warnings, r)
}

// WarnExcepted adds the warning that a refusal has become by an exception.
func (v *Verdict) WarnExcepted(r Reason) {
	r.excepted = true
	v.Warn(r)
}

// maxRefusal bounds, in bytes, what is shown of an error of the schema, which quotes the value.
const maxRefusal = 500

// Refused returns the verdict with what the definition of the kind refuses, which the API server does before it asks
// the gate. A field that is refused already is not named again.
func (v Verdict) Refused(rule RuleID, errs field.ErrorList) Verdict {
	v.Reasons = slices.Clone(v.Reasons)
	for _, err := range errs[:min(len(errs), MaxFaults)] {
		if !slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Field == err.Field }) {
			v.Refuse(Reason{Rule: rule, Decision: Deny, Field: err.Field,
				Message: Sentence(text.Truncate(err.Error(), maxRefusal), rule, "")})
		}
	}
	return v.Sorted()
}

// Sorted sorts reasons and warnings into a stable order and returns the verdict.
func (v *Verdict) Sorted() Verdict {
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int {
		return cmp.Or(-cmp.Compare(a.Decision, b.Decision), compareReasons(a, b))
	})
	v.Reasons = slices.CompactFunc(v.Reasons, sameReason)
	slices.SortStableFunc(v.Warnings, compareReasons)
	v.Warnings = slices.CompactFunc(v.Warnings, sameReason)
	return *v
}

func compareReasons(a, b Reason) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Message, b.Message))
}

func sameReason(a, b Reason) bool {
	return a.Rule == b.Rule && a.Source == b.Source && a.Message == b.Message
}

// Overrides returns the warnings that refusals have become by an override: one for each.
func (v *Verdict) Overrides() []Reason {
	return slices.DeleteFunc(slices.Clone(v.Warnings), func(w Reason) bool { return !w.overridden })
}

// Overridden returns the verdict after a user has used the verb override: allowed, with the reasons as warnings of a
// rule on overrides. Until follows the reason.
func (v *Verdict) Overridden(id RuleID, reason, until string) Verdict {
	allowed := Verdict{Object: v.Object, CSVs: v.CSVs, Warnings: slices.Clone(v.Warnings)}
	for _, r := range v.Reasons {
		allowed.Warn(Reason{Rule: id, Source: r.Source, From: r.From, overridden: true,
			Message: Sentence("overridden with reason "+text.Quote(reason)+until, id, r.Message)})
	}
	return allowed.Sorted()
}
