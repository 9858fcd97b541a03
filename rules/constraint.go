package rules

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"time"

	labelselector "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleConstraintField          verdict.RuleID = "constraint/field"
	RuleConstraintSyntax         verdict.RuleID = "constraint/syntax"
	RuleConstraintSize           verdict.RuleID = "constraint/size"
	RuleConstraintRule           verdict.RuleID = "constraint/rule"
	RuleConstraintProperty       verdict.RuleID = "constraint/property"
	RuleConstraintIneffective    verdict.RuleID = "constraint/ineffective"
	RuleConstraintViolated       verdict.RuleID = "constraint/violated"
	RuleConstraintExceptionRight verdict.RuleID = "constraint/exception-right"
	RuleConstraintExceptionEnded verdict.RuleID = "constraint/exception-ended"
)

// constraintRules are the rules on Constraints.
var constraintRules = []verdict.Rule{
	{ID: RuleConstraintField, Outcomes: verdict.Denies,
		Summary: "a field of a Constraint is unknown, is set twice, or has a value that is not valid"},
	{ID: RuleConstraintSyntax, Outcomes: verdict.Denies,
		Summary: "spec.constraints or spec.properties of a Constraint is not the JSON that it should be, or a value in " +
			"spec.rules or spec.offers is not one of those accepted"},
	{ID: RuleConstraintSize, Outcomes: verdict.Denies,
		Summary: "a Constraint is too large, too deep or too long"},
	{ID: RuleConstraintRule, Outcomes: verdict.Denies,
		Summary: "a rule of a Constraint is not a CEL expression of type bool, may cost too much, or names an invalid version range"},
	{ID: RuleConstraintProperty, Outcomes: verdict.Denies,
		Summary: "a property of a Constraint, of a type that OLM knows, has a value of another shape"},
	{ID: RuleConstraintIneffective, Outcomes: verdict.Warns,
		Summary: "something in a Constraint cannot have the effect that its author will expect"},
	{ID: RuleConstraintViolated, Outcomes: verdict.Warns,
		Summary: "an installed operator does not satisfy the Constraint"},
	{ID: RuleConstraintExceptionRight, Outcomes: verdict.Denies,
		Summary: "an exception is added, prolonged or widened by a user without the RBAC verb override on the Constraint"},
	{ID: RuleConstraintExceptionEnded, Outcomes: verdict.DeniesOrWarns,
		Summary: "an exception of a Constraint has ended, which a review of files refuses, or ends within 14 days"},
}

// ConstraintInput is the input of JudgeConstraint.
type ConstraintInput struct {
	Constraint *constraintv1.Constraint
	// Strict are the errors of DecodeConstraint: unknown and duplicate fields.
	Strict []error
	// Old is the stored Constraint on update, nil on create.
	Old *constraintv1.Constraint
	// Namespaces are all known namespaces, for the preview; nil for none.
	Namespaces iter.Seq[*state.Namespace]
	// Constraints are those of the cluster.
	Constraints *constraint.Set
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
	// Grants are the rights that the installation withholds.
	Grants grant.Set
	// Unbacked is that of OperatorPolicyInput.
	Unbacked string
	// Now is that of PlanInput, and ReviewPlan that of OperatorPolicyInput.
	Now    time.Time
	Review bool
}

// DecodeConstraint decodes a Constraint as the API server does, and returns unknown and duplicate fields with their
// paths.
func DecodeConstraint(raw []byte) (c *constraintv1.Constraint, strict []error, err error) {
	c = &constraintv1.Constraint{}
	strict, err = kjson.UnmarshalStrict(raw, c)
	return c, SpecFaults(strict), err
}

// NewDefinition compiles a Constraint. Strict are the errors of DecodeConstraint: a misspelled field would be a rule
// that silently does not exist.
func NewDefinition(c *constraintv1.Constraint, strict []error) *constraint.Definition {
	d := constraint.Define(metaOf(c), &c.Spec)
	if len(strict) > 0 {
		d = d.WithFault(constraint.Fault{Kind: constraint.Syntax, Path: "spec", Message: strict[0].Error()})
	}
	d.Exceptions, _ = constraintExceptions(c) // JudgeConstraint refuses what is not valid, which sets nothing aside
	return d
}

