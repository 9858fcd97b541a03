package compliance

import (
	"cmp"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/verdict"
)

// scope is an Input with the existing objects of the operator that a mustnothave policy forbids.
type scope struct {
	*Input
	pkg, namespace string
	// label is the label that OLM sets on all objects of the operator.
	label string
	// byVersion reports whether the policy selects some versions only, narrowed whether it selects some versions, or
	// some catalogs, only.
	byVersion, narrowed bool
	// subscriptions and csvs are those of the package that are installed in the namespace.
	subscriptions []*olm.Subscription
	csvs          []*olm.CSV
	// selected are the subscriptions that the policy selects.
	selected []*olm.Subscription
	// subscriptionItems and csvItems are the removal states of subscriptions and csvs.
	subscriptionItems, csvItems []item
}

func newScope(in *Input) *scope {
	spec := &in.Policy.Spec
	s := &scope{Input: in, pkg: spec.Subscription.Name, namespace: spec.Subscription.Namespace}
	s.label = OperatorLabel(s.pkg, s.namespace)
	s.byVersion = len(in.Rules.Versions.Entries) > 0 || spec.VersionRange != ""
	s.narrowed = s.byVersion || in.Rules.Catalog != olm.Catalog{}
	s.subscriptions = filter(in.Namespace.Subscriptions(), func(sub *olm.Subscription) bool {
		return sub.Spec.Package == s.pkg && sub.Metadata.Namespace == s.namespace
	})
	s.csvs = filter(in.Namespace.CSVs(), s.ours)
	s.selected = filter(s.subscriptions, s.means)
	s.subscriptionItems, s.csvItems = s.judgeSubscriptions(), s.judgeCSVs()
	return s
}

// OperatorLabel is the label by which OLM marks the objects of an operator.
func OperatorLabel(pkg, namespace string) string {
	return metakey.ComponentPrefix + olm.Component(pkg, namespace)
}

// ours reports whether a ClusterServiceVersion is of the package. One whose properties name another
// package is never ours, whatever labels it has.
func (s *scope) ours(c *olm.CSV) bool {
	if c.Metadata.Labels.CopiedFrom != "" || c.Metadata.Namespace != s.namespace {
		return false
	}
	if c.Bundle.Package != "" {
		return c.Bundle.Package == s.pkg
	}
	followed := false
	for _, sub := range s.Namespace.Subscriptions() {
		if !sub.Follows(c.Metadata.Name) {
			continue
		}
		if sub.Spec.Package != s.pkg {
			return false
		}
		followed = true
	}
	return followed || s.onRecord(kindClusterServiceVersion, &c.Metadata)
}

// means reports whether the policy selects a Subscription: by its catalog and, if the policy restricts
// versions, by its installed version.
func (s *scope) means(sub *olm.Subscription) bool {
	if !s.byVersion {
		match, _ := bundle.Forbids(s.Rules, "", "", sub.Catalog(), s.Now)
		return match
	}
	installed := s.csvs
	for i := range s.csvs {
		if s.csvs[i].Metadata.Name == sub.Status.InstalledCSV {
			installed = s.csvs[i : i+1]
		}
	}
	return slices.ContainsFunc(installed, func(c *olm.CSV) bool {
		match, _ := bundle.Forbids(s.Rules, c.Metadata.Name, c.Bundle.Version, sub.Catalog(), s.Now)
		return match
	})
}

// catalogOf returns the catalog of a ClusterServiceVersion, from the Subscription that refers to it, or else from
// those to its package, or without any from the plans that installed it. It is zero if none tells, or several disagree.
func (s *scope) catalogOf(c *olm.CSV) olm.Catalog {
	var followers, others []olm.Catalog
	for i := range s.subscriptions {
		if s.subscriptions[i].Follows(c.Metadata.Name) {
			followers = append(followers, s.subscriptions[i].Catalog())
		} else {
			others = append(others, s.subscriptions[i].Catalog())
		}
	}
	if len(followers) == 0 {
		followers = others
	}
	if len(followers) == 0 {
		return carrier.InstalledFrom(s.Namespace, c.Metadata.Name)
	}
	if slices.ContainsFunc(followers, func(c olm.Catalog) bool { return c != followers[0] }) {
		return olm.Catalog{}
	}
	return followers[0]
}

// onRecord reports whether the status records, for the present generation of the policy, that this very object must be
// deleted. It was recorded while the evidence existed: an object outlives the Subscription that names its catalog.
func (s *scope) onRecord(kind string, o *olm.ObjectMeta) bool {
	status := &s.Policy.Status
	return o.UID != "" && status.ObservedGeneration == s.Policy.Generation &&
		slices.ContainsFunc(status.RelatedObjects, func(r policyv1beta2.RelatedObject) bool {
			meta := r.Object.Metadata
			return r.Object.Kind == kind && meta.Name == o.Name && meta.Namespace == o.Namespace &&
				r.Properties != nil && r.Properties.UID == o.UID &&
				(r.Reason == relatedNotWanted || r.Reason == relatedDeleting || r.Reason == relatedDeleted)
		})
}

func (s *scope) judgeSubscriptions() []item {
	keep := keptIf(s.Policy.Spec.RemovalBehavior.Subscriptions == policyv1beta2.RemovalKeep, "subscriptions")
	var items []item
	for _, sub := range s.subscriptions {
		next := item{ObjectMeta: sub.Metadata, removalState: notSelected}
		if slices.Contains(s.selected, sub) {
			next = newItem(sub.Metadata, keep)
		}
		items = append(items, next)
	}
	return items
}

