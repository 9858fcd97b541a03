package rules

import (
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
)

// selfCertified is why what an operator states of itself past OLM satisfies no Constraint.
const selfCertified = "only properties that the ClusterServiceVersion states of itself satisfy it, and no catalog confirms these"

// selfCertifying returns the Constraints, other than those found, that a ClusterServiceVersion satisfies only by
// properties that its author writes past OLM (threat O56). Such properties can make it refused, and never allowed; what
// it is, its package and its APIs, counts as stated.
func (in *CSVInput) selfCertifying(
	c *carrier.Bundle, found []constraint.Finding, budget *constraint.Budget,
) []constraint.Finding {
	isWritten := in.Old == nil || in.Old.Metadata.Annotations.Properties != in.New.Metadata.Annotations.Properties
	if in.ByOLM || in.ByOpgate || !isWritten || !in.Namespace.Constraints().Reads(constraint.Properties) {
		return nil
	}
	without := *c
	without.Properties = slices.DeleteFunc(slices.Clone(c.Properties), func(p olm.Property) bool {
		return p.Type != olm.TypePackage && p.Type != olm.TypeGVK
	})
	if len(without.Properties) == len(c.Properties) {
		return nil
	}
	var more []constraint.Finding
	for _, f := range in.findings(&without, budget) { // a shared slice
		if !slices.ContainsFunc(found, func(k constraint.Finding) bool { return sameConstraint(&k, &f) }) {
			f.Outcome, f.Why, f.Attributes = constraint.Undecided, selfCertified, constraint.Properties
			more = append(more, f)
		}
	}
	return more
}

// sameConstraint reports whether two findings are of one Constraint.
func sameConstraint(a, b *constraint.Finding) bool {
	return a.Definition == b.Definition && a.Constraint == b.Constraint
}
