package check

import (
	"fmt"
	"strings"

	"github.com/opgate/opgate/rules"
)

// judgement is the verdict on one object, with what explains an allowed one.
type judgement struct {
	*object
	verdict rules.Verdict
	notes   []string
}

// judge judges the objects of the input, in its order, each as if it were written now to a cluster that
// holds all the others.
func judge(m *manifests, mode rules.ApprovalMode) []judgement {
	cluster := clusterOf(m)
	judged := []judgement{}
	for _, o := range m.objects {
		j := judgement{object: o}
		switch {
		case o.policy != nil:
			// The mutating webhook comes first on a cluster; what it fills in changes no verdict.
			j.verdict = rules.JudgePolicy(rules.PolicyInput{Policy: o.policy, Strict: o.strict,
				Namespace: func(name string) *rules.Namespace { return cluster[name] }})
			j.verdict.Changes = append(rules.NormalizePolicy(o.policy, nil), j.verdict.Changes...)
			j.notes = policyNotes(o.guard)
		case o.subscription != nil:
			j.verdict = rules.JudgeSubscription(rules.SubscriptionInput{
				Subscription: o.subscription, Namespace: cluster[o.namespace], Mode: mode})
			j.notes = subscriptionNotes(m, o)
		case o.plan != nil:
			j.verdict = rules.JudgePlan(rules.PlanInput{Plan: o.plan, Namespace: cluster[o.namespace]})
			j.notes = planNotes(o, &j.verdict)
		default:
			continue
		}
		judged = append(judged, j)
	}
	return judged
}

// clusterOf makes the context: what a cluster would know that holds the whole input.
func clusterOf(m *manifests) map[string]*rules.Namespace {
	var c rules.Cluster
	for _, o := range m.objects {
		switch {
		case o.policy != nil:
			c.AddPolicy(o.guard)
		case o.subscription != nil:
			c.AddSubscription(o.subscription)
		case o.plan != nil:
			c.AddPlan(o.plan)
		case o.installed != nil:
			c.AddCSV(o.namespace, *o.installed)
		}
	}
	return c.Namespaces()
}

func policyNotes(p *rules.Policy) []string {
	if p.Package == "" || p.TargetNamespace == "" {
		return nil // a warning says so
	}
	return []string{fmt.Sprintf("governs package %s in namespace %s%s", p.Package, p.TargetNamespace, onlyInforms(p))}
}

func onlyInforms(p *rules.Policy) string {
	if p.Enforced {
		return ""
	}
	return ", only informs"
}

// subscriptionNotes names the policies that had a say.
func subscriptionNotes(m *manifests, o *object) (notes []string) {
	pkg := o.subscription.Spec.Package
	for _, other := range m.objects {
		if p := other.guard; p != nil && pkg != "" && p.Package == pkg && p.TargetNamespace == o.namespace {
			notes = append(notes, "governed by "+p.Source()+onlyInforms(p))
		}
	}
	if len(notes) == 0 {
		notes = append(notes, fmt.Sprintf("ungoverned: no OperatorPolicy names package %s in namespace %s", pkg, o.namespace))
	}
	return notes
}

// planNotes says where each ClusterServiceVersion of a plan stands.
func planNotes(o *object, v *rules.Verdict) (notes []string) {
	if v.CSVs == nil {
		return []string{"ungoverned: no OperatorPolicy governs namespace " + o.namespace}
	}
	for _, c := range v.CSVs {
		note := c.CSV
		if c.Package != "" {
			note += " (" + strings.TrimSpace("package "+c.Package+" "+c.Version) + ")"
		}
		note += ": " + c.Standing.String()
		switch {
		case len(c.By) > 0:
			note += " by " + strings.Join(c.By, ", ")
		case c.Standing == rules.Ungoverned:
			note += ", no enforcing OperatorPolicy restricts it"
		}
		notes = append(notes, note)
	}
	return notes
}
