package rules

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleCatalogSourceConstraint is on Constraints on CatalogSources.
const RuleCatalogSourceConstraint verdict.RuleID = "catalogsource/constraint"

var catalogSourceConstraint = verdict.Rule{ID: RuleCatalogSourceConstraint, Outcomes: verdict.DeniesOrHolds,
	Summary: "a CatalogSource does not satisfy a Constraint on CatalogSources, or whether it does is not known"}

// CatalogSourceInput is the input of JudgeCatalogSource.
type CatalogSourceInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old  *olm.CatalogSource
	Namespace *state.Namespace
	// User is the name of the user who writes, and Groups are those of the user.
	User   string
	Groups []string
	// UserUnknown is set where neither is known, as in files.
	UserUnknown bool
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgeCatalogSource decides on creating a CatalogSource or changing its spec: it must satisfy every Constraint on
// CatalogSources. A stored one that does not is judged like any other when its spec is changed: whether a change
// matters depends on who makes it.
func JudgeCatalogSource(in CatalogSourceInput) verdict.Verdict {
	v := verdict.Verdict{Object: "catalogsource " + in.New.Metadata.Key()}
	if in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest {
		return v
	}
	w := &constraint.Write{On: constraint.OnCatalogSource, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown,
		Source:      sourceOf(in.New)}
	if in.Old != nil {
		w.OldSource = sourceOf(in.Old)
	}
	recordWrite(&v, RuleCatalogSourceConstraint, "this CatalogSource", w, in.Namespace, in.Interrupt)
	return v.Sorted()
}

// sourceOf returns a CatalogSource as Constraints see it.
func sourceOf(c *olm.CatalogSource) constraint.Source {
	return constraint.Source{
		Name: c.Metadata.Name, Namespace: c.Metadata.Namespace, SourceType: c.Spec.SourceType, Address: c.Spec.Address,
		ConfigMap: c.Spec.ConfigMap,
		Publisher: c.Spec.Publisher, Image: c.Spec.Image, Registry: c.Spec.Registry(), Digest: c.Spec.ImageDigest(),
		Priority: c.Spec.Priority,
	}
}

// recordWrite records the Constraints that a write does not satisfy. Where the user is not known, one that depends on
// nothing else only warns.
func recordWrite(v *verdict.Verdict, id verdict.RuleID, what string, w *constraint.Write, ns *state.Namespace,
	interrupt <-chan struct{}) {
	for _, f := range ns.Constraints().JudgeWrite(w, ns.ForConstraints(), constraint.NewBudget(interrupt)) {
		if f.Outcome == constraint.Undecided && f.Attributes == constraint.Writer {
			v.Warn(verdict.Reason{Rule: id, Source: state.ConstraintRef(f.Definition).String(),
				From: state.ConstraintRef(f.Definition),
				Message: verdict.Sentence(what+" may be refused by "+state.ConstraintRef(f.Definition).String()+
					", which depends on the user who writes it", id, state.MustSatisfy(&f))})
			continue
		}
		state.RecordConstraint(v, id, what, &f)
	}
}
