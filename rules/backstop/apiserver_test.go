package backstop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// apiServer evaluates compiled objects with the API server's own code: its CEL environment, its limits of cost and its
// composition of messages. It selects no objects by rules and namespaces, which the test on a real API server covers.
type apiServer struct {
	validator validating.Validator
	matches   matchconditions.Matcher
	patcher   patch.Patcher
	compiler  *cel.CompositedCompiler
}

// newAPIServer compiles the objects as the API server does.
func newAPIServer(t testing.TB, o *parts) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.compile(t, o, environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	return s
}

// wantCompiles compiles all expressions as the API server of a release does when the objects are created.
func wantCompiles(t testing.TB, o *parts, release string) {
	t.Helper()
	env := environment.MustBaseEnvSet(version.MustParseGeneric(release))
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler := newCompiler(t, env, o.Validating.Spec.Variables, declared)
	check := func(expression cel.ExpressionAccessor, declared cel.OptionalVariableDeclarations) {
		t.Helper()
		if result := compiler.CompileCELExpression(expression, declared,
			environment.NewExpressions); result.Error != nil {
			t.Errorf("Kubernetes %s refuses %.2000s: %s", release, expression.GetExpression(), result.Error)
		}
	}
	for i := range o.Validating.Spec.MatchConditions {
		check((*matchconditions.MatchCondition)(&o.Validating.Spec.MatchConditions[i]), declared)
	}
	for _, v := range o.Validating.Spec.Validations {
		check(&validating.ValidationCondition{Expression: v.Expression}, declared)
		check(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression},
			cel.OptionalVariableDeclarations{})
	}
	for _, a := range o.Validating.Spec.AuditAnnotations {
		check(&validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}, declared)
	}
	if o.Mutating == nil {
		return
	}
	compiler = newCompiler(t, env, o.Mutating.Spec.Variables, declared)
	declared.HasPatchTypes = true
	check(&patch.JSONPatchCondition{Expression: o.Mutating.Spec.Mutations[0].JSONPatch.Expression}, declared)
}

func (s *apiServer) compile(t testing.TB, o *parts, env *environment.EnvSet) {
	t.Helper()
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler := newCompiler(t, env, o.Validating.Spec.Variables, declared)
	conditions := func(o cel.OptionalVariableDeclarations, list []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(list, o, environment.NewExpressions)
	}
	var match, validations, messages, audit []cel.ExpressionAccessor
	for i := range o.Validating.Spec.MatchConditions {
		match = append(match, (*matchconditions.MatchCondition)(&o.Validating.Spec.MatchConditions[i]))
	}
	for _, v := range o.Validating.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message,
			Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	for _, a := range o.Validating.Spec.AuditAnnotations {
		audit = append(audit, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	fail := o.Validating.Spec.FailurePolicy
	matcher := matchconditions.NewMatcher(conditions(declared, match), fail, "policy", "validate", o.Validating.Name)
	s.validator = validating.NewValidator(conditions(declared, validations), matcher, conditions(declared, audit),
		conditions(cel.OptionalVariableDeclarations{}, messages), fail, nil)
	if o.Mutating == nil {
		return
	}
	s.compiler = newCompiler(t, env, o.Mutating.Spec.Variables, declared)
	match = nil
	for i := range o.Mutating.Spec.MatchConditions {
		match = append(match, (*matchconditions.MatchCondition)(&o.Mutating.Spec.MatchConditions[i]))
	}
	s.matches = matchconditions.NewMatcher(s.compiler.CompileCondition(match, declared, environment.NewExpressions),
		fail, "policy", "mutate", o.Mutating.Name)
	declared.HasPatchTypes = true
	s.patcher = patch.NewJSONPatcher(s.compiler.CompileMutatingEvaluator(
		&patch.JSONPatchCondition{Expression: o.Mutating.Spec.Mutations[0].JSONPatch.Expression}, declared,
		environment.NewExpressions))
}

func newCompiler(
	t testing.TB, env *environment.EnvSet, variables []admissionv1.Variable, declared cel.OptionalVariableDeclarations,
) *cel.CompositedCompiler {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(env)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression},
			declared, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("the API server refuses variable %s, %.3000s: %s", v.Name, v.Expression, result.Error)
		}
	}
	return compiler
}

