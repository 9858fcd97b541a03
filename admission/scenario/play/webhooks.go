package play

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/opgate/opgate/admission/webhooks"
)

// webhook is an entry of the webhook configurations, with the path of its endpoint.
type webhook struct {
	webhooks.Entry
	path    string
	matcher func() matchconditions.Matcher
}

// shipped are the webhooks as they are installed by default, in the order in which the API server calls them.
var shipped = sync.OnceValue(func() (all []webhook) {
	entries, err := webhooks.New(webhooks.Settings{OLM: OLM, FailurePolicy: admissionregistrationv1.Fail, TimeoutSeconds: 5})
	if err != nil {
		panic(err) // the entries are part of the program
	}
	add := func(verb string, entries []webhooks.Entry) {
		for _, e := range entries {
			all = append(all, webhook{e, verb + strings.TrimSuffix(e.Name, ".opgate.io"), sync.OnceValue(func() matchconditions.Matcher {
				return matcherOf(&e)
			})})
		}
	}
	add("/mutate/", entries.Mutating)
	add("/validate/", entries.Validating)
	return all
})

func matcherOf(e *webhooks.Entry) matchconditions.Matcher {
	var expressions []cel.ExpressionAccessor
	for i := range e.MatchConditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&e.MatchConditions[i]))
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	return matchconditions.NewMatcher(compiler.CompileCondition(expressions,
		cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions), e.FailurePolicy, "webhook",
		"validating", e.Name)
}

// concerns reports whether the webhook's rules match a write, whatever its conditions say.
func (h *webhook) concerns(w *Write) bool {
	resource, operation := ResourceOf(w.New), admissionregistrationv1.Update
	if w.Status {
		resource += "/status"
	}
	if w.Old == nil {
		operation = admissionregistrationv1.Create
	}
	return h.Rules[0].Resources[0] == resource && slices.Contains(h.Rules[0].Operations, operation)
}

// matches reports whether the conditions of the webhook let the API server ask about a write, by the API server's own
// code.
func (h *webhook) matches(ctx context.Context, w *Write) (bool, error) {
	operation, old, subresource := admission.Create, runtime.Object(nil), ""
	if w.Old != nil {
		operation, old = admission.Update, w.Old
	}
	if w.Status {
		subresource = "status"
	}
	kind := w.New.GroupVersionKind()
	attributes, err := admission.NewVersionedAttributes(admission.NewAttributesRecord(w.New, old, kind, w.New.GetNamespace(),
		w.New.GetName(), kind.GroupVersion().WithResource(ResourceOf(w.New)), subresource, operation, nil, false,
		&user.DefaultInfo{Name: w.user()}), kind, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err != nil {
		return false, err
	}
	result := h.matcher().Match(ctx, attributes, nil, olmMayEscalate)
	if result.Error != nil {
		return false, fmt.Errorf("%s: %w", h.Name, result.Error)
	}
	return result.Matches, nil
}

// olmMayEscalate lets OLM do everything, and other users nothing.
var olmMayEscalate = authorizer.AuthorizerFunc(
	func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == OLM {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})

// withObject is the write with the object as mutating webhooks have changed it.
func (w *Write) withObject(object []byte) (*Write, error) {
	changed := *w
	changed.New = &unstructured.Unstructured{}
	return &changed, changed.New.UnmarshalJSON(object)
}