func metaOf(c *constraintv1.Constraint) constraint.Meta {
	return constraint.Meta{Name: c.Name, UID: string(c.UID), Generation: c.Generation,
		Pending: c.Annotations[metakey.Pending]}
}

// faultRules maps each kind of fault to its rule.
var faultRules = map[constraint.FaultKind]verdict.RuleID{
	constraint.Syntax: RuleConstraintSyntax, constraint.Size: RuleConstraintSize, constraint.Rule: RuleConstraintRule,
	constraint.PropertyShape: RuleConstraintProperty, constraint.Ineffective: RuleConstraintIneffective,
}

// FaultText returns the path of the fault, the offending value, and what would be accepted.
func FaultText(f constraint.Fault) string {
	where := f.Path
	if f.Value != "" {
		where += " (" + text.Escape(f.Value) + ")"
	}
	return where + " " + text.Escape(f.Message)
}

// JudgeConstraint decides on creating or updating a Constraint: one that cannot be parsed or may cost too much is
// denied, and warnings preview the installed operators that do not satisfy it. An update that changes neither the spec
// nor an annotation that is read passes.
func JudgeConstraint(in ConstraintInput) verdict.Verdict {
	c := in.Constraint
	v := verdict.Verdict{Object: dependency.ObjectName("constraint", &c.ObjectMeta)}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, c.Spec) &&
		sameRead(in.Old.Annotations, c.Annotations) {
		return v
	}
	addStrict(&v, RuleConstraintField, in.Strict)
	if selector, ok := c.Annotations[metakey.VirtualOperatorNamespaces]; ok {
		path := field.NewPath("metadata", "annotations").Key(metakey.VirtualOperatorNamespaces)
		if _, err := labelselector.Parse(selector); err != nil {
			v.Add(RuleConstraintField, verdict.Finding{Decision: verdict.Deny, Field: path.String(),
				What:     field.Invalid(path, selector, err.Error()).Error(),
				Accepted: `write a label selector, for example "team in (a, b)"`})
		}
	}
	d := constraint.Define(metaOf(c), &c.Spec)
	d.Exceptions = in.judgeExceptions(&v)
	if in.Unbacked != "" && c.Spec.EffectiveDeletion() != policyv1beta2.DeletionAllow {
		ineffective(&v, "spec.deletion.action",
			"spec.deletion.action "+string(c.Spec.Deletion.Action)+" refuses no deletion", in.Unbacked)
	}
	for _, f := range d.Faults {
		found := verdict.Finding{Decision: verdict.Deny, Field: f.Path, What: FaultText(f)}
		if f.Warning() {
			found.Decision = verdict.Allow
		}
		v.Add(faultRules[f.Kind], found)
	}
	in.warnIneffective(d, &v)
	if len(d.Constraints)+len(d.OnWrites)+len(d.Properties)+len(d.Faults)+len(in.Strict) == 0 && d.Deletion == nil {
		ineffective(&v, "spec", "the Constraint requires nothing and offers nothing",
			"write spec.rules, spec.offers or spec.deletion")
	}
	if v.Decision == verdict.Allow && in.Namespaces != nil {
		in.preview(d, &v)
	}
	return v.Sorted()
}

// warnIneffective warns of properties that are not read, and of rules on contents that are not read.
func (in *ConstraintInput) warnIneffective(d *constraint.Definition, v *verdict.Verdict) {
	c, properties := in.Constraint, "spec.properties"
	if len(c.Spec.Offers) > 0 {
		properties = "spec.offers"
	}
	const unmade = "annotation " + metakey.VirtualOperatorNamespaces + " creates no virtual operator"
	switch _, asked := c.Annotations[metakey.VirtualOperatorNamespaces]; {
	case !asked && len(d.Properties) > 0 && !readByRules(d, in.Constraints):
		ineffective(v, properties, properties+" is read by no rule, and OLM's resolver does not see it", ShowsProperties)
	case asked && len(d.Properties) > 0 && in.Grants.Missing(grant.VirtualOperators) != "":
		ineffective(v, "metadata.annotations", unmade, in.Grants.Missing(grant.VirtualOperators))
	case asked && len(d.Properties)+len(d.Faults) == 0:
		ineffective(v, "metadata.annotations", unmade, "write spec.offers for it to show")
	}
	if path := readsContents(d); path != "" && in.Grants.Missing(grant.Contents) != "" {
		ineffective(v, path, "every InstallPlan that is judged by the contents of a bundle image is held",
			in.Grants.Missing(grant.Contents))
	}
}

