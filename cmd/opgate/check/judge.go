package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// judgement is the verdict on one object, with what explains an allowed one.
type judgement struct {
	*object
	verdict rules.Verdict
	notes   []string
	// with names the overlays that an object outside of them is judged with, where that makes a difference.
	with string
	// alreadyApproved is set for a plan that was approved before and is not judged.
	alreadyApproved bool
	// held is set for a refusal that the API server has by itself.
	held bool
}

// judging is how objects are judged.
type judging struct {
	mode rules.ApprovalMode
	// again judges plans that were approved before, installed judges installed operators.
	again, installed bool
	// nothing is what is said if nothing was judged.
	nothing string
	// gone are objects of the cluster that are not in force.
	gone []*snapshot.Object
	// within returns the state of a cluster that holds the objects.
	within func(m *manifests) (*surroundings, error)
}

// judge judges the objects of the input, in its order, each as if it were written now to a cluster that holds all the others, and then what
// else is judged on the cluster.
func (how *judging) judge(m *manifests) (judged []judgement, notes []string, err error) {
	cluster, err := how.within(m)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range slices.Concat(m.objects, cluster.stored) {
		j := judgement{object: o}
		switch {
		case o.operatorPolicy != nil:
			// The mutating webhook comes first on a cluster; what it fills in changes no verdict.
			j.verdict = rules.JudgeOperatorPolicy(rules.OperatorPolicyInput{Policy: o.operatorPolicy, Strict: o.strict,
				Namespace: cluster.WithDependencies})
			j.verdict.Changes = append(rules.NormalizeOperatorPolicy(o.operatorPolicy, nil), j.verdict.Changes...)
			j.notes = policyNotes(rules.NewOperatorPolicy(o.operatorPolicy))
		case o.constraint != nil:
			j.verdict = rules.JudgeConstraint(rules.ConstraintInput{Constraint: o.constraint, Strict: o.strict,
				Namespaces: cluster.All(), Constraints: cluster.Constraints()})
			j.notes = constraintNotes(rules.NewDefinition(o.constraint, o.strict))
		case o.policy != nil:
			j.verdict = rules.JudgePolicy(rules.PolicyInput{Policy: o.policy, Graph: cluster.Graph()})
			j.notes = dependencyNotes(o.policy)
		case o.set != nil:
			j.verdict = rules.JudgePolicySet(rules.PolicySetInput{Set: o.set, Graph: cluster.Graph()})
		case o.subscription != nil:
			ns := cluster.WithDependencies(o.namespace)
			j.verdict = rules.JudgeSubscription(rules.SubscriptionInput{Subscription: o.subscription, Namespace: ns, Mode: how.mode,
				InstalledElsewhere: cluster.InstalledElsewhere(o.subscription.Spec.Package, o.namespace)})
			j.notes = append(subscriptionNotes(o, ns), cluster.judgedBy(ns)...)
		case o.plan != nil && !how.again && approvedBefore(o.plan):
			j.alreadyApproved = true
			j.verdict = rules.Verdict{Object: "installplan " + o.key(), Warnings: rules.RefusedSteps(o.plan, cluster.WithDependencies(o.namespace))}
			j.notes = []string{"approved before, its phase is " + o.plan.Status.Phase + ": not judged again; --as-if=" +
				asIfApprovedNow + " judges it"}
		case o.plan != nil:
			ns := cluster.WithDependencies(o.namespace)
			j.verdict = rules.JudgePlan(rules.PlanInput{Plan: o.plan, Namespace: ns})
			j.notes = append(planNotes(o, &j.verdict), cluster.judgedBy(ns)...)
		case o.kind == olm.KindClusterServiceVersion && how.installed:
			ns := cluster.WithDependencies(o.namespace)
			var here bool
			if j.verdict, here = rules.JudgeInstalled(ns, o.name); !here {
				continue
			}
			j.notes = append(planNotes(o, &j.verdict), cluster.judgedBy(ns)...)
		case o.source != nil || o.group != nil:
			j.verdict = judgeSource(o, cluster.WithDependencies(o.namespace))
		default:
			continue
		}
		if len(o.refused) > 0 {
			j.verdict = j.verdict.Refused(schemaRule(o), o.refused)
		}
		if j.verdict.Decision != rules.Allow {
			j.held = (o.plan != nil || o.subscription != nil) && slices.ContainsFunc(j.verdict.Reasons, o.backstop)
		}
		judged = append(judged, j)
	}
	return judged, cluster.notes, nil
}

