package bundle

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// replacesAccepted is what spec.replaces may name.
const replacesAccepted = "spec.replaces may name versions of its own package only, since OLM deletes what it names"

// judgeReplaces judges spec.replaces of a bundle: once what has it is installed, OLM deletes the ClusterServiceVersion
// of that name, whose deletion the user may not be allowed. before is the stored object that is updated,
// nil for another write. Outcomes, unless both are of one package:
//
//   - Deny if it names an installed one that a policy governs, or that a Constraint protects
//   - Hold if an installed one names it, which a user may have prepared: OLM would delete it when it succeeds
func judgeReplaces(ns *state.Namespace, c, before *carrier.Bundle, now time.Time, v *verdict.Verdict) {
	names, name := c.Replaces(), text.Name(c.Name)
	if before != nil {
		known := before.Replaces()
		names = slices.DeleteFunc(names, func(csv string) bool { return slices.Contains(known, csv) })
	}
	for i := range ns.Installed() {
		other := &ns.Installed()[i]
		csv := text.Name(other.Name)
		switch {
		case other.Package == c.Package || other.Name == c.Name:
		case slices.Contains(names, other.Name):
			f := verdict.Finding{Decision: verdict.Deny, Field: "spec.replaces",
				What: name + " with spec.replaces " + csv + " of package " + text.Name(other.Package) +
					" is not allowed", Accepted: replacesAccepted}
			for _, p := range keepers(ns, other.Package) {
				recordOn(p, c, now, v, RuleReplaces, f)
			}
			for _, from := range protectors(ns, other.Package) {
				v.Record(RuleReplaces, from, true, f)
			}
		case before == nil && c.Plan != nil && other.Spec != nil && other.Spec.Replaces == c.Name:
			f := verdict.Finding{Decision: verdict.Hold, Field: "spec.replaces", What: name + " is held",
				Accepted: "waits until " + csv + " of package " + text.Name(other.Package) +
					", whose spec.replaces names it, is deleted: OLM would delete it"}
			for _, p := range keepers(ns, c.Package) {
				recordOn(p, c, now, v, RuleReplaces, f)
			}
		}
	}
}

// keepers returns the policies of a package that do not forbid it.
func keepers(ns *state.Namespace, pkg string) []*operatorpolicy.Policy {
	return slices.DeleteFunc(slices.Clone(ns.Governing(pkg)),
		func(p *operatorpolicy.Policy) bool { return p.MustNotHave })
}

// protectors returns the Constraints that restrict the deletion of what is installed of a package.
func protectors(ns *state.Namespace, pkg string) (all []verdict.PolicyRef) {
	for _, d := range ns.Constraints().Definitions() {
		if d.Deletion.Of(pkg) {
			all = append(all, state.ConstraintRef(d))
		}
	}
	return all
}

// Kept is an installed ClusterServiceVersion that none of another package may replace.
type Kept struct {
	CSV, Package string
	// By is the first that refuses it.
	By verdict.PolicyRef
}

// KeptIn returns those of a namespace that an enforced policy governs or a Constraint protects, in order of their names.
func KeptIn(ns *state.Namespace) (kept []Kept) {
	for i := range ns.Installed() {
		c := &ns.Installed()[i]
		var by []verdict.PolicyRef
		for _, p := range keepers(ns, c.Package) {
			if p.Enforced {
				by = append(by, p.Ref())
			}
		}
		if by = append(by, protectors(ns, c.Package)...); len(by) > 0 && c.Package != "" && c.Spec != nil {
			kept = append(kept, Kept{CSV: c.Name, Package: c.Package, By: by[0]})
		}
	}
	return kept
}