func ineffective(v *verdict.Verdict, field, what, instead string) {
	v.Add(RuleConstraintIneffective, verdict.Finding{Field: field, What: what, Accepted: instead})
}

// readsContents returns the path of the first rule that reads the contents of bundles, "" for none.
func readsContents(d *constraint.Definition) string {
	for _, c := range d.Constraints {
		if c.Uses()&(constraint.InCSV|constraint.ChangeSet) != 0 {
			return c.Path
		}
	}
	return ""
}

// ShowsProperties is what makes OLM's resolver see the properties of a Constraint.
const ShowsProperties = "annotation " + metakey.VirtualOperatorNamespaces +
	" selects the namespaces in which it does, by labels, or all of them if it is empty"

// readByRules reports whether a Constraint, as it is written, or another one reads facts about the cluster, of which its
// properties are a part.
func readByRules(d *constraint.Definition, all *constraint.Set) bool {
	reads := func(c *constraint.Constraint) bool { return c.Uses()&constraint.ClusterVersion != 0 }
	return slices.ContainsFunc(append([]*constraint.Definition{d}, all.Definitions()...), func(other *constraint.Definition) bool {
		return (other == d || other.Name != d.Name) && slices.ContainsFunc(slices.Concat(other.Constraints, other.OnWrites), reads)
	})
}

// tried is an installed operator that a Constraint is tried on.
type tried struct {
	installed *state.Installed
	ns        *state.Namespace
	bundle    *constraint.Bundle
}

// mostTried is the number of operators, those with the largest properties, on which a Constraint may not cost too much.
const mostTried = 50

// preview tries the Constraint on the installed operators, the largest first, for about a second. It warns of those that
// do not satisfy it, which are not changed, and refuses a rule that costs too much for most of the largest.
func (in *ConstraintInput) preview(d *constraint.Definition, v *verdict.Verdict) {
	const most = 100 // the number of warnings is bounded to 20; the rest is only counted
	var all []tried
	for ns := range in.Namespaces {
		for i := range ns.Installed() {
			all = append(all, tried{&ns.Installed()[i], ns, ns.Installed()[i].ForConstraints(ns)})
		}
	}
	slices.SortStableFunc(all, func(a, b tried) int { return b.bundle.Size() - a.bundle.Size() })
	set, budget, costly := in.Constraints.With(d), constraint.NewBudget(in.Interrupt), map[*constraint.Constraint]int{}
	for i, one := range all {
		if len(v.Warnings) > most || budget.Spent() > constraint.BundleCostLimit {
			break
		}
		for _, f := range set.Judge(one.bundle, one.ns.ForConstraints(), budget) {
			if f.Outcome == constraint.Undecided ||
				one.ns.ExceptionsOf(d, one.installed.Package, one.installed.Catalog).
					ForName(bundle.RuleConstraint, one.installed.Name, one.ns.Name(), in.Now) {
				continue
			}
			more := state.MustSatisfy(&f)
			if f.Outcome == constraint.Failed {
				more = state.CannotJudge("it", &f)
			}
			if f.Costly && i < mostTried {
				costly[f.Constraint]++
			}
			v.Add(RuleConstraintViolated, verdict.Finding{Accepted: more, What: text.Name(one.installed.Name) +
				" is installed in namespace " + one.ns.Name() + " and does not satisfy " + state.ConstraintPath(&f)})
		}
	}
	if in.Old != nil && reflect.DeepEqual(in.Old.Spec, in.Constraint.Spec) {
		return
	}
	for c, n := range costly {
		if of := min(len(all), mostTried); 2*n > of {
			v.Add(RuleConstraintRule, verdict.Finding{Decision: verdict.Deny, Field: c.Path,
				What:     fmt.Sprintf("%s costs too much for %d of the %d largest operators that are installed", c.Path, n, of),
				Accepted: "nest fewer loops, compare single fields instead of whole values"})
		}
	}
}

