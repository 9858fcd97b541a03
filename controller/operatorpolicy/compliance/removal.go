package compliance

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
)

// recordTime is the requeue delay of a removal that waits for its own status.
const recordTime = time.Second

// removal evaluates a mustnothave policy and deletes the objects of its operator
// kind by kind: Subscription, ClusterServiceVersion, InstallPlans, CustomResourceDefinitions and
// OperatorGroup. A kind is only deleted when the kind before it is gone or retained: deleting a group or a
// definition while the operator runs would break it half-way, and one deleted while a finalizer
// blocks the deletion of the Subscription would be created again.
func removal(in *Input) Outcome {
	s := newScope(in)
	behavior := &in.Policy.Spec.RemovalBehavior
	crds := s.judgeCRDs()

	r := remover{scope: s, waitsForRecord: slices.ContainsFunc(slices.Concat(s.csvItems, crds),
		func(i item) bool { return i.unrecorded })}
	subscription := r.remove(TypeSubscription, s.subscriptionItems)
	csv := r.remove(TypeClusterServiceVersion, s.csvItems)
	plans := s.judgePlans()
	plan := s.plansKept(plans)
	// a plan that runs is no record yet: OLM would repeat it for ever
	if behavior.InstallPlans != policyv1beta2.RemovalDelete {
		plans = slices.DeleteFunc(plans, func(i item) bool { return !i.runs || !i.removalState.remains() })
	}
	if behavior.InstallPlans == policyv1beta2.RemovalDelete || len(plans) > 0 {
		plan = r.remove(TypeInstallPlan, plans)
	}
	crd := r.remove(TypeCustomResourceDefinition, crds)
	groups, ambiguous := s.judgeGroups()
	operatorGroup := s.tooManyGroups()
	if !ambiguous {
		operatorGroup = r.remove(TypeOperatorGroup, groups)
	}

	out := Outcome{
		Conditions: []Condition{operatorGroup, subscription, plan, csv, crd, s.deploymentsNotHandled(),
			s.catalogNotHandled()},
		Actions:          r.actions,
		InstalledVersion: s.installedCSV(),
	}
	if r.waitsForRecord && in.Policy.Spec.IsEnforced() {
		out.After = recordTime
	}
	return out
}

// remover deletes kinds one after the other.
type remover struct {
	*scope
	// waitsForRecord blocks every deletion until the objects to delete later are recorded in the status: the
	// Subscription and the ClusterServiceVersion are the only evidence for them.
	waitsForRecord bool
	// before names what is left of an earlier kind; empty if nothing is.
	before  string
	actions []Action
}

// remove returns the condition on one kind, with its deletions if it is that kind's turn.
func (r *remover) remove(conditionType string, items []item) Condition {
	k := removalKind{scope: r.scope, kind: kindOf[conditionType], conditionType: conditionType, next: "will be deleted"}
	items = r.denied(items)
	left := filter(items, func(i item) bool { return i.removalState.remains() })
	enforced := r.Policy.Spec.IsEnforced()
	switch {
	case !enforced:
		k.next = "will not be deleted, because the policy is not enforced"
	case r.before != "":
		k.next = "will be deleted after " + r.before
	case r.waitsForRecord:
		k.next = "will be deleted once the status of the policy reports it"
	default:
		r.actions = append(r.actions, k.deletions(items)...)
	}
	if r.before == "" && len(left) > 0 {
		r.before, _ = noun(k.kind, left)
	}
	return k.condition(items)
}

// denied returns the items of a removal. Where a policy or a Constraint denies deletions it wins, and none is deleted.
func (s *scope) denied(items []item) []item {
	denies := rules.KeptBy(s.Namespace, s.pkg)
	if denies == "" {
		return items
	}
	items = slices.Clone(items)
	for i := range items {
		if items[i].removalState == going {
			items[i].removalState, items[i].why = refused, denies+" is Deny"
		}
	}
	return items
}

