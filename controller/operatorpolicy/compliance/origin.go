package compliance

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Origin is the namespace that a copy of a ClusterServiceVersion names as its source. The label with its name is no
// evidence: a user who may write ClusterServiceVersions in one namespace can set it, or make OLM set it on
// copies in every other namespace.
type Origin struct {
	// CSV is the original: it has the copy's name and is not a copy itself.
	CSV       *olm.CSV
	Namespace *state.Namespace
}

// serves reports whether OLM copies what is installed there to a namespace: OLM requires exactly one OperatorGroup
// and writes its target namespaces, "" for all, to its status.
func (o *Origin) serves(namespace string) bool {
	if o == nil || o.CSV.Metadata.Labels.CopiedFrom != "" || o.CSV.Metadata.DeletionTimestamp != "" ||
		len(o.Namespace.Groups()) != 1 {
		return false
	}
	targets := o.Namespace.Groups()[0].Status.Namespaces
	return slices.Contains(targets, "") || slices.Contains(targets, namespace)
}

// provides reports whether the original is of a package: by its own properties, else by the Subscriptions that refer to
// it.
func (o *Origin) provides(pkg string) bool {
	if o.CSV.Bundle.Package != "" {
		return o.CSV.Bundle.Package == pkg
	}
	followers := o.followers()
	return len(followers) > 0 && !slices.ContainsFunc(followers,
		func(s *olm.Subscription) bool { return s.Spec.Package != pkg })
}

// comesFrom reports whether the original was installed from a catalog that a policy allows. A policy that names none
// allows all. Otherwise a Subscription must refer to the original, all that do must be to that package and catalog,
// and the plan that installed it, if it still exists, must not contradict: OLM links a Subscription to any object with
// the expected name, and the Subscription's catalog can be changed afterwards.
func (o *Origin) comesFrom(p *operatorpolicy.Policy) bool {
	if p.Catalog == (olm.Catalog{}) {
		return true
	}
	if o.Namespace.Drifted(o.CSV.Metadata.Name) {
		return false
	}
	followers := o.followers()
	if len(followers) == 0 || slices.ContainsFunc(followers,
		func(s *olm.Subscription) bool { return s.Spec.Package != p.Package || !p.AllowsCatalog(s.Catalog()) }) {
		return false
	}
	plan := o.plan()
	return plan == nil || plan.Spec.Approved && !preceded(plan, o.CSV) &&
		p.AllowsCatalog(cmp.Or(planCatalog(plan, o.CSV.Metadata.Name), followers[0].Catalog()))
}

// followers returns the Subscriptions that have installed, or move to, the original.
func (o *Origin) followers() []*olm.Subscription {
	return filter(o.Namespace.Subscriptions(), func(s *olm.Subscription) bool { return s.Follows(o.CSV.Metadata.Name) })
}

// plan returns the newest plan that installs the original, nil if it was deleted: OLM retains few of them.
func (o *Origin) plan() *olm.InstallPlan {
	var newest *olm.InstallPlan
	for _, plan := range o.Namespace.Plans() {
		if slices.Contains(plan.Spec.CSVNames, o.CSV.Metadata.Name) &&
			(newest == nil || plan.Spec.Generation > newest.Spec.Generation) {
			newest = plan
		}
	}
	return newest
}

// preceded reports whether a ClusterServiceVersion is older than the plan that should have installed it. The status of
// the plan's step does not show it: OLM repeats steps, and then finds existing objects that it has created itself.
func preceded(plan *olm.InstallPlan, csv *olm.CSV) bool {
	return csv.Metadata.CreationTimestamp < plan.Metadata.CreationTimestamp
}