// constraintSchema is that of Constraints, which stored Constraints may not satisfy.
var constraintSchema = sync.OnceValue(func() *crdschema.Schema {
	return crdschema.Own(constraintv1.GroupVersion.WithKind(constraintv1.Kind))
})

// constraintExceptions returns the exceptions of a Constraint, and what is not valid about them and spec.deletion. They
// are all about bundle/constraint, the rule by which a Constraint judges what is installed.
func constraintExceptions(c *constraintv1.Constraint) (operatorpolicy.Exceptions, field.ErrorList) {
	part := constraintv1.ConstraintSpec{Exceptions: c.Spec.Exceptions, Deletion: c.Spec.Deletion}
	if part.Exceptions == nil && part.Deletion == nil {
		return nil, nil
	}
	specs, rule := make([]operatorpolicy.ExceptionSpec, len(c.Spec.Exceptions)), []string{string(bundle.RuleConstraint)}
	for i, e := range c.Spec.Exceptions {
		specs[i] = operatorpolicy.ExceptionSpec{Exception: e, Rules: rule}
	}
	refused := constraintSchema().Check("spec", &part)
	all, errs := operatorpolicy.ReadExceptions(specs, rule, c.Status.EndedExceptions, refused)
	return all, append(refused, errs...)
}

// WidenedConstraintExceptions returns the paths of the exceptions by which a write of a Constraint sets more aside than
// the stored one does, or for longer: one that is added, prolonged or widened. Old is nil on create.
func WidenedConstraintExceptions(c, old *constraintv1.Constraint) []string {
	now, _ := constraintExceptions(c) // what is not valid is refused
	var before operatorpolicy.Exceptions
	if old != nil {
		before, _ = constraintExceptions(old)
	}
	return now.Widened(before)
}

// judgeExceptions judges the exceptions of a Constraint that is written, and refuses a spec.deletion that is not valid.
func (in *ConstraintInput) judgeExceptions(v *verdict.Verdict) operatorpolicy.Exceptions {
	all, errs := constraintExceptions(in.Constraint)
	v.AddFaults(RuleConstraintField, errs)
	all.Judge(v, RuleConstraintExceptionEnded, in.Now, in.Review)
	for i, e := range in.Constraint.Spec.Exceptions {
		if path := fmt.Sprintf("spec.exceptions[%d]", i); e.Package == "" && len(errs) == 0 {
			ineffective(v, path+".package",
				path+" names no package, so that it counts for a ClusterServiceVersion of this name in any package",
				"name the package that it is for")
		}
	}
	return all
}

// deletionRules are on deletions of objects of several kinds.
var deletionRules = []verdict.Rule{
	{ID: "deletion/denied", Outcomes: verdict.Denies, Backstop: true,
		Summary: "what belongs to an operator is deleted, and spec.deletion of its policy or of a Constraint is Deny"},
	{ID: "deletion/unconfirmed", Outcomes: verdict.Holds, Backstop: true,
		Summary: "what belongs to an operator is deleted without a confirmation, and spec.deletion of its policy or of a Constraint is Confirm"},
}

// KeptBy returns the field of the first enforced policy, or else of the first Constraint, that denies the deletion of
// what is installed of a package, as "spec.deletion of OperatorPolicy policies/etcd": because of it a mustnothave
// policy removes nothing. It returns "" if there is none; the policy itself counts.
func KeptBy(n *state.Namespace, pkg string) string {
	for _, p := range n.Governing(pkg) {
		if p.Deletion == policyv1beta2.DeletionDeny {
			return "spec.deletion of " + p.Source()
		}
	}
	for _, d := range n.Constraints().Definitions() {
		if d.Deletion.Of(pkg) && d.Deletion.Action == policyv1beta2.DeletionDeny {
			return "spec.deletion.action of " + state.ConstraintRef(d).String()
		}
	}
	return ""
}