// plansKept is the condition on InstallPlans that are retained, which is the default. It does not depend on the
// Subscription: the plans outlive it. Related are only the first of them, since a namespace may have any
// number.
func (s *scope) plansKept(plans []item) Condition {
	f := s.none(TypeInstallPlan)
	if len(plans) == 0 {
		return f
	}
	f.Reason, f.Related = "InstallPlanNotApplicable", nil
	var clauses []string
	for notMeant, what := range []string{"kept, since " + keptIf(true, "installPlans"), "not matched by the policy"} {
		alike := filter(plans, func(i item) bool { return i.notMeant == (notMeant == 1) })
		if len(alike) > 0 {
			objects, verb := noun(kindInstallPlan, alike)
			clauses = append(clauses, objects+verb+what)
		}
	}
	f.Message = strings.Join(clauses, "; ")
	for _, plan := range plans[:min(len(plans), maxListed)] {
		f.Related = append(f.Related, s.related(kindInstallPlan, plan.ObjectMeta, policyv1beta2.Compliant,
			relatedNotHandled))
	}
	return f
}

func deploymentsNotApplicable() Condition {
	return condition(TypeDeployment, metav1.ConditionTrue, "DeploymentNotApplicable",
		"a mustnothave policy does not check Deployments")
}

func catalogNotApplicable() Condition {
	return condition(TypeCatalogSourcesUnhealthy, metav1.ConditionFalse, "CatalogSourceNotApplicable",
		"a mustnothave policy does not check the CatalogSource")
}

