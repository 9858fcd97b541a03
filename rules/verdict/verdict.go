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
	}
	return "Deny" // as an undefined value, which must never count as permission
}

// Reason is why a verdict refuses or warns.
type Reason struct {
	Rule RuleID
	// From is the policy or the Constraint of the rule; it determines who may override it. Zero if there is no single one.
	From PolicyRef
	// Decision is that of this reason alone. Warnings carry Allow.
	Decision Decision
	// Field is the path of the offending field, if there is one.
	Field string
	// Message is a full sentence without the object's name: the offending value, the policy, the rule in parentheses,
	// then what would be accepted.
	Message string
	// Digest is the one in Message that its policy may accept, if there is one.
	Digest string

	// overridden is set on the warning that a refusal has become by an override, excepted on one by an exception.
	overridden, excepted bool
}

// Change is one field that the mutating webhook sets, as an "add" of RFC 6902 (which replaces an existing value).
type Change struct {
	Rule RuleID
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
	// MaxFaults bounds the faults collected from one list: more are not shown, and each takes kilobytes.
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

// Refusal returns the text for the user who made the write: the object, then the reasons.
func (v *Verdict) Refusal() string { return v.Object + ": " + v.Note() }

// WarningTexts returns the admission warnings: those of changes first, then the others. They travel in a header, of
// which clients decode what looks like an encoded word of RFC 2047: its beginning is escaped, so that nothing hidden is
// decoded.
func (v *Verdict) WarningTexts() []string {
	const most = 20 // the API server truncates all warnings of a response together at 4 KiB
	var texts []string
	add := func(message string) {
		texts = append(texts, strings.ReplaceAll(v.Object+": "+message, "=?", `\x3d?`))
	}
	for _, c := range v.Changes {
		if c.Message != "" {
			add(c.Message)
		}
	}
	for i, w := range v.Warnings {
		if i == most {
			add(fmt.Sprintf("%d more warnings", len(v.Warnings)-most))
			break
		}
		add(w.Message)
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

// maxRefusal bounds, in bytes, what is shown of an error of the schema, which quotes the value.
const maxRefusal = 500

// Refused returns the verdict with what the definition of the kind refuses, which the API server does before it asks
// the gate. A field that is refused already is not named again.
func (v Verdict) Refused(rule RuleID, errs field.ErrorList) Verdict {
	v.Reasons = slices.Clone(v.Reasons)
	for _, err := range errs[:min(len(errs), MaxFaults)] {
		if !slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Field == err.Field }) {
			v.Add(rule, Finding{Decision: Deny, Field: err.Field, What: text.Truncate(err.Error(), maxRefusal)})
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
	if a.Rule != b.Rule {
		return cmp.Compare(a.Rule, b.Rule)
	}
	return cmp.Or(cmp.Compare(a.From.String(), b.From.String()), cmp.Compare(a.Message, b.Message))
}

func sameReason(a, b Reason) bool {
	return a.Rule == b.Rule && a.From == b.From && a.Message == b.Message
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
		allowed.Warn(Reason{Rule: id, From: r.From, overridden: true,
			Message: Sentence("overridden with reason "+text.Quote(reason)+until, id, r.Message)})
	}
	return allowed.Sorted()
}

// Finding is the result of one rule for one object under one policy; the zero finding is none.
type Finding struct {
	Decision Decision
	Field    string
	// What is the offending value and what is wrong with it: `source "evil" is not allowed`.
	What string
	// Accepted is what would be allowed, or what is waited for.
	Accepted string
	// Digest is the one in Accepted by which the policy would accept it, if there is one.
	Digest string
	// From is the source, where What names it already.
	From PolicyRef
	// Excepted is set on a refusal that has become a warning by an exception.
	Excepted bool
}

// OnHold returns the finding that something is held; accepted is what it waits for.
func OnHold(what, accepted string) Finding {
	return Finding{Decision: Hold, What: what + " is held", Accepted: accepted}
}

// NotAllowed returns the finding that something is not allowed.
func NotAllowed(what, accepted string) Finding {
	return Finding{Decision: Deny, What: what + " is not allowed", Accepted: accepted}
}

// At returns the finding with the path of the offending field.
func (f Finding) At(field string) Finding {
	f.Field = field
	return f
}

// Accepting returns the finding with the digest by which the policy would accept it.
func (f Finding) Accepting(digest string) Finding {
	f.Digest = digest
	return f
}

// Silent reports whether the rule has found nothing.
func (f Finding) Silent() bool { return f.What == "" }

// Record turns a finding of a source into a reason if that is enforced, else into a warning.
func (v *Verdict) Record(id RuleID, g PolicyRef, enforced bool, f Finding) {
	if f.Silent() {
		return
	}
	f.From, f.What = g, f.What+" by "+g.String()
	switch {
	case enforced:
	case g.Kind == KindConstraint:
		f.Decision, f.What = Allow, f.What+", which only warns"
	default:
		f.Decision, f.What = Allow, f.What+", which only informs"
	}
	v.Add(id, f)
}

// Add records a finding that names its source itself, if it has one: it refuses if that denies or holds, else it warns.
func (v *Verdict) Add(id RuleID, f Finding) {
	if f.Silent() {
		return
	}
	r := Reason{Rule: id, Decision: f.Decision, Field: f.Field, Digest: f.Digest, From: f.From, excepted: f.Excepted,
		Message: Sentence(f.What, id, f.Accepted)}
	if f.Decision == Allow {
		v.Warn(r)
	} else {
		v.Refuse(r)
	}
}

// AddFaults records each fault of an object as a refusal.
func (v *Verdict) AddFaults(id RuleID, errs field.ErrorList) {
	for _, err := range errs {
		v.Add(id, Finding{Decision: Deny, Field: err.Field, What: err.Error()})
	}
}

// Sentence returns the message of a reason: what is wrong, the rule in parentheses and, unless it is empty, what would
// be accepted.
func Sentence(what string, id RuleID, accepted string) string {
	s := what + " (" + string(id) + ")"
	if accepted != "" {
		s += ": " + accepted
	}
	return s
}

// Disposition is the result for one ClusterServiceVersion of a plan.
type Disposition int

const (
	// Ungoverned CSVs belong to a package that no enforcing policy allows or forbids: a user may approve them.
	Ungoverned Disposition = iota
	// Required CSVs are ungoverned, but an allowed one needs them (OLM added them).
	Required
	// Allowed CSVs are allowed by every enforcing policy of their package.
	Allowed
	// Held CSVs wait for something; that includes those of an unknown package.
	Held
	// Denied CSVs are refused.
	Denied
)

// String returns the word used in explanations.
func (s Disposition) String() string {
	return [...]string{"ungoverned", "required", "allowed", "held", "denied"}[s]
}

// CSV is the verdict on one ClusterServiceVersion of a plan.
type CSV struct {
	CSV string
	// Package and Version are empty if not known.
	Package, Version string
	// Release tells bundles of one version apart; empty if there is none.
	Release     string
	Disposition Disposition
	// By names the policies that allow it, or the CSV that requires it.
	By []string
	// Because has the messages of the reasons for which it is Held or Denied, in no particular order.
	Because []string
}
