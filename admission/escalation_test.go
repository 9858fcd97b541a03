package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rights lets everybody do what it lists, as "verb resource.group/namespace", and counts what it is asked.
type rights struct {
	allowed map[string]bool
	asked   *[]string
	err     error
}

func (r rights) May(_ context.Context, _ *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
	right := what.Verb + " " + what.Resource + "." + what.Group + "/" + what.Namespace
	*r.asked = append(*r.asked, right)
	return r.allowed[right] || r.err != nil, r.err
}

const (
	makesPolicies    = "create operatorpolicies.policy.open-cluster-management.io/shop"
	makesConstraints = "create constraints.operators.coreos.com/"
)

// TestEscalation asks whether the author of a Policy may create what it makes (threat O14).
func TestEscalation(t *testing.T) {
	guard := "- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd}, spec: {a: 1}}"
	other := strings.Replace(guard, "etcd", "vault", 1)
	edited := strings.Replace(guard, "a: 1", "a: 2", 1)
	elsewhere := strings.Replace(guard, "name: etcd", "name: etcd, namespace: other", 1)
	constraint := "- objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: open}, spec: {}}"
	nothing := "- objectDefinition: {metadata: {name: etcd}}"
	for _, tc := range []struct {
		name        string
		old, object []string
		allowed     []string
		err         error
		asked       []string
		refused     string
	}{
		{name: "its own kind, in its own namespace", object: []string{guard}, allowed: []string{makesPolicies}, asked: []string{makesPolicies}},
		{name: "attack: a kind that it may not create", object: []string{guard}, asked: []string{makesPolicies},
			refused: "spec.policy-templates[0] makes OperatorPolicy shop/etcd, which its author may not create (policy/escalation): it needs the right to create operatorpolicies.policy.open-cluster-management.io in namespace shop"},
		{name: "attack: a Constraint is for the whole cluster", object: []string{guard, constraint}, allowed: []string{makesPolicies}, asked: []string{makesPolicies, makesConstraints},
			refused: "spec.policy-templates[1] makes Constraint open, which its author may not create (policy/escalation): it needs the right to create constraints.operators.coreos.com in the whole cluster"},
		{name: "attack: a namespace in the template is not where it goes", object: []string{elsewhere}, asked: []string{makesPolicies}, refused: "in namespace shop"},
		{name: "what stays is not asked about", old: []string{guard}, object: []string{guard}},
		{name: "attack: what stays is not what is new beside it", old: []string{guard}, object: []string{guard, constraint}, asked: []string{makesConstraints}, refused: "spec.policy-templates[1]"},
		{name: "attack: the same name with other contents", old: []string{guard}, object: []string{edited}, asked: []string{makesPolicies}, refused: "spec.policy-templates[0]"},
		{name: "a template that moves is the same", old: []string{guard, constraint}, object: []string{constraint, guard}},
		{name: "one right is asked about once", object: []string{guard, other}, allowed: []string{makesPolicies}, asked: []string{makesPolicies}},
		{name: "without a kind nothing is made", object: []string{nothing}},
		{name: "an error is not a yes", object: []string{guard}, err: errors.New("the API server is away"), asked: []string{makesPolicies}, refused: "could not be checked (policy/escalation): try again"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := []string{}
			authorizer := rights{allowed: map[string]bool{}, asked: &asked, err: tc.err}
			for _, right := range tc.allowed {
				authorizer.allowed[right] = true
			}
			gate := newGate(t, storeOf(t), authorizer)
			var old *unstructured.Unstructured
			if tc.old != nil {
				old = parent(t, tc.old)
			}
			got := send(t, gate, "tenant", false, old, parent(t, tc.object))
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
			if strings.Join(asked, ", ") != strings.Join(tc.asked, ", ") {
				t.Errorf("asked is %q, want %q", asked, tc.asked)
			}
		})
	}
}

// TestEscalationByEnabling asks who puts in force what somebody has stored.
func TestEscalationByEnabling(t *testing.T) {
	asked := []string{}
	gate := newGate(t, storeOf(t), rights{asked: &asked})
	template := []string{"- objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: x}}"}
	old, object := parent(t, template), parent(t, template)
	if err := unstructured.SetNestedField(old.Object, true, "spec", "disabled"); err != nil {
		t.Fatal(err)
	}
	if got := send(t, gate, "tenant", false, nil, old); !got.allowed || len(asked) > 0 {
		t.Errorf("disabled: allowed is %v, asked is %q", got.allowed, asked)
	}
	if got := send(t, gate, "tenant", false, old, object); got.allowed || len(asked) != 1 {
		t.Errorf("enabled: allowed is %v, asked is %q", got.allowed, asked)
	}
}

// TestEscalationByRemediation asks again where what is only reported so far is to be enforced.
func TestEscalationByRemediation(t *testing.T) {
	asked := []string{}
	gate := newGate(t, storeOf(t), rights{asked: &asked})
	template := []string{"- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: x}}"}
	old, object := parent(t, template), parent(t, template)
	if err := unstructured.SetNestedField(object.Object, "enforce", "spec", "remediationAction"); err != nil {
		t.Fatal(err)
	}
	if got := send(t, gate, "tenant", false, old, object); got.allowed || len(asked) != 1 {
		t.Errorf("allowed is %v, asked is %q", got.allowed, asked)
	}
}

func parent(t *testing.T, templates []string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: policy.open-cluster-management.io/v1\nkind: Policy\nmetadata: {name: app, namespace: shop}\nspec:\n  policy-templates:\n  " + strings.Join(templates, "\n  ") + "\n"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
