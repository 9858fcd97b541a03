package compliance

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// planObject is a plan as it is known from the snapshot: enough to delete it by.
func planObject(plan *olm.InstallPlan) Object {
	meta := &plan.Metadata
	return Object{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, Deleting: meta.DeletionTimestamp != "", Content: map[string]any{
		"apiVersion": apiVersions[kindInstallPlan],
		"kind":       kindInstallPlan,
		"metadata": map[string]any{
			"namespace": meta.Namespace, "name": meta.Name, "uid": meta.UID, "resourceVersion": meta.ResourceVersion,
		},
	}}
}

// judgePlans are the InstallPlans that install something of the package. A plan goes only if all that it
// installs is meant: it is the record of the rest, too.
func (s *scope) judgePlans() []item {
	var items []item
	for _, plan := range s.Namespace.Plans() {
		ours, keep := s.judgePlan(plan)
		if !ours {
			continue
		}
		next := newItem(planObject(plan), keep)
		next.held = true // the snapshot does not tell finalizers
		items = append(items, next)
	}
	return items
}

// judgePlan tells whether a plan installs something of the package, and why it has to stay all the same.
func (s *scope) judgePlan(plan *olm.InstallPlan) (ours bool, keep string) {
	if plan.Metadata.Namespace != s.namespace {
		return false, ""
	}
	csvs := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: s.Namespace}).CSVs
	if len(csvs) == 0 {
		keep = "what it installs is not known"
	}
	ours = slices.ContainsFunc(plan.Spec.CSVNames, s.installs)
	for _, c := range csvs {
		match, _ := s.Rules.Forbids(c.CSV, c.Version, planCatalog(plan, c.CSV))
		switch {
		case c.Package == "":
			keep = "the package of " + text.Name(c.CSV) + " in it is not known"
			continue
		case c.Package != s.pkg:
			keep = "it also installs " + text.Name(c.CSV)
			continue
		case !match:
			keep = "the policy does not surely mean " + text.Name(c.CSV) + " in it"
		}
		ours = true
	}
	return ours, keep
}

// installs tells whether a name is that of a ClusterServiceVersion of the package.
func (s *scope) installs(csv string) bool {
	return slices.ContainsFunc(s.csvs, func(c CSV) bool { return c.Name == csv }) ||
		slices.ContainsFunc(s.subscriptions, func(sub Subscription) bool { return sub.follows(csv) })
}

// planCatalog is where a plan takes a ClusterServiceVersion from; zero where it does not say, or says two.
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

// followedPlans are the plans that the meant Subscriptions follow: the one that OLM names, else the newest
// that installs what they have.
func (s *scope) followedPlans() []*olm.InstallPlan {
	var followed []*olm.InstallPlan
	for i := range s.meant {
		sub := &s.meant[i]
		var best *olm.InstallPlan
		for _, plan := range s.Namespace.Plans() {
			if plan.Metadata.Name == sub.InstallPlan {
				best = plan
				break
			}
			if slices.ContainsFunc(plan.Spec.CSVNames, sub.follows) && (best == nil || plan.Spec.Generation > best.Spec.Generation) {
				best = plan
			}
		}
		if best != nil && !slices.Contains(followed, best) {
			followed = append(followed, best)
		}
	}
	return followed
}
