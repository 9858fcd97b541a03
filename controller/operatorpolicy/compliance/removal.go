package compliance

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
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
