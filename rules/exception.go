package rules

import (
	"time"

	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleException is on refusals that spec.exceptions of a policy or a Constraint sets aside.
const RuleBundleException verdict.RuleID = "bundle/exception"

var bundleException = verdict.Rule{ID: RuleBundleException, Outcomes: verdict.Warns,
	Summary: "what a rule refuses is set aside by an exception of the policy or the Constraint, until that ends"}

// exceptable returns the IDs of the rules that an exception of a policy may name, in reading order: those by which one
// policy judges what is installed and that override sets aside. A policy that cannot be read has no exceptions that
// could be read.
func exceptable() []string {
	var ids []string
	add := func(r verdict.Rule) {
		if r.Override && r.ID != RulePolicyUnreadable {
			ids = append(ids, string(r.ID))
		}
	}
	for _, check := range contentChecks {
		add(check.Rule)
	}
	for _, check := range progressChecks {
		add(check.Rule)
	}
	add(bundleConsent)
	add(bundleContents)
	return ids
}

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func recordOn(
	p *state.OperatorPolicy, c *Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding,
) {
	if f.Silent() {
		return
	}
	digest, _ := c.digest() // where it is not known, names with a digest do not count
	if e := p.Exceptions().For(id, c.name, digest, p.TargetNamespace, now); e != nil {
		setAside(v, e, id, p.Ref(), f)
		return
	}
	p.Record(v, id, f)
}

// setAside records a finding that an exception of its source sets aside.
func setAside(
	v *verdict.Verdict, e *exception.Exception, id verdict.RuleID, from verdict.PolicyRef, f verdict.Finding,
) {
	v.WarnExcepted(verdict.Reason{Rule: RuleBundleException, Source: from.String(), From: from, Field: f.Field,
		Message: verdict.Sentence("set aside by "+e.Text(from.String()), RuleBundleException,
			verdict.Sentence(f.What+" by "+from.String(), id, f.Accepted))})
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
