package rules

import (
	"iter"
	"reflect"
	"slices"

	labelselector "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
)

// The rules on Constraints.
const (
	RuleConstraintField       RuleID = "constraint/field"
	RuleConstraintSyntax      RuleID = "constraint/syntax"
	RuleConstraintSize        RuleID = "constraint/size"
	RuleConstraintRule        RuleID = "constraint/rule"
	RuleConstraintProperty    RuleID = "constraint/property"
	RuleConstraintIneffective RuleID = "constraint/ineffective"
	RuleConstraintViolated    RuleID = "constraint/violated"
)

var (
	constraintField = Rule{ID: RuleConstraintField, Outcomes: deny,
		Summary: "a field of a Constraint is unknown, is set twice, or has a value that is not valid"}
	constraintSyntax = Rule{ID: RuleConstraintSyntax, Outcomes: deny,
		Summary: "spec.constraints or spec.properties of a Constraint is not the JSON that it should be"}
	constraintSize = Rule{ID: RuleConstraintSize, Outcomes: deny,
		Summary: "a Constraint is too large, too deep or too long"}
	constraintRule = Rule{ID: RuleConstraintRule, Outcomes: deny,
		Summary: "a rule of a Constraint is not a CEL expression of type bool, may cost too much, or names an invalid version range"}
	constraintProperty = Rule{ID: RuleConstraintProperty, Outcomes: deny,
		Summary: "a property of a Constraint, of a type that OLM knows, has a value of another shape"}
	constraintIneffective = Rule{ID: RuleConstraintIneffective, Outcomes: warn,
		Summary: "something in a Constraint cannot have the effect that its author will expect"}
	constraintViolated = Rule{ID: RuleConstraintViolated, Outcomes: warn,
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
	Namespaces iter.Seq[*Namespace]
	// Constraints are those of the cluster.
	Constraints *constraint.Set
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
	// Grants are the rights that the installation withholds.
	Grants Grants
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
	d := constraint.Define(metaOf(c), c.Spec.Constraints, c.Spec.Properties)
	if len(strict) > 0 {
		d = d.WithFault(constraint.Fault{Kind: constraint.Syntax, Path: "spec", Message: strict[0].Error()})
	}
	return d
}

func metaOf(c *constraintv1.Constraint) constraint.Meta {
	return constraint.Meta{Name: c.Name, UID: string(c.UID), Generation: c.Generation, Pending: c.Annotations[dependency.AnnotationPending]}
}

// faultRules maps each kind of fault to its rule.
var faultRules = map[constraint.FaultKind]RuleID{
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
func JudgeConstraint(in ConstraintInput) Verdict {
	c := in.Constraint
	v := Verdict{Object: "constraint " + (&olm.ObjectMeta{Name: c.Name, GenerateName: c.GenerateName}).Key()}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, c.Spec) && reflect.DeepEqual(in.Old.Annotations, c.Annotations) {
		return v
	}
	for _, problem := range in.Strict {
		v.refuse(Reason{Rule: RuleConstraintField, Decision: Deny, Message: sentence(problem.Error(), RuleConstraintField, fixOf(problem))})
	}
	if selector, ok := c.Annotations[VirtualOperatorNamespacesAnnotation]; ok {
		path := field.NewPath("metadata", "annotations").Key(VirtualOperatorNamespacesAnnotation)
		if _, err := labelselector.Parse(selector); err != nil {
			v.refuse(Reason{Rule: RuleConstraintField, Decision: Deny, Field: path.String(), Message: sentence(
				field.Invalid(path, selector, err.Error()).Error(), RuleConstraintField, `write a label selector, for example "team in (a, b)"`)})
		}
	}
	d := constraint.Define(metaOf(c), c.Spec.Constraints, c.Spec.Properties)
	for _, f := range d.Faults {
		r := Reason{Rule: faultRules[f.Kind], Decision: Deny, Field: f.Path, Message: sentence(FaultText(f), faultRules[f.Kind], "")}
		if f.Warning() {
			v.warn(r)
		} else {
			v.refuse(r)
		}
	}
	switch _, asked := c.Annotations[VirtualOperatorNamespacesAnnotation]; {
	case !asked && len(d.Properties) > 0 && !readByRules(d, in.Constraints):
		v.warn(Reason{Rule: RuleConstraintIneffective, Field: "spec.properties", Message: sentence(
			"spec.properties is read by no rule, and OLM's resolver does not see it", RuleConstraintIneffective,
			ShowsProperties)})
	case asked && len(d.Properties) > 0 && in.Grants.Missing(GrantVirtualOperators) != "":
		v.warn(Reason{Rule: RuleConstraintIneffective, Field: "metadata.annotations", Message: sentence(
			"annotation "+VirtualOperatorNamespacesAnnotation+" makes no virtual operator", RuleConstraintIneffective, in.Grants.Missing(GrantVirtualOperators))})
	case asked && len(d.Properties)+len(d.Faults) == 0:
		v.warn(Reason{Rule: RuleConstraintIneffective, Field: "metadata.annotations", Message: sentence(
			"annotation "+VirtualOperatorNamespacesAnnotation+" makes no virtual operator", RuleConstraintIneffective, "write spec.properties for it to show")})
	}
	if uses := usedBy(d); uses&(constraint.InCSV|constraint.ChangeSet) != 0 && in.Grants.Missing(GrantContents) != "" {
		v.warn(Reason{Rule: RuleConstraintIneffective, Field: "spec.constraints", Message: sentence(
			"every InstallPlan that is judged by the contents of a bundle image is held", RuleConstraintIneffective, in.Grants.Missing(GrantContents))})
	}
	if len(d.Constraints)+len(d.OnWrites)+len(d.Properties)+len(d.Faults)+len(in.Strict) == 0 {
		v.warn(Reason{Rule: RuleConstraintIneffective, Field: "spec", Message: sentence("the Constraint asks for nothing and offers nothing",
			RuleConstraintIneffective, "write spec.constraints or spec.properties")})
	}
	if v.Decision == Allow && in.Namespaces != nil {
		in.preview(d, &v)
	}
	return v.sorted()
}

// usedBy returns the attributes that the constraints on bundles of a definition read.
func usedBy(d *constraint.Definition) (all constraint.Attributes) {
	for _, c := range d.Constraints {
		all |= c.Uses()
	}
	return all
}

// ShowsProperties is what makes OLM's resolver see spec.properties of a Constraint.
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
func (in *ConstraintInput) preview(d *constraint.Definition, v *Verdict) {
	const most = 100 // the number of warnings is bounded to 20; the rest is only counted
	set, budget := in.Constraints.With(d), constraint.NewBudget(in.Interrupt)
	for ns := range in.Namespaces {
		for i := range ns.Installed() {
			installed := &ns.installed[i]
			for _, f := range set.Judge(installed.forConstraints(ns), ns.ForConstraints(), budget) {
				if f.Outcome == constraint.Undecided {
					continue
				}
				more := mustSatisfy(&f)
				if f.Outcome == constraint.Failed {
					more = cannotJudge("it", &f)
				}
				v.warn(Reason{Rule: RuleConstraintViolated, Message: sentence(text.Name(installed.CSV)+" is installed in namespace "+ns.Name()+
					" and does not satisfy "+constraintPath(&f), RuleConstraintViolated, more)})
			}
			if len(v.Warnings) > most {
				return
			}
		}
	}
}
