package rules

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleClusterCatalogConstraint is on Constraints on CatalogSources, which judge ClusterCatalogs of OLM v1 as well.
const RuleClusterCatalogConstraint verdict.RuleID = "clustercatalog/constraint"

var clusterCatalogConstraint = verdict.Rule{ID: RuleClusterCatalogConstraint, Outcomes: verdict.AnyOutcome,
	Summary: "the image or the priority of a ClusterCatalog does not satisfy a Constraint on CatalogSources, or the Constraint " +
		"depends on what a ClusterCatalog does not have"}

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
		v.Warn(verdict.Reason{Rule: RuleClusterCatalogConstraint, Source: source.String(), From: source,
			Message: verdict.Sentence(what+" is not judged by "+source.String()+", since "+text.Escape(f.Why),
				RuleClusterCatalogConstraint, state.MustSatisfy(&f))})
	}
	return v.Sorted()
}

// sourceOfClusterCatalog returns a ClusterCatalog as Constraints on CatalogSources see it.
func sourceOfClusterCatalog(c *olm.ClusterCatalog) constraint.Source {
	image := olm.CatalogSourceSpec{Image: c.Spec.Source.Image.Ref}
	return constraint.Source{Name: c.Metadata.Name, Image: image.Image, Registry: image.Registry(),
		Digest: image.ImageDigest(), Priority: c.Spec.Priority}
}