// judgeCSVs retains what the policy may or may not select: a deletion requires certainty.
func (s *scope) judgeCSVs() []item {
	keep := keptIf(s.Policy.Spec.RemovalBehavior.ClusterServiceVersions == policyv1beta2.RemovalKeep,
		"clusterServiceVersions")
	var items []item
	for _, c := range s.csvs {
		catalog := s.catalogOf(c)
		match, sure := bundle.Forbids(s.Rules, c.Metadata.Name, c.Bundle.Version, catalog, s.Now)
		recorded := s.onRecord(kindClusterServiceVersion, &c.Metadata)
		next := newItem(c.Metadata, keep)
		switch {
		case match, !sure && recorded:
			byName, _ := bundle.Forbids(s.Rules, c.Metadata.Name, c.Bundle.Version, olm.Catalog{}, s.Now)
			evident := byName && c.Bundle.Package != ""
			next.unrecorded = next.removalState == going && !evident && !recorded
		case sure:
			next = item{ObjectMeta: c.Metadata, removalState: notSelected}
		case next.removalState == going:
			next.removalState, next.why = unsure, "its version is not known"
			if s.Rules.Versions.Binds(c.Metadata.Name) {
				next.why = "the digest of the bundle image that it was installed from is not known"
			}
			if catalog == (olm.Catalog{}) && s.Rules.Catalog != (olm.Catalog{}) {
				next.why = "its catalog is not known: neither a Subscription nor a plan names it"
			}
		}
		items = append(items, next)
	}
	return items
}

// judgeCRDs retains what others may need: deleting a definition deletes all objects of its kind, in the whole cluster.
// OLM's label alone is no evidence that it is the operator's: OLM also sets it on existing definitions that an operator
// lists as owned.
func (s *scope) judgeCRDs() []item {
	keep := cmp.Or(keptIf(s.Policy.Spec.RemovalBehavior.CustomResourceDefinitions != policyv1beta2.RemovalDelete,
		"customResourceDefinitions"),
		s.Grants.Missing(grant.Definitions))
	var items []item
	for _, crd := range s.CRDs {
		next := newItem(crd.ObjectMeta, keep)
		recorded := s.onRecord(kindCustomResourceDefinition, &crd.ObjectMeta)
		why := ""
		switch {
		case s.narrowed && s.hasUnmeant():
			why = "the operator that stays installed needs it"
		case keep != "":
		case s.shared(&crd):
			why = "another installation in this cluster uses it"
		case !recorded && next.removalState == going && !s.createdFor(&crd):
			why = "no InstallPlan in namespace " + s.namespace + " shows that OLM created it for the operator"
		case s.narrowed && !recorded && !s.hasMeant():
			why = "nothing shows that it belongs to an operator that the policy removes"
		default:
			evidenceGoes := s.narrowed || s.Policy.Spec.RemovalBehavior.InstallPlans == policyv1beta2.RemovalDelete
			next.unrecorded = evidenceGoes && !recorded && next.removalState == going
		}
		if why != "" {
			next.removalState, next.why = staying, why
		}
		items = append(items, next)
	}
	return items
}

// shared reports whether a definition also belongs to the operator in another namespace.
func (s *scope) shared(crd *CRD) bool {
	return slices.ContainsFunc(crd.Operators, func(label string) bool { return label != s.label })
}

// createdFor reports whether a plan of the namespace created a definition for the operator: it has a step for it and
// one of the package's ClusterServiceVersions, and the definition was created while it ran.
func (s *scope) createdFor(crd *CRD) bool {
	return slices.ContainsFunc(s.Namespace.Plans(), func(plan *olm.InstallPlan) bool {
		return plan.Metadata.Namespace == s.namespace && slices.ContainsFunc(plan.Status.Steps,
			func(step olm.Step) bool {
				return step.WritesDefinition() && step.Resource.Name == crd.Name &&
					plan.Created(&step, crd.CreationTimestamp) &&
					!s.Namespace.Planted(plan, step.Resolving) && s.resolves(plan, step.Resolving)
			})
	})
}

// resolves reports whether a ClusterServiceVersion in a plan is of the package.
func (s *scope) resolves(plan *olm.InstallPlan, csv string) bool {
	csvs := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: s.Namespace}).CSVs
	i := slices.IndexFunc(csvs, func(c verdict.CSV) bool { return c.CSV == csv })
	if i >= 0 && csvs[i].Package != "" {
		return csvs[i].Package == s.pkg
	}
	return s.installs(csv)
}

// hasMeant reports whether an object of the operator exists that the policy selects.
func (s *scope) hasMeant() bool {
	return len(s.selected) > 0 || slices.ContainsFunc(s.csvItems,
		func(i item) bool { return i.removalState != notSelected && i.removalState != unsure })
}

// hasUnmeant reports whether an object of the operator exists that the policy does not select.
func (s *scope) hasUnmeant() bool {
	return len(s.selected) < len(s.subscriptions) || slices.ContainsFunc(s.csvItems,
		func(i item) bool { return i.removalState == notSelected })
}

// installedCSV returns the installed ClusterServiceVersion of the package, or "".
func (s *scope) installedCSV() string {
	name := ""
	for i := range s.csvs {
		if name == "" || slices.ContainsFunc(s.subscriptions,
			func(sub *olm.Subscription) bool { return sub.Status.InstalledCSV == s.csvs[i].Metadata.Name }) {
			name = s.csvs[i].Metadata.Name
		}
	}
	return name
}