// write is a write to judge.
type write struct {
	// resource is the plural of the kind, with a subresource after a slash.
	resource string
	user     string
	// rights are what the user may do, as "VERB RESOURCE NAMESPACE/NAME".
	rights []string
	// object and old are marshalled to the JSON of the objects. Old is nil for a create, object for a deletion.
	object, old any
}

// answer is that of the API server.
type answer struct {
	// refused holds the messages, failed what could not be evaluated.
	refused, failed []string
	// audit is the audit annotation of an override.
	audit string
}

func (s *apiServer) judge(t testing.TB, w write) answer {
	t.Helper()
	attributes := w.attributes(t)
	versioned, err := admission.NewVersionedAttributes(attributes, attributes.GetKind(),
		admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err != nil {
		t.Fatal(err)
	}
	result := s.validator.Validate(t.Context(), attributes.GetResource(), versioned, nil, &corev1.Namespace{},
		celconfig.RuntimeCELCostBudget, w)
	var a answer
	for _, d := range result.Decisions {
		switch {
		case d.Evaluation == validating.EvalError:
			a.failed = append(a.failed, d.Message)
		case d.Action == validating.ActionDeny:
			a.refused = append(a.refused, d.Message)
		}
	}
	for _, annotation := range result.AuditAnnotations {
		switch annotation.Action {
		case validating.AuditAnnotationActionError:
			a.failed = append(a.failed, annotation.Error)
		case validating.AuditAnnotationActionPublish:
			a.audit = annotation.Value
		case validating.AuditAnnotationActionExclude:
		}
	}
	return a
}

// mutate returns spec.installPlanApproval as it would be stored.
func (s *apiServer) mutate(t testing.TB, w write) string {
	t.Helper()
	approval, _, err := unstructured.NestedString(s.stored(t, w).Object, "spec", "installPlanApproval")
	if err != nil {
		t.Fatal(err)
	}
	return approval
}

// stored returns an object as it would be stored.
func (s *apiServer) stored(t testing.TB, w write) *unstructured.Unstructured {
	t.Helper()
	attributes := w.attributes(t)
	interfaces := admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	versioned, err := admission.NewVersionedAttributes(attributes, attributes.GetKind(), interfaces)
	if err != nil {
		t.Fatal(err)
	}
	changed := versioned.VersionedObject.Object()
	if s.patcher != nil && s.matches.Match(t.Context(), versioned, nil, w).Matches {
		changed, err = s.patcher.Patch(s.compiler.CreateContext(t.Context()),
			patch.Request{MatchedResource: attributes.GetResource(), VersionedAttributes: versioned,
				ObjectInterfaces: interfaces, OptionalVariables: cel.OptionalVariableBindings{Authorizer: w},
				Namespace: &corev1.Namespace{}}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
	}
	return changed.(*unstructured.Unstructured)
}

func (w *write) attributes(t testing.TB) admission.Attributes {
	t.Helper()
	resource, subresource, _ := strings.Cut(w.resource, "/")
	named := unstructuredOf(t, w.object)
	operation, object, old := admission.Create, runtime.Object(named), runtime.Object(nil)
	switch {
	case w.object == nil:
		named = unstructuredOf(t, w.old)
		operation, object, old = admission.Delete, nil, named
	case w.old != nil:
		operation, old = admission.Update, unstructuredOf(t, w.old)
	}
	kind := schema.FromAPIVersionAndKind(named.GetAPIVersion(), named.GetKind())
	return admission.NewAttributesRecord(object, old, kind, named.GetNamespace(), named.GetName(),
		kind.GroupVersion().WithResource(resource), subresource, operation, nil, false, &user.DefaultInfo{Name: w.user})
}

func unstructuredOf(t testing.TB, object any) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// Authorize answers checks of rights in expressions.
func (w write) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := fmt.Sprintf("%s %s %s/%s", a.GetVerb(), a.GetResource(), a.GetNamespace(), a.GetName())
	for _, right := range w.rights {
		if right == asked {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}