// deploymentsNotHandled lists the Deployments of the operator; OLM deletes them with its ClusterServiceVersion.
func (s *scope) deploymentsNotHandled() Condition {
	f := deploymentsNotApplicable()
	var names []string
	for i := range s.csvs {
		names = append(names, s.csvs[i].Status.Deployments...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		of, reason := olm.ObjectMeta{Namespace: s.namespace, Name: name}, relatedAbsent
		if d, ok := s.Deployments[name]; ok {
			of, reason = d.ObjectMeta, relatedNotHandled
		}
		f.Related = append(f.Related, s.related(kindDeployment, of, policyv1beta2.Compliant, reason))
	}
	return f
}

// catalogNotHandled lists the catalogs of the Subscriptions, or else the one that the policy names.
func (s *scope) catalogNotHandled() Condition {
	f := catalogNotApplicable()
	var catalogs []olm.Catalog
	for _, sub := range s.selected {
		if !slices.Contains(catalogs, sub.Catalog()) {
			catalogs = append(catalogs, sub.Catalog())
		}
	}
	if c := s.Rules.Catalog; len(catalogs) == 0 && c.Name != "" && c.Namespace != "" {
		catalogs = append(catalogs, c)
	}
	for _, c := range catalogs {
		of, reason := olm.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, relatedAbsent
		if source := s.CatalogSource(c); source != nil {
			of, reason = source.Metadata, relatedNotHandled
		}
		f.Related = append(f.Related, s.related(kindCatalogSource, of, policyv1beta2.Compliant, reason))
	}
	return f
}

// judgeGroups returns the OperatorGroups that the removal covers. With several it is ambiguous which one to
// delete.
func (s *scope) judgeGroups() (items []item, ambiguous bool) {
	groups := s.groups()
	why, unused := s.groupUse()
	for i := range groups {
		next := newItem(groups[i].Metadata, why)
		switch {
		case why != "": // whichever it is, none is deleted
		case !s.policysGroup(groups[i]):
			continue
		case s.ownerOf(groups[i]) != "":
			next = newItem(groups[i].Metadata, s.ownerOf(groups[i])+" created it")
		case len(groups[i].Metadata.OwnerReferences) > 0:
			next = newItem(groups[i].Metadata, "it has ownerReferences, so something else manages it")
		case next.removalState == going:
			next.why = unused
			ambiguous = ambiguous || len(groups) > 1
		}
		items = append(items, next)
	}
	return items, ambiguous
}

// groups returns the OperatorGroups of the policy's namespace.
func (s *scope) groups() []*olm.OperatorGroup {
	return filter(s.Namespace.Groups(), func(g *olm.OperatorGroup) bool { return g.Metadata.Namespace == s.namespace })
}

// policysGroup reports whether a group is the one that the policy names, or was generated for the namespace, or was
// created by the policy, which may have named it before and need not do so to remove the operator.
func (s *scope) policysGroup(g *olm.OperatorGroup) bool {
	if s.createdByPolicy(kindOperatorGroup, &g.Metadata) {
		return true
	}
	if named := s.Policy.Spec.OperatorGroup; named != nil {
		return g.Metadata.Name == named.Name
	}
	return g.Metadata.GenerateName == s.namespace+"-"
}

// ownerOf returns the other policy that created a group, "" if none did.
func (s *scope) ownerOf(g *olm.OperatorGroup) string {
	if owner := rules.GroupOwner(s.Key, s.Namespace, &g.Metadata); owner != nil && owner.Key() != s.Rules.Key() {
		return owner.Source()
	}
	return ""
}

// otherGroups says why the groups of a namespace in which none is the policy's are retained.
func (s *scope) otherGroups() string {
	var items []item
	for _, g := range s.groups() {
		items = append(items, item{ObjectMeta: g.Metadata})
	}
	if len(items) == 0 {
		return ""
	}
	objects, verb := noun(kindOperatorGroup, items)
	return "; " + objects + verb + "kept, being neither named in spec.operatorGroup nor created by the policy"
}

// groupUse returns why no group may be deleted, or else what is at risk from a deletion that is
// requested nevertheless. An operator without its group stops working, so what stays installed counts like
// other Subscriptions.
func (s *scope) groupUse() (keep, despite string) {
	behavior := s.Policy.Spec.RemovalBehavior.OperatorGroups
	if behavior == policyv1beta2.RemovalKeep {
		return keptIf(true, "operatorGroups"), ""
	}
	user := s.groupUser()
	switch {
	case user == "":
		return "", ""
	case behavior != policyv1beta2.RemovalDelete:
		return user + " uses it", ""
	case s.hasUnmeant():
		return "the operator is also installed in a version that the policy does not match", ""
	}
	return "", "spec.removalBehavior.operatorGroups is " + string(policyv1beta2.RemovalDelete) + ", although " + user +
		" uses it"
}

// groupUser returns the name of a remaining object that needs a group, or "".
func (s *scope) groupUser() string {
	leaves := func(items []item, name string) bool {
		return slices.ContainsFunc(items, func(i item) bool { return i.Name == name && i.removalState.remains() })
	}
	for _, sub := range s.Namespace.Subscriptions() {
		if sub.Metadata.Namespace == s.namespace &&
			!leaves(s.subscriptionItems, sub.Metadata.Name) {
			return "the Subscription " + named(&sub.Metadata)
		}
	}
	for _, c := range s.Namespace.CSVs() {
		if c.Metadata.Namespace == s.namespace && c.Metadata.Labels.CopiedFrom == "" &&
			!leaves(s.csvItems, c.Metadata.Name) {
			return "the ClusterServiceVersion " + named(&c.Metadata)
		}
	}
	return ""
}

// tooManyGroups is the condition if a group must be deleted and only the author can determine which.
func (s *scope) tooManyGroups() Condition {
	f := Condition{Type: TypeOperatorGroup, Status: metav1.ConditionFalse, Reason: "TooManyOperatorGroups"}
	var items []item
	for _, g := range s.Namespace.Groups() {
		items = append(items, item{ObjectMeta: g.Metadata})
		f.Related = append(f.Related, s.related(kindOperatorGroup, g.Metadata, policyv1beta2.NonCompliant, relatedTooManyGroups))
	}
	objects, verb := noun(kindOperatorGroup, items)
	f.Message = objects + verb + "all in the namespace; none is deleted while there is more than one"
	return f
}

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