// backstop reports whether the API server refuses a plan or Subscription for a reason by itself. Where a policy cannot be read, it stores a
// Subscription as Manual and leaves the refusal to the webhooks; of an unknown package it refuses ClusterServiceVersions alone.
func (o *object) backstop(r rules.Reason) bool {
	return rules.RuleOf(r.Rule).Backstop && r.Rule != rules.RuleBundleUnknown && (o.plan != nil || r.Rule != rules.RulePolicyUnreadable)
}

// approvedBefore reports whether OLM runs a plan, or has run it. Without such a phase spec.approved only asks for that.
func approvedBefore(p *olm.InstallPlan) bool {
	return p.Spec.Approved && slices.Contains([]string{olm.PhaseInstalling, olm.PhaseComplete, olm.PhaseFailed}, p.Status.Phase)
}

// surroundings are the state of a cluster that holds the whole input.
type surroundings struct {
	*snapshot.Snapshot
	// stored are objects of the cluster that are judged after those of the input, notes what could not be read of it.
	stored []*object
	notes  []string
	// alone has a set for each of the Constraints, to find where it applies.
	alone []*constraint.Set
}

// inFiles returns the state of a cluster that holds nothing but the input. No policy waits for another one there: what the statuses of Policies
// would show is not known.
func inFiles(m *manifests, versions state.Cluster) *snapshot.Snapshot {
	type key struct {
		name   string
		source olm.Catalog
	}
	packages := map[key]*catalog.Package{}
	for _, o := range m.objects {
		if o.pkg != nil {
			packages[key{o.pkg.Name, o.pkg.Catalog}] = o.pkg
		}
	}
	b := snapshot.Builder{Unsuspended: true, Changes: m.files.Changes, Packages: func(pkg, _ string, source olm.Catalog) *catalog.Package {
		return packages[key{pkg, source}]
	}}
	b.SetCluster(time.Time{}, versions)
	return b.Put(time.Time{}, kept(m)...)
}

func policyNotes(p *rules.OperatorPolicy) []string {
	if p.Package == "" || p.TargetNamespace == "" {
		return nil // a warning says so
	}
	return []string{fmt.Sprintf("governs package %s in namespace %s%s", p.Package, p.TargetNamespace, onlyInforms(p))}
}

func onlyInforms(p *rules.OperatorPolicy) string {
	if p.Enforced {
		return ""
	}
	return ", only informs"
}

// subscriptionNotes names the policies that apply.
func subscriptionNotes(o *object, ns *rules.Namespace) (notes []string) {
	pkg := o.subscription.Spec.Package
	for _, p := range ns.Policies() {
		if p.Governs(pkg) {
			notes = append(notes, "governed by "+p.Source()+onlyInforms(p))
		}
	}
	if len(notes) == 0 {
		notes = append(notes, fmt.Sprintf("ungoverned: no OperatorPolicy names package %s in namespace %s", pkg, o.namespace))
	}
	return notes
}

// planNotes states the result for each ClusterServiceVersion of a plan.
func planNotes(o *object, v *rules.Verdict) (notes []string) {
	if v.CSVs == nil {
		return []string{"ungoverned: no OperatorPolicy governs namespace " + o.namespace}
	}
	for _, c := range v.CSVs {
		note := c.CSV
		if c.Package != "" {
			note += " (" + strings.TrimSpace("package "+c.Package+" "+c.Version) + ")"
		}
		note += ": " + c.Disposition.String()
		switch {
		case len(c.By) > 0:
			note += " by " + strings.Join(c.By, ", ")
		case c.Disposition == rules.Ungoverned:
			note += ", no enforcing OperatorPolicy restricts it"
		}
		notes = append(notes, note)
	}
	return notes
}
