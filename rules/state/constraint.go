package state

import (
	"slices"

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
		config := s.Spec.Config.Read()
		if i == 0 {
			b.Config = config
		}
		if config.Fault != "" || config != b.Config {
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
	demands := &olm.Demands{Spec: b.Spec, Grants: b.Grants, Scope: olm.ScopeOf(ns.Groups())}
	if demands.ScopeMatters() {
		b.Unknown |= constraint.Scope // it must not read as named namespaces, which get fewer rights
	}
	b.Manifest = demands
}

// RecordConstraint records a violated Constraint: it refuses, or warns if that is the Constraint's action.
func RecordConstraint(v *verdict.Verdict, id verdict.RuleID, what string, f *constraint.Result) {
	enforced := f.Constraint == nil || f.Constraint.Action == constraint.Require
	v.Record(id, ConstraintRef(f.Definition), enforced, ConstraintFinding(what, f))
}

// ConstraintFinding returns a violated Constraint as the finding of a rule about what; the zero value if it is
// satisfied.
func ConstraintFinding(what string, f *constraint.Result) verdict.Finding {
	field := ConstraintPath(f)
	switch f.Outcome {
	case constraint.Violated:
		return verdict.NotAllowed(what, MustSatisfy(f)).At(field)
	case constraint.Undecided:
		return verdict.OnHold(what, field+" cannot be judged, since "+text.Escape(f.Why)+"; "+MustSatisfy(f)).At(field)
	case constraint.Failed:
		return verdict.OnHold(what, CannotJudge(field, f)).At(field)
	case constraint.Satisfied:
	}
	return verdict.Finding{}
}

// ConstraintPath returns the path of the constraint in its object.
func ConstraintPath(f *constraint.Result) string {
	if f.Constraint == nil {
		return "spec"
	}
	return f.Constraint.Path
}

// CannotJudge returns why a constraint failed, and what it requires.
func CannotJudge(field string, f *constraint.Result) string {
	why := field + " cannot be judged: " + text.Escape(f.Why)
	if f.Rule == "" {
		return why
	}
	return why + "; " + MustSatisfy(f)
}

// MustSatisfy returns what is required, in the words of the admin if there are any.
func MustSatisfy(f *constraint.Result) string {
	rule := "it must satisfy " + text.Escape(f.Rule)
	if f.Message == "" {
		return rule
	}
	return text.Escape(f.Message) + " (" + rule + ")"
}

// ConstraintRef returns a Constraint as the source of a reason.
func ConstraintRef(d *constraint.Definition) verdict.PolicyRef {
	return verdict.PolicyRef{Kind: verdict.KindConstraint, Name: d.Name}
}

// Sources returns all objects that may refuse in a namespace: its enforcing policies, and the Constraints that apply.
func (n *Namespace) Sources() []verdict.PolicyRef {
	var all []verdict.PolicyRef
	for _, p := range n.Enforcing() {
		all = append(all, p.Ref())
	}
	for _, d := range n.Constraints().Applicable(n.ForConstraints()) {
		all = append(all, ConstraintRef(d))
	}
	return all
}

// Judged reports whether plans in this namespace are judged, if only with warnings.
func (n *Namespace) Judged() bool { return n.Governed() || !n.Constraints().Empty() }

// Protected reports whether a Constraint restricts deletions, in every namespace.
func (n *Namespace) Protected() bool {
	return slices.ContainsFunc(n.Constraints().Definitions(),
		func(d *constraint.Definition) bool { return d.Deletion != nil })
}

// Constrained reports whether a Constraint could refuse an operator in this namespace. One that is satisfied here by
// any operator, such as one about namespaces of tenants in another namespace, does not count.
func (n *Namespace) Constrained() bool { return n.Constraints().Applies(n.ForConstraints()) }

// MayRefuse reports whether anything may be refused in this namespace.
func (n *Namespace) MayRefuse() bool { return len(n.Enforcing()) > 0 || n.Constrained() }

// RecordForNamespace records a finding without a single source: it refuses if the namespace has an enforcing policy or
// a Constraint that applies, in the name of the first of these, and warns if policies only inform.
func RecordForNamespace(v *verdict.Verdict, ns *Namespace, id verdict.RuleID, f verdict.Finding) {
	if sources := ns.Sources(); len(sources) > 0 {
		v.Record(id, sources[0], true, f)
	} else if ns.Governed() {
		ns.Policies()[0].Record(v, id, f)
	}
}
