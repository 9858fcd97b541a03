package rules

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// The rules on an OperatorPolicy as it is written.
const (
	RuleOperatorPolicyField         RuleID = "operatorpolicy/field"
	RuleOperatorPolicyUnknownField  RuleID = "operatorpolicy/unknown-field"
	RuleOperatorPolicyContradiction RuleID = "operatorpolicy/contradiction"
)

var (
	operatorPolicyField = Rule{RuleOperatorPolicyField, OutcomeDeny,
		"a field of an OperatorPolicy has a value that cannot work"}
	operatorPolicyUnknownField = Rule{RuleOperatorPolicyUnknownField, OutcomeDeny,
		"an OperatorPolicy has a field that does not exist, or one twice"}
	operatorPolicyContradiction = Rule{RuleOperatorPolicyContradiction, OutcomeDeny,
		"two fields of an OperatorPolicy contradict each other"}
)

// OperatorPolicyInput is all that judging an OperatorPolicy needs.
type OperatorPolicyInput struct {
	Policy *policyv1beta2.OperatorPolicy
	// Strict are what DecodeOperatorPolicy found: unknown and repeated fields.
	Strict []error
	// Old is the stored policy on update, nil on create.
	Old *policyv1beta2.OperatorPolicy
	// Namespace returns what is known of a namespace, for the preview; it may give nil.
	Namespace func(name string) *Namespace
}

// OperatorPolicyObject names an OperatorPolicy as verdicts do.
func OperatorPolicyObject(op *policyv1beta2.OperatorPolicy) string {
	meta := olm.ObjectMeta{Namespace: op.Namespace, Name: op.Name, GenerateName: op.GenerateName}
	return "operatorpolicy " + meta.Key()
}

// DecodeOperatorPolicy reads an OperatorPolicy as the API server does, and lists the fields that do not exist or
// stand there twice, with their paths. Metadata and status are the API server's to check: a newer one may
// write fields there that this program does not know.
func DecodeOperatorPolicy(raw []byte) (op *policyv1beta2.OperatorPolicy, strict []error, err error) {
	op = &policyv1beta2.OperatorPolicy{}
	strict, err = kjson.UnmarshalStrict(raw, op)
	return op, SpecFaults(strict), err
}

// SpecFaults leaves out, of what a strict decode has found, what is in metadata and status.
func SpecFaults(strict []error) []error {
	return slices.DeleteFunc(strict, func(problem error) bool {
		return strings.Contains(problem.Error(), ` "metadata.`) || strings.Contains(problem.Error(), ` "status.`)
	})
}

// JudgeOperatorPolicy decides on creating or updating an OperatorPolicy. What the designs rule out is denied, with
// the path of the field; what the policy will do to what is installed and pending is previewed in warnings.
// A stored policy whose spec does not change passes, so that its labels and finalizers can be edited
// whatever the rules of its day were.
func JudgeOperatorPolicy(in OperatorPolicyInput) Verdict {
	op := in.Policy
	v := Verdict{Object: OperatorPolicyObject(op)}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, op.Spec) && reflect.DeepEqual(in.Old.Annotations, op.Annotations) {
		return v
	}
	for _, problem := range in.Strict {
		v.refuse(Reason{Rule: RuleOperatorPolicyUnknownField, Decision: Deny, Message: sentence(problem.Error(), RuleOperatorPolicyUnknownField, fixOf(problem))})
	}
	for _, err := range ValidateOperatorPolicy(op) {
		id := RuleOperatorPolicyField
		if err.Type == field.ErrorTypeForbidden {
			id = RuleOperatorPolicyContradiction
		}
		v.refuse(Reason{Rule: id, Decision: Deny, Field: err.Field, Message: sentence(err.Error(), id, "")})
	}
	if v.Decision == Allow {
		previewPolicy(&in, NewPolicy(op), &v)
	}
	return v.sorted()
}

// fixOf says what to do about what a strict decode has found.
func fixOf(problem error) string {
	if strings.HasPrefix(problem.Error(), "duplicate field") {
		return "keep one of the two"
	}
	return "correct its name or remove it"
}
