package rules

import (
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleCatalogSourceConstraint verdict.RuleID = "catalogsource/constraint"
)

// catalogSourceRules are the rules on CatalogSources.
var catalogSourceRules = []verdict.Rule{
	{ID: RuleCatalogSourceConstraint, Outcomes: verdict.DeniesOrHolds,
		Summary: "a CatalogSource does not satisfy a Constraint on CatalogSources, or whether it does is not known"},
}

const (
	RuleClusterCatalogConstraint verdict.RuleID = "clustercatalog/constraint"
)

// clusterCatalogRules are the rules on ClusterCatalogs of OLM v1.
var clusterCatalogRules = []verdict.Rule{
	{ID: RuleClusterCatalogConstraint, Outcomes: verdict.AnyOutcome,
		Summary: "the image or the priority of a ClusterCatalog does not satisfy a Constraint on CatalogSources, or the Constraint " +
			"depends on what a ClusterCatalog does not have"},
}

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
// matters depends on who makes it. So does the image that OLM, whose writes pass, sets for an annotation.
func JudgeCatalogSource(in CatalogSourceInput) verdict.Verdict {
	v := verdict.Verdict{Object: "catalogsource " + in.New.Metadata.Key()}
	template, kubernetes := in.New.Metadata.Annotations.ImageTemplate, in.Namespace.Facts().Version
	if in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest && in.Old.Metadata.Annotations.ImageTemplate == template {
		return v
	}
	w := &constraint.Write{On: constraint.OnCatalogSource, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Source: sourceOf(in.New)}
	if in.Old != nil {
		w.OldSource = sourceOf(in.Old.Templated(kubernetes))
	}
	const what = "this CatalogSource"
	recordWrite(&v, RuleCatalogSourceConstraint, what, w, in.Namespace, in.Interrupt)
	if template != "" && v.Decision == verdict.Allow {
		w.Source = sourceOf(in.New.Templated(kubernetes))
		recordWrite(&v, RuleCatalogSourceConstraint, what+" with the image of annotation "+metakey.ImageTemplate, w,
			in.Namespace, in.Interrupt)
	}
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
			source := state.ConstraintRef(f.Definition)
			v.Add(id, verdict.Finding{From: source, Accepted: state.MustSatisfy(&f),
				What: what + " may be refused by " + source.String() + ", which depends on the user who writes it"})
			continue
		}
		state.RecordConstraint(v, id, what, &f)
	}
}

// ClusterCatalogInput is the input of JudgeClusterCatalog.
type ClusterCatalogInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old *olm.ClusterCatalog
	// Constraints are those of the cluster.
	Constraints *constraint.Set
	// User is the name of the user who writes, and Groups are those of the user.
	User   string
	Groups []string
	// UserUnknown is set where neither is known, as in files.
	UserUnknown bool
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// catalogFields are what a Constraint may depend on without refusing a ClusterCatalog: it has no namespace, and none of
// the other fields of a CatalogSource.
const catalogFields = constraint.SourceFields | constraint.NamespaceLabels

// JudgeClusterCatalog decides on creating a ClusterCatalog of OLM v1 or changing its image or its priority, by the
// Constraints on CatalogSources: it must satisfy every one of them, as far as these depend on its name, image and
// priority, on the cluster and on the user. Of others it warns.
func JudgeClusterCatalog(in ClusterCatalogInput) verdict.Verdict {
	v := verdict.Verdict{Object: "clustercatalog " + in.New.Metadata.Key()}
	if in.Old != nil && in.Old.Spec == in.New.Spec {
		return v
	}
	w := &constraint.Write{On: constraint.OnCatalogSource, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Unknown: constraint.SourceFields, Source: sourceOfClusterCatalog(in.New)}
	if in.New.Spec.Source.Type != olm.CatalogOfImage || in.Old != nil && in.Old.Spec.Source.Type != olm.CatalogOfImage {
		w.Unknown |= constraint.SourceImage
	}
	if in.Old != nil {
		w.OldSource = sourceOfClusterCatalog(in.Old)
	}
	tolerated := catalogFields
	if in.UserUnknown {
		tolerated |= constraint.Writer
	}
	const what = "this ClusterCatalog"
	namespace := constraint.Namespace{Unknown: true}
	for _, f := range in.Constraints.JudgeWrite(w, namespace, constraint.NewBudget(in.Interrupt)) {
		if f.Outcome != constraint.Undecided || f.Attributes == 0 || f.Attributes&^tolerated != 0 {
			state.RecordConstraint(&v, RuleClusterCatalogConstraint, what, &f)
			continue
		}
		source := state.ConstraintRef(f.Definition)
		v.Add(RuleClusterCatalogConstraint, verdict.Finding{From: source, Accepted: state.MustSatisfy(&f),
			What: what + " is not judged by " + source.String() + ", since " + text.Escape(f.Why)})
	}
	return v.Sorted()
}

// sourceOfClusterCatalog returns a ClusterCatalog as Constraints on CatalogSources see it.
func sourceOfClusterCatalog(c *olm.ClusterCatalog) constraint.Source {
	return sourceOf(&olm.CatalogSource{Metadata: olm.ObjectMeta{Name: c.Metadata.Name},
		Spec: olm.CatalogSourceSpec{Image: c.Spec.Source.Image.Ref, Priority: c.Spec.Priority}})
}
