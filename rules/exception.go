package rules

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleException is on refusals that spec.exceptions of a policy or a Constraint sets aside.
const RuleBundleException verdict.RuleID = "bundle/exception"

var bundleException = verdict.Rule{ID: RuleBundleException, Outcomes: verdict.Warns,
	Summary: "what a rule refuses is set aside by an exception of the policy or the Constraint, until that ends"}

var exceptionsPath = field.NewPath("spec", "exceptions")

// newExceptions returns the exceptions of a policy, and what is not valid about them.
func newExceptions(op *policyv1beta2.OperatorPolicy) (exception.List, field.ErrorList) {
	specs := make([]exception.Spec, len(op.Spec.Exceptions))
	for i, e := range op.Spec.Exceptions {
		specs[i] = exception.Spec{Versions: e.Versions, Rules: e.Rules, Reason: e.Reason, Expires: e.Expires}
	}
	return exception.Read(exceptionsPath, specs, exceptable(), op.Status.EndedExceptions)
}

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

// Exceptions returns the exceptions of the policy that can be read.
func (p *OperatorPolicy) Exceptions() exception.List { return p.exceptions }

// exceptedName reports whether an exception sets a rule aside for a ClusterServiceVersion at a time, of which the
// contents are not known: there the name counts.
func (p *OperatorPolicy) exceptedName(csv string, id verdict.RuleID, now time.Time) bool {
	return p.exceptions.ForName(id, csv, p.TargetNamespace, now)
}

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func (p *OperatorPolicy) recordOn(c *Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding) {
	if f.Silent() {
		return
	}
	digest, _ := c.digest() // where it is not known, names with a digest do not count
	if e := p.exceptions.For(id, c.name, digest, p.TargetNamespace, now); e != nil {
		setAside(v, e, id, p.ref(), f)
		return
	}
	p.record(v, id, f)
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
func (n *Namespace) wasExcepted(from verdict.PolicyRef, id verdict.RuleID, csv string, then time.Time) bool {
	for _, p := range n.Policies() {
		if p.ref() == from {
			return p.exceptions.Was(id, csv, n.Name(), then)
		}
	}
	for _, d := range n.Constraints().Definitions() {
		if constraintRef(d) == from {
			return d.Exceptions.Was(id, csv, n.Name(), then)
		}
	}
	return false
}
