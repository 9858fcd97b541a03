package compliance

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
)

// judgePlans returns the InstallPlans that install something of the package. A plan is deleted only if the policy
// selects everything that it installs: it is the record of the rest, too.
func (s *scope) judgePlans() []item {
	var items []item
	for _, plan := range s.Namespace.Plans() {
		ours, meant, keep := s.judgePlan(plan)
		if !ours {
			continue
		}
		next := newItem(plan.Metadata, keep)
		next.notMeant = !meant
		next.runs = plan.Running()
		next.hasFinalizers = true // it counts as deleted once the snapshot shows that it is gone
		items = append(items, next)
	}
	return items
}

// judgePlan reports whether a plan installs something of the package, whether the policy may mean that, and why it must
// be retained nevertheless.
func (s *scope) judgePlan(plan *olm.InstallPlan) (ours, meant bool, keep string) {
	if plan.Metadata.Namespace != s.namespace {
		return false, false, ""
	}
	csvs := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: s.Namespace}).CSVs
	if len(csvs) == 0 {
		meant, keep = true, "what it installs is not known"
	}
	ours = slices.ContainsFunc(plan.Spec.CSVNames, s.installs)
	for _, c := range csvs {
		match, known := bundle.Forbids(s.Rules, c.CSV, c.Version, planCatalog(plan, c.CSV), s.Now)
		switch {
		case c.Package == "":
			meant, keep = true, "the package of "+text.Name(c.CSV)+" in it is not known"
			continue
		case c.Package != s.pkg:
			keep = "it also installs " + text.Name(c.CSV)
			continue
		case !match:
			keep = "the policy may not match " + text.Name(c.CSV) + " in it"
		}
		ours, meant = true, meant || match || !known
	}
	return ours, meant, keep
}

// installs reports whether a name is that of a ClusterServiceVersion of the package.
func (s *scope) installs(csv string) bool {
	return slices.ContainsFunc(s.csvs, func(c *olm.CSV) bool { return c.Metadata.Name == csv }) ||
		slices.ContainsFunc(s.subscriptions, func(sub *olm.Subscription) bool { return sub.Follows(csv) })
}

// planCatalog returns the catalog of a ClusterServiceVersion in a plan; zero if the plan has none, or two.
func planCatalog(plan *olm.InstallPlan, csv string) olm.Catalog {
	var found []olm.Catalog
	add := func(c olm.Catalog) {
		if c != (olm.Catalog{}) && !slices.Contains(found, c) {
			found = append(found, c)
		}
	}
	for i := range plan.Status.BundleLookups {
		if l := &plan.Status.BundleLookups[i]; l.Identifier == csv {
			add(l.Catalog)
		}
	}
	for i := range plan.Status.Steps {
		if r := &plan.Status.Steps[i].Resource; r.Kind == kindClusterServiceVersion && r.Name == csv {
			add(olm.Catalog{Namespace: r.CatalogNamespace, Name: r.CatalogName})
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return olm.Catalog{}
}
