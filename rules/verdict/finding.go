package verdict

// Finding is the result of one rule for one object under one policy; the zero finding is none.
type Finding struct {
	Decision Decision
	Field    string
	// What is the offending value and what is wrong with it: `source "evil" is not allowed`.
	What string
	// Accepted is what would be allowed, or what is waited for.
	Accepted string
}

// Silent reports whether the rule has found nothing.
func (f Finding) Silent() bool { return f.What == "" }

// Record turns a finding of a source into a reason if that is enforced, else into a warning.
func (v *Verdict) Record(id RuleID, g PolicyRef, enforced bool, f Finding) {
	if f.Silent() {
		return
	}
	r := Reason{Rule: id, Source: g.String(), Decision: f.Decision, Field: f.Field, From: g}
	if enforced {
		r.Message = Sentence(f.What+" by "+r.Source, id, f.Accepted)
		v.Refuse(r)
		return
	}
	r.Message = Sentence(f.What+" by "+r.Source+", which only "+onlyDoes(g), id, f.Accepted)
	v.Warn(r)
}

// onlyDoes returns what a source that does not refuse does instead.
func onlyDoes(g PolicyRef) string {
	if g.Kind == KindConstraint {
		return "warns"
	}
	return "informs"
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
