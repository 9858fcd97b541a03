package rules

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on writes of an OperatorPolicy.
const (
	RuleOperatorPolicyField         verdict.RuleID = "operatorpolicy/field"
	RuleOperatorPolicyUnknownField  verdict.RuleID = "operatorpolicy/unknown-field"
	RuleOperatorPolicyContradiction verdict.RuleID = "operatorpolicy/contradiction"
)

var (
	operatorPolicyField = verdict.Rule{ID: RuleOperatorPolicyField, Outcomes: verdict.Denies,
		Summary: "a field of an OperatorPolicy has a value that is not valid"}
	operatorPolicyUnknownField = verdict.Rule{ID: RuleOperatorPolicyUnknownField, Outcomes: verdict.Denies,
		Summary: "a field of an OperatorPolicy is unknown, or is set twice"}
	operatorPolicyContradiction = verdict.Rule{ID: RuleOperatorPolicyContradiction, Outcomes: verdict.Denies,
		Summary: "two fields of an OperatorPolicy contradict each other"}
)

// OperatorPolicyInput is the input of JudgeOperatorPolicy.
type OperatorPolicyInput struct {
	Policy *policyv1beta2.OperatorPolicy
	// Strict are the errors of DecodeOperatorPolicy: unknown and duplicate fields.
	Strict []error
	// Refused is what the schema of the kind does not admit. The API server refuses that itself where it has the
	// schema; it has another one where another program owns the definition, and does not apply it to what conversion
	// adds.
	Refused field.ErrorList
	// Old is the stored policy on update, nil on create.
	Old *policyv1beta2.OperatorPolicy
	// Namespace returns what is known of a namespace, for the preview; it may return nil.
	Namespace func(name string) *state.Namespace
	// Package returns a package of a catalog, for the preview; nil if it is not known. Default: none is.
	Package func(pkg string, source olm.Catalog) *catalog.Package
	// Copied reports whether a package is installed for all namespaces from another one, for the preview. Default: none
	// is.
	Copied func(pkg, namespace string) bool
	// Grants are the rights that the installation withholds, for the preview.
	Grants grant.Set
	// Unbacked is why the API server refuses nothing by itself, and what would change that, for the preview. Default:
	// it does refuse.
	Unbacked string
	// Now is that of PlanInput, for the preview.
	Now time.Time
	// ReviewPlan is set for files that are not sent to a cluster now: exceptions that have ended are refused.
	Review bool
}

// OperatorPolicyObject returns the name of an OperatorPolicy as used in verdicts.
func OperatorPolicyObject(op *policyv1beta2.OperatorPolicy) string {
	meta := olm.ObjectMeta{Namespace: op.Namespace, Name: op.Name, GenerateName: op.GenerateName}
	return "operatorpolicy " + meta.Key()
}

// DecodeOperatorPolicy decodes an OperatorPolicy as the API server does, and returns unknown and duplicate fields with
// their paths. It ignores those in metadata and status, which the API server checks: a newer version may have fields
// there that this one does not know.
func DecodeOperatorPolicy(raw []byte) (op *policyv1beta2.OperatorPolicy, strict []error, err error) {
	op = &policyv1beta2.OperatorPolicy{}
	strict, err = kjson.UnmarshalStrict(raw, op)
	return op, SpecFaults(strict), err
}

// SpecFaults returns the strict decoding errors that are not about metadata and status.
func SpecFaults(strict []error) []error {
	return slices.DeleteFunc(strict, func(problem error) bool {
		return strings.Contains(problem.Error(), ` "metadata.`) || strings.Contains(problem.Error(), ` "status.`)
	})
}

// JudgeOperatorPolicy decides on creating or updating an OperatorPolicy. An invalid spec is denied with the path of the
// field; warnings preview the effect of the policy on installed operators and pending plans. An update that does not
// change the spec passes, so that labels and finalizers can be edited even if the spec is invalid by present rules.
func JudgeOperatorPolicy(in OperatorPolicyInput) verdict.Verdict {
	op := in.Policy
	v := verdict.Verdict{Object: OperatorPolicyObject(op)}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, op.Spec) &&
		reflect.DeepEqual(in.Old.Annotations, op.Annotations) {
		return v
	}
	for _, problem := range in.Strict {
		v.Refuse(verdict.Reason{Rule: RuleOperatorPolicyUnknownField, Decision: verdict.Deny,
			Message: verdict.Sentence(problem.Error(), RuleOperatorPolicyUnknownField, fixOf(problem))})
	}
	policy := NewOperatorPolicy(op)
	for _, err := range policy.Invalid {
		id := RuleOperatorPolicyField
		if err.Type == field.ErrorTypeForbidden {
			id = RuleOperatorPolicyContradiction
		}
		v.Refuse(verdict.Reason{Rule: id, Decision: verdict.Deny, Field: err.Field,
			Message: verdict.Sentence(err.Error(),
				id, "")})
	}
	v = v.Refused(RuleOperatorPolicyField, in.Refused)
	policy.Exceptions().Judge(&v, RuleOperatorPolicyExceptionEnded, in.Now, in.Review)
	if v.Decision == verdict.Allow {
		previewPolicy(&in, policy, &v)
	}
	return v.Sorted()
}

// fixOf returns how to fix a strict decoding error.
func fixOf(problem error) string {
	if strings.HasPrefix(problem.Error(), "duplicate field") {
		return "keep one of the two"
	}
	return "correct its name or remove it"
}
