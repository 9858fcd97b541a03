package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
)

// parseQuestion reads KIND NAMESPACE/NAME, or KIND NAME for a cluster-scoped kind.
func parseQuestion(args []string) (*question, error) {
	if len(args) != 2 {
		return nil, errors.New("write a kind and the name of an object, as in: why installplan shop/install-x7")
	}
	i := slices.IndexFunc(subjects, func(s subject) bool { return slices.Contains(s.names, strings.ToLower(args[0])) })
	if i < 0 {
		var known []string
		for _, s := range subjects {
			known = append(known, s.names[0])
		}
		return nil, fmt.Errorf("kind %s is not judged: use %s", text.Quote(args[0]), strings.Join(known, ", "))
	}
	q := &question{subject: subjects[i]}
	if q.ClusterScoped {
		q.key = types.NamespacedName{Name: args[1]}
		if len(validation.IsDNS1123Subdomain(args[1])) > 0 {
			return nil, fmt.Errorf("%s is no name of a %s, which has no namespace", text.Quote(args[1]), q.names[0])
		}
		return q, nil
	}
	var ok bool
	if q.key, ok = cli.NamespacedName(args[1]); !ok {
		return nil, fmt.Errorf("%s is no %s: write NAMESPACE/NAME", text.Quote(args[1]), q.names[0])
	}
	return q, nil
}

func whyPlan(q *question, _ []byte) (*answer, error) {
	ns := q.state.Namespace(q.key.Namespace)
	i := slices.IndexFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == q.key.Name })
	if i < 0 {
		return nil, errors.New("it cannot be decoded")
	}
	plan := ns.Plans()[i]
	verdict := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns})
	a := answered(&verdict, operatorsOf(plan, &verdict))
	stale := rules.Stale(rules.StaleInput{Plan: plan, Namespace: ns})
	if stale == "" || verdict.Decision == rules.Allow {
		a.Edits = q.edits(plan, &verdict)
	}
	switch {
	case plan.Spec.Approved:
		a.Notes = append(a.Notes, "it was approved before (phase "+plan.Status.Phase+"): this is the verdict if it were approved now")
	case plan.RequiresApproval() && !ns.IsCurrent(plan):
		a.Notes = append(a.Notes, "it is outdated: no Subscription names it as its current plan, and approving it would bring an earlier version; delete it")
	case stale != "" && verdict.Decision != rules.Allow:
		a.Notes = append(a.Notes, rules.StaleAdvice(plan, stale))
	case plan.Status.Phase == olm.PhaseRequiresApproval && verdict.Decision == rules.Allow:
		a.Notes = append(leftToUsers(q.state, plan), "it may be approved: kubectl opgate approve "+displayKey(q.key))
	}
	return a, nil
}

func whySubscription(q *question, raw []byte) (*answer, error) {
	sub, err := olm.DecodeSubscription(raw)
	if err != nil {
		return nil, err
	}
	ns := q.state.Namespace(q.key.Namespace)
	verdict := rules.JudgeSubscription(rules.SubscriptionInput{Subscription: sub, Namespace: ns, Mode: q.mode,
		InstalledElsewhere: q.state.Snapshot.InstalledElsewhere(sub.Spec.Package, q.key.Namespace)})
	a := answered(&verdict, []operator{})
	for _, c := range verdict.Changes {
		if c.Message != "" {
			a.Warnings = append(a.Warnings, c.Preview())
		}
	}
	governed := false
	for _, p := range ns.Policies() {
		if p.Governs(sub.Spec.Package) {
			governed = true
			a.Notes = append(a.Notes, "governed by "+p.Source())
		}
	}
	if !governed {
		a.Notes = append(a.Notes, "ungoverned: no OperatorPolicy names package "+text.Name(sub.Spec.Package)+" in namespace "+text.Name(q.key.Namespace))
	}
	if name := sub.Status.InstallPlan.Name; name != "" {
		a.Notes = append(a.Notes, "its current plan: kubectl opgate why installplan "+displayKey(types.NamespacedName{Namespace: q.key.Namespace, Name: name}))
	}
	return a, nil
}

