package state

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/verdict"
)

var exceptionsPath = field.NewPath("spec", "exceptions")

// ReadExceptions returns the exceptions of a policy, and what is not valid about them; exceptable are the IDs of the
// rules that they may name.
func ReadExceptions(op *policyv1beta2.OperatorPolicy, exceptable []string) (exception.List, field.ErrorList) {
	specs := make([]exception.Spec, len(op.Spec.Exceptions))
	for i, e := range op.Spec.Exceptions {
		specs[i] = exception.Spec{Versions: e.Versions, Rules: e.Rules, Reason: e.Reason, Expires: e.Expires}
	}
	return exception.Read(exceptionsPath, specs, exceptable, op.Status.EndedExceptions)
}

// Exceptions returns the exceptions of the policy that can be read.
func (p *OperatorPolicy) Exceptions() exception.List { return p.exceptions }

// ExceptedName reports whether an exception sets a rule aside for a ClusterServiceVersion at a time, of which the
// contents are not known: there the name counts.
func (p *OperatorPolicy) ExceptedName(csv string, id verdict.RuleID, now time.Time) bool {
	return p.Exceptions().ForName(id, csv, p.TargetNamespace, now)
}

// NeedsDigest reports whether a policy of a package lists a name with a digest, or an exception does.
func (n *Namespace) NeedsDigest(pkg, name string) bool {
	return slices.ContainsFunc(n.Governing(pkg), func(p *OperatorPolicy) bool {
		return p.Versions.digested(name) || p.Exceptions().NeedsDigest(name)
	}) || slices.ContainsFunc(n.Constraints().Definitions(), func(d *constraint.Definition) bool {
		return d.Exceptions.NeedsDigest(name)
	})
}
