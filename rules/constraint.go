package rules

import (
	"iter"
	"reflect"
	"slices"
	"time"

	labelselector "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on Constraints.
const (
	RuleConstraintField       verdict.RuleID = "constraint/field"
	RuleConstraintSyntax      verdict.RuleID = "constraint/syntax"
	RuleConstraintSize        verdict.RuleID = "constraint/size"
	RuleConstraintRule        verdict.RuleID = "constraint/rule"
	RuleConstraintProperty    verdict.RuleID = "constraint/property"
	RuleConstraintIneffective verdict.RuleID = "constraint/ineffective"
	RuleConstraintViolated    verdict.RuleID = "constraint/violated"
)

var (
	constraintField = verdict.Rule{ID: RuleConstraintField, Outcomes: verdict.Denies,
		Summary: "a field of a Constraint is unknown, is set twice, or has a value that is not valid"}
	constraintSyntax = verdict.Rule{ID: RuleConstraintSyntax, Outcomes: verdict.Denies,
		Summary: "spec.constraints or spec.properties of a Constraint is not the JSON that it should be, or a value in " +
			"spec.rules or spec.offers is not one of those accepted"}
	constraintSize = verdict.Rule{ID: RuleConstraintSize, Outcomes: verdict.Denies,
		Summary: "a Constraint is too large, too deep or too long"}
	constraintRule = verdict.Rule{ID: RuleConstraintRule, Outcomes: verdict.Denies,
		Summary: "a rule of a Constraint is not a CEL expression of type bool, may cost too much, or names an invalid version range"}
	constraintProperty = verdict.Rule{ID: RuleConstraintProperty, Outcomes: verdict.Denies,
		Summary: "a property of a Constraint, of a type that OLM knows, has a value of another shape"}
	constraintIneffective = verdict.Rule{ID: RuleConstraintIneffective, Outcomes: verdict.Warns,
		Summary: "something in a Constraint cannot have the effect that its author will expect"}
	constraintViolated = verdict.Rule{ID: RuleConstraintViolated, Outcomes: verdict.Warns,
		Summary: "an installed operator does not satisfy the Constraint"}
)

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
		Pending: c.Annotations[dependency.AnnotationPending]}
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
// denied, and warnings preview the installed operators that do not satisfy it. An update that changes neither spec nor
// annotations passes.
func JudgeConstraint(in ConstraintInput) verdict.Verdict {
	c := in.Constraint
	v := verdict.Verdict{Object: "constraint " + (&olm.ObjectMeta{Name: c.Name, GenerateName: c.GenerateName}).Key()}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, c.Spec) &&
		reflect.DeepEqual(in.Old.Annotations, c.Annotations) {
		return v
	}
	for _, problem := range in.Strict {
		v.Refuse(verdict.Reason{Rule: RuleConstraintField, Decision: verdict.Deny,
			Message: verdict.Sentence(problem.Error(), RuleConstraintField, fixOf(problem))})
	}
	if selector, ok := c.Annotations[VirtualOperatorNamespacesAnnotation]; ok {
		path := field.NewPath("metadata", "annotations").Key(VirtualOperatorNamespacesAnnotation)
		if _, err := labelselector.Parse(selector); err != nil {
			v.Refuse(verdict.Reason{Rule: RuleConstraintField, Decision: verdict.Deny, Field: path.String(),
				Message: verdict.Sentence(
					field.Invalid(path, selector, err.Error()).Error(), RuleConstraintField,
					`write a label selector, for example "team in (a, b)"`)})
		}
	}
	d := constraint.Define(metaOf(c), &c.Spec)
	d.Exceptions = in.judgeExceptions(&v)
	in.judgeDeletion(&v)
	for _, f := range d.Faults {
		r := verdict.Reason{Rule: faultRules[f.Kind], Decision: verdict.Deny, Field: f.Path,
			Message: verdict.Sentence(FaultText(f), faultRules[f.Kind], "")}
		if f.Warning() {
			v.Warn(r)
		} else {
			v.Refuse(r)
		}
	}
	in.warnIneffective(d, &v)
	if len(d.Constraints)+len(d.OnWrites)+len(d.Properties)+len(d.Faults)+len(in.Strict) == 0 && d.Deletion == nil {
		v.Warn(verdict.Reason{Rule: RuleConstraintIneffective, Field: "spec",
			Message: verdict.Sentence("the Constraint asks for nothing and offers nothing",
				RuleConstraintIneffective, "write spec.rules, spec.offers or spec.deletion")})
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
	switch _, asked := c.Annotations[VirtualOperatorNamespacesAnnotation]; {
	case !asked && len(d.Properties) > 0 && !readByRules(d, in.Constraints):
		v.Warn(verdict.Reason{Rule: RuleConstraintIneffective, Field: properties, Message: verdict.Sentence(
			properties+" is read by no rule, and OLM's resolver does not see it", RuleConstraintIneffective,
			ShowsProperties)})
	case asked && len(d.Properties) > 0 && in.Grants.Missing(grant.VirtualOperators) != "":
		v.Warn(verdict.Reason{Rule: RuleConstraintIneffective, Field: "metadata.annotations", Message: verdict.Sentence(
			"annotation "+VirtualOperatorNamespacesAnnotation+" makes no virtual operator", RuleConstraintIneffective,
			in.Grants.Missing(grant.VirtualOperators))})
	case asked && len(d.Properties)+len(d.Faults) == 0:
		v.Warn(verdict.Reason{Rule: RuleConstraintIneffective, Field: "metadata.annotations", Message: verdict.Sentence(
			"annotation "+VirtualOperatorNamespacesAnnotation+" makes no virtual operator", RuleConstraintIneffective,
			"write spec.offers for it to show")})
	}
	if path := readsContents(d); path != "" && in.Grants.Missing(grant.Contents) != "" {
		v.Warn(verdict.Reason{Rule: RuleConstraintIneffective, Field: path, Message: verdict.Sentence(
			"every InstallPlan that is judged by the contents of a bundle image is held", RuleConstraintIneffective,
			in.Grants.Missing(grant.Contents))})
	}
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
const ShowsProperties = "annotation " + VirtualOperatorNamespacesAnnotation +
	" selects the namespaces in which it does, by labels, or all of them if it is empty"

// readByRules reports whether a Constraint reads facts about the cluster, of which its properties are a part.
func readByRules(d *constraint.Definition, all *constraint.Set) bool {
	for _, other := range append([]*constraint.Definition{d}, all.Definitions()...) {
		for _, c := range slices.Concat(other.Constraints, other.OnWrites) {
			if c.Uses()&constraint.ClusterVersion != 0 {
				return true
			}
		}
	}
	return false
}

// preview warns of installed operators that do not satisfy the Constraint. They are not changed.
func (in *ConstraintInput) preview(d *constraint.Definition, v *verdict.Verdict) {
	const most = 100 // the number of warnings is bounded to 20; the rest is only counted
	set, budget := in.Constraints.With(d), constraint.NewBudget(in.Interrupt)
	for ns := range in.Namespaces {
		for i := range ns.Installed() {
			installed := &ns.Installed()[i]
			for _, f := range set.Judge(installed.ForConstraints(ns), ns.ForConstraints(), budget) {
				if f.Outcome == constraint.Undecided ||
					d.Exceptions.ForName(bundle.RuleConstraint, installed.CSV, ns.Name(), in.Now) {
					continue
				}
				more := state.MustSatisfy(&f)
				if f.Outcome == constraint.Failed {
					more = state.CannotJudge("it", &f)
				}
				v.Warn(verdict.Reason{Rule: RuleConstraintViolated,
					Message: verdict.Sentence(text.Name(installed.CSV)+" is installed in namespace "+ns.Name()+
						" and does not satisfy "+state.ConstraintPath(&f), RuleConstraintViolated, more)})
			}
			if len(v.Warnings) > most {
				return
			}
		}
	}
}
