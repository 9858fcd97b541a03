package rules

// Escalation refuses a Policy for a template that its author may not create. Err is why that could not be found out, nil where
// it was.
func (v *Verdict) Escalation(field, template, right string, err error) {
	r := Reason{Rule: RuleParentEscalation, Decision: Deny, Field: field, Message: sentence(field+" makes "+template+", which its author may not create",
		RuleParentEscalation, "it needs the right to "+right)}
	if err != nil {
		r.Decision = Hold
		r.Message = sentence("whether its author may create "+template+", as "+field+" does, could not be checked", RuleParentEscalation, "try again")
	}
	v.refuse(r)
	*v = v.sorted()
}
