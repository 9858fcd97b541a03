package backstop_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/opgate/opgate/rules/backstop"
)

// TestStaticCompiles: the API servers that load policies from files compile what is in them, and none asks for
// request.name, which the deletion of a collection does not have.
func TestStaticCompiles(t *testing.T) {
	t.Parallel()
	loaded, mutating := backstop.CompileStatic(backstop.StaticInput{Namespace: "opgate-system",
		Opgate:      "system:serviceaccount:opgate-system:opgate",
		Maintainers: []string{"o'brien", "Ω\n"}, CertificateWriters: []string{"cainjector"}, KeepPolicies: true,
		Set: "1"})
	if len(mutating) > 0 {
		t.Errorf("%d mutating objects without policies", len(mutating))
	}
	names := map[string]bool{}
	for _, release := range []string{"1.36", "1.37"} {
		env := environment.MustBaseEnvSet(version.MustParseGeneric(release))
		for _, object := range loaded {
			p, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
			if !ok {
				b := object.(*admissionv1.ValidatingAdmissionPolicyBinding)
				if !names[b.Spec.PolicyName] || b.Name != b.Spec.PolicyName {
					t.Errorf("binding %s is of policy %s, which is not before it", b.Name, b.Spec.PolicyName)
				}
				continue
			}
			names[p.Name] = strings.HasSuffix(p.Name, ".static.k8s.io") && p.Spec.ParamKind == nil &&
				*p.Spec.FailurePolicy == admissionv1.Fail
			compiler := newCompiler(t, env, p.Spec.Variables, cel.OptionalVariableDeclarations{})
			var expressions []cel.ExpressionAccessor
			for i := range p.Spec.MatchConditions {
				expressions = append(expressions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
			}
			for _, v := range p.Spec.Validations {
				expressions = append(expressions, &validating.ValidationCondition{Expression: v.Expression})
				if v.MessageExpression != "" {
					expressions = append(expressions,
						&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
				}
			}
			for _, expression := range expressions {
				if result := compiler.CompileCELExpression(expression, cel.OptionalVariableDeclarations{},
					environment.NewExpressions); result.Error != nil {
					t.Errorf("Kubernetes %s refuses %s of %s: %s", release, expression.GetExpression(), p.Name,
						result.Error)
				}
				if strings.Contains(expression.GetExpression(), "request.name ") {
					t.Errorf("%s reads request.name: %s", p.Name, expression.GetExpression())
				}
			}
		}
	}
}
