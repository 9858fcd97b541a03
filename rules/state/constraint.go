package state

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
)

// ForConstraints returns an installed ClusterServiceVersion as Constraints see it.
func (c *Installed) ForConstraints(ns *Namespace) *constraint.Bundle {
	b := &constraint.Bundle{Bundle: c.Bundle, Unknown: constraint.Deprecation | constraint.ChangeSet}
	for _, missing := range []struct {
		missing bool
		what    constraint.Attributes
	}{
		{c.Package == "", constraint.Package}, {c.Version == "", constraint.Version},
		{!c.Described, constraint.Properties | constraint.Release},
		{c.Channel == "", constraint.Channel}, {c.Catalog == olm.Catalog{}, constraint.CatalogSource},
	} {
		if missing.missing {
			b.Unknown |= missing.what
		}
	}
	SetRequests(b, ns)
	SetConfig(b, ns)
	return b
}

// SetConfig sets the config of the Subscription to the package; none where there is no Subscription. It is not known if
// it cannot be read, or if several Subscriptions differ.
func SetConfig(b *constraint.Bundle, ns *Namespace) {
	if b.Unknown&constraint.Package != 0 {
		b.Unknown |= constraint.Config
		return
	}
	for i, s := range ns.Subscribers(b.Package) {
		if i == 0 {
			b.Config = s.Spec.Config
		}
		if s.Spec.Config.Fault != "" || s.Spec.Config != b.Config {
			b.Unknown |= constraint.Config
		}
	}
}

// SetRequests sets what the Spec of a ClusterServiceVersion and its Grants request.
func SetRequests(b *constraint.Bundle, ns *Namespace) {
	var problem string
	b.Release, problem = b.Spec.Release(b.Stated)
	if b.Spec == nil {
		b.Unknown |= constraint.InCSV
		if b.Stated != "" { // its properties state it
			b.Unknown &^= constraint.Release
		}
		return
	}
	if problem != "" {
		b.Unknown |= constraint.Release
	}
	demands := &olm.Demands{Spec: b.Spec, Grants: b.Grants, Scope: ns.scope()}
	if demands.ScopeMatters() {
		b.Unknown |= constraint.Scope // it must not read as named namespaces, which get fewer rights
	}
	b.Manifest = demands
}

// RecordConstraint records a violated Constraint: it refuses, or warns if that is the Constraint's action.
func RecordConstraint(v *verdict.Verdict, id verdict.RuleID, what string, f *constraint.Finding) {
	enforced := f.Constraint == nil || f.Constraint.Action == constraint.Require
	v.Record(id, ConstraintRef(f.Definition), enforced, ConstraintFinding(what, f))
}

// ConstraintFinding returns a violated Constraint as the finding of a rule about what; the zero value if it is
// satisfied.
func ConstraintFinding(what string, f *constraint.Finding) verdict.Finding {
	field := ConstraintPath(f)
	switch f.Outcome {
	case constraint.Violated:
		return verdict.Finding{Decision: verdict.Deny, Field: field, What: what + " is not allowed",
			Accepted: MustSatisfy(f)}
	case constraint.Undecided:
		return verdict.Finding{Decision: verdict.Hold, Field: field, What: what + " is held",
			Accepted: field + " cannot be judged, since " + text.Escape(f.Why) + "; " + MustSatisfy(f)}
	case constraint.Failed:
		return verdict.Finding{Decision: verdict.Hold, Field: field, What: what + " is held",
			Accepted: CannotJudge(field, f)}
	case constraint.Satisfied:
	}
	return verdict.Finding{}
}

// ConstraintPath returns the path of the constraint in its object.
func ConstraintPath(f *constraint.Finding) string {
	if f.Constraint == nil {
		return "spec"
	}
	return f.Constraint.Path
}

// CannotJudge returns why a constraint failed, and what it requires.
func CannotJudge(field string, f *constraint.Finding) string {
	why := field + " cannot be judged: " + text.Escape(f.Why)
	if f.Rule == "" {
		return why
	}
	return why + "; " + MustSatisfy(f)
}

// MustSatisfy returns what is required, in the words of the admin if there are any.
func MustSatisfy(f *constraint.Finding) string {
	rule := "it must satisfy " + text.Escape(f.Rule)
	if f.Message == "" {
		return rule
	}
	return text.Escape(f.Message) + " (" + rule + ")"
}
