package rules

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

	// from is the source of the reason; it determines who may override it. Zero if there is no single one.
	from PolicyRef
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
	// Message says what was changed and why; it is shown as an admission warning. Empty for a change that needs none.
	Message string
}

// Preview returns the message of a change that is not made.
func (c *Change) Preview() string {
	return strings.NewReplacer(" was changed ", " would be changed ", " was set to ", " would be set to ").Replace(c.Message)
}

// maxListed bounds the names that a message lists.
const maxListed = 10

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
	CSVs []CSVVerdict
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

// refuse adds a reason.
func (v *Verdict) refuse(r Reason) {
	v.Reasons = append(v.Reasons, r)
	v.Decision = max(v.Decision, r.Decision)
}

// warn adds a warning.
func (v *Verdict) warn(r Reason) {
	r.Decision = Allow
	v.Warnings = append(v.Warnings, r)
}

// maxRefusal bounds, in bytes, what is shown of an error of the schema, which quotes the value.
const maxRefusal = 500

// Refused returns the verdict with what the definition of the kind refuses, which the API server does before it asks
// the gate. A field that is refused already is not named again.
func (v Verdict) Refused(rule RuleID, errs field.ErrorList) Verdict {
	v.Reasons = slices.Clone(v.Reasons)
	for _, err := range errs[:min(len(errs), maxFaults)] {
		if !slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Field == err.Field }) {
			v.refuse(Reason{Rule: rule, Decision: Deny, Field: err.Field, Message: sentence(text.Truncate(err.Error(), maxRefusal), rule, "")})
		}
	}
	return v.sorted()
}

// sorted sorts reasons and warnings into a stable order and returns the verdict.
func (v *Verdict) sorted() Verdict {
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

// finding is the result of one rule for one object under one policy; the zero finding is none.
type finding struct {
	decision Decision
	field    string
	// what is the offending value and what is wrong with it: `source "evil" is not allowed`.
	what string
	// accepted is what would be allowed, or what is waited for.
	accepted string
}

func (f finding) silent() bool { return f.what == "" }

// record turns a finding into a reason under an enforcing policy and into a warning under an informing one.
func (v *Verdict) record(id RuleID, p *OperatorPolicy, f finding) {
	v.recordAs(id, p.ref(), p.Enforced, f)
}

// recordAs is record for any source.
func (v *Verdict) recordAs(id RuleID, g PolicyRef, enforced bool, f finding) {
	if f.silent() {
		return
	}
	r := Reason{Rule: id, Source: g.String(), Decision: f.decision, Field: f.field, from: g}
	if enforced {
		r.Message = sentence(f.what+" by "+r.Source, id, f.accepted)
		v.refuse(r)
		return
	}
	r.Message = sentence(f.what+" by "+r.Source+", which only "+onlyDoes(g), id, f.accepted)
	v.warn(r)
}

// onlyDoes returns what a source that does not refuse does instead.
func onlyDoes(g PolicyRef) string {
	if g.Kind == KindConstraint {
		return "warns"
	}
	return "informs"
}

func sentence(what string, id RuleID, accepted string) string {
	s := what + " (" + string(id) + ")"
	if accepted != "" {
		s += ": " + accepted
	}
	return s
}