// whyCSV returns the part of the verdict on a plan that is about one operator. Without a plan the ClusterServiceVersion is judged itself.
func whyCSV(q *question, raw []byte) (*answer, error) {
	ns := q.state.Namespace(q.key.Namespace)
	plan := planBringing(ns, q.key.Name)
	if plan == nil {
		csv, err := olm.DecodeCSV(raw)
		if err != nil {
			return nil, err
		}
		verdict := rules.JudgeCSV(rules.CSVInput{New: csv, Namespace: ns})
		a := answered(&verdict, []operator{})
		a.Notes = append(a.Notes, "no InstallPlan in the namespace brings it: this is the verdict if it were created now, without one")
		return a, nil
	}
	verdict := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns})
	if i := slices.IndexFunc(verdict.CSVs, func(c rules.CSVVerdict) bool { return c.CSV == q.key.Name }); i >= 0 {
		only := verdict.CSVs[i]
		verdict.CSVs, verdict.Decision = []rules.CSVVerdict{only}, rules.Allow
		verdict.Reasons = slices.DeleteFunc(verdict.Reasons, func(r rules.Reason) bool { return !slices.Contains(only.Because, r.Message) })
		for _, r := range verdict.Reasons {
			verdict.Decision = max(verdict.Decision, r.Decision)
		}
	}
	verdict.Object = "clusterserviceversion " + displayKey(q.key)
	a := answered(&verdict, operatorsOf(plan, &verdict))
	a.Edits = q.edits(plan, &verdict)
	a.Notes = append(a.Notes, "brought by installplan "+text.Name(plan.Metadata.Key())+" (phase "+plan.Status.Phase+"): this is the verdict if that were approved now")
	return a, nil
}

func whyOperatorPolicy(q *question, raw []byte) (*answer, error) {
	policy, strict, err := rules.DecodeOperatorPolicy(raw)
	if err != nil {
		return whyUnreadable(q, err)
	}
	verdict := rules.JudgeOperatorPolicy(rules.OperatorPolicyInput{Policy: policy, Strict: strict, Namespace: q.state.Namespace})
	a := answered(&verdict, []operator{})
	if prepared := rules.NewOperatorPolicy(policy); prepared.Package != "" && prepared.TargetNamespace != "" {
		governed := "package " + text.Name(prepared.Package) + " in namespace " + text.Name(prepared.TargetNamespace)
		a.Notes = append(a.Notes, "governs "+governed)
		if all := rules.Overlapping(q.state.Namespace(prepared.TargetNamespace), prepared.Package); prepared.Enforced && len(all) > 1 {
			var names []string
			for _, p := range all {
				names = append(names, p.Namespace+"/"+p.Name)
			}
			a.Notes = append(a.Notes, "installs, upgrades and approves nothing, because several enforced policies govern "+governed+": "+
				text.Names(names, 3)+"; leave one of them enforced")
		}
	}
	return a, nil
}

// whyUnreadable returns what a stored policy that does not decode holds.
func whyUnreadable(q *question, cause error) (*answer, error) {
	for ns := range q.state.Snapshot.All() {
		for _, p := range ns.Policies() {
			if p.Namespace == q.key.Namespace && p.Name == q.key.Name {
				why := rules.Reason{Rule: rules.RulePolicyUnreadable, Source: p.Source(), Decision: rules.Hold}
				why.Message = fmt.Sprintf("%s is held (%s): waits until the policy can be read: %s", p.Target(), why.Rule,
					text.Escape(p.Unreadable()))
				object := "operatorpolicy " + displayKey(q.key)
				return answered(&rules.Verdict{Object: object, Decision: why.Decision, Reasons: []rules.Reason{why}}, []operator{}), nil
			}
		}
	}
	return nil, cause
}

func whyConstraint(q *question, raw []byte) (*answer, error) {
	c, strict, err := rules.DecodeConstraint(raw)
	if err != nil {
		return nil, err
	}
	verdict := rules.JudgeConstraint(rules.ConstraintInput{Constraint: c, Strict: strict, Namespaces: q.state.Snapshot.All(),
		Constraints: q.state.Snapshot.Constraints()})
	return answered(&verdict, []operator{}), nil
}

func whyPolicy(q *question, raw []byte) (*answer, error) {
	policy := &policyv1.Policy{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, policy); err != nil {
		return nil, err
	}
	graph := q.state.Snapshot.Graph()
	verdict := rules.JudgePolicy(rules.PolicyInput{Policy: policy, Graph: graph})
	a := answered(&verdict, []operator{})
	for _, t := range dependency.Read(policy).Templates {
		for _, d := range t.Dependencies {
			a.Notes = append(a.Notes, fmt.Sprintf("%s waits for %s to be %s", t.Ref, d.Ref, text.Name(string(d.Want))))
		}
	}
	if len(dependency.Read(policy).PendingDependencies) > 0 {
		a.Notes = append(a.Notes, "now: "+graph.Chain(dependency.PolicyRef(policy.Namespace, policy.Name), ""))
	}
	return a, nil
}
