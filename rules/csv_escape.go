package rules

import (
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Escape is why admission would have refused a ClusterServiceVersion that was stored without a review: the reason of
// one source.
type Escape struct {
	Source verdict.PolicyRef
	// Generation is the metadata.generation of the source, 0 if its verdict depends on more than its spec: template
	// text, or a Policy that suspends it.
	Generation int64
	// Deny is false if admission would only have held it until something else happens.
	Deny bool
	// Message is the message of the Reason.
	Message string
}

// JudgeEscape judges a stored ClusterServiceVersion as admission judges the step of a plan by which OLM writes it, in
// any phase of that plan. Outcomes: known is false if no approved plan contains it: a user, or OLM, has deleted the
// plan, and with it a possible override, so that reasons has what is denied whatever the plan was (threat O57); it is
// also false, without reasons, for copies, virtual operators and objects that are being deleted. Otherwise reasons is
// empty if admission would have allowed it, with or without a warning.
func JudgeEscape(csv *olm.CSV, ns *state.Namespace) (reasons []Escape, known bool) {
	if csv.Metadata.Labels.CopiedFrom != "" || state.IsVirtual(csv) || csv.Metadata.DeletionTimestamp != "" {
		return nil, false
	}
	in := CSVInput{New: csv, Namespace: ns}
	created, err := time.Parse(time.RFC3339, csv.Metadata.CreationTimestamp)
	var steps []carrier.Bundle
	for _, plan := range ns.Plans() {
		if !plan.Spec.Approved || !plan.Brings(csv.Metadata.Name) {
			continue
		}
		in.ByOLM = plan.Status.ServiceAccount.Name == ""
		if step, ok := carrier.OfStep(in.New, plan, in.Namespace, in.ByOLM); ok {
			// what comes along is read for unfinished plans only
			step.Stored, step.StoredAt, step.Referring = true, created, false
			steps = append(steps, step)
		}
	}
	v, budget, gone := verdict.Verdict{}, constraint.NewBudget(nil), ""
	if len(steps) > 0 {
		in.judgeSteps(exactOrAll(steps), budget, &v)
	} else {
		gone = "; the InstallPlan that brought it was deleted"
		in.ByOLM = true
		c := in.bundle(csv)
		c.BypassesOLM = false // its catalog is not known
		judgeBypassingOLM(&in, c, nil, &v)
		for _, f := range ns.Constraints().Judge(c.ForConstraints(ns), ns.ForConstraints(), budget) {
			state.RecordConstraint(&v, bundle.RuleConstraint, "this ClusterServiceVersion", &f)
		}
	}
	v = v.Sorted()
	for _, r := range v.Reasons {
		if err == nil && wasExcepted(ns, r.From, r.Rule, csv.Metadata.Name, created) {
			continue // as admission would have judged it then
		}
		if gone != "" && r.Decision != verdict.Deny {
			continue // the plan might have shown what it waits for, such as its catalog
		}
		reasons = append(reasons, Escape{Source: r.From, Generation: ns.GenerationOf(r.From),
			Deny: r.Decision == verdict.Deny, Message: r.Message + gone})
	}
	return reasons, len(steps) > 0
}

// wasExcepted reports whether an exception set a rule of a source aside for a ClusterServiceVersion at a time of the
// past, whether or not it has ended since.
func wasExcepted(n *state.Namespace, from verdict.PolicyRef, id verdict.RuleID, csv string, then time.Time) bool {
	for _, p := range n.Policies() {
		if p.Ref() == from {
			return p.Exceptions().Was(id, csv, n.Name(), then)
		}
	}
	for _, d := range n.Constraints().Definitions() {
		if state.ConstraintRef(d) == from {
			return d.Exceptions.Was(id, csv, n.Name(), then)
		}
	}
	return false
}
