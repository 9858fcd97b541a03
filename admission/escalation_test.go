package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
)

// rights allows every user what it lists, as "verb resource.group/namespace[/name]", and records the requests, each
// once, sorted.
type rights struct {
	allowed map[string]bool
	err     error

	mu    sync.Mutex
	asked []string
}

func (r *rights) May(
	_ context.Context, _ *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes,
) (bool, error) {
	right := what.Verb + " " + what.Resource + "." + what.Group + "/" + what.Namespace
	if what.Name != "" {
		right += "/" + what.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, known := slices.BinarySearch(r.asked, right); !known {
		r.asked = slices.Insert(r.asked, at, right)
	}
	return r.allowed[right] || r.err != nil, r.err
}

const (
	makesPolicies    = "create operatorpolicies.policy.open-cluster-management.io/shop"
	makesConstraints = "create constraints.operators.coreos.com/"
)

// TestEscalation asks whether the author of a Policy may create what it makes (threat O14).
func TestEscalation(t *testing.T) {
	operatorPolicy := "- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd}, spec: {a: 1}}"
	other := strings.Replace(operatorPolicy, "etcd", "vault", 1)
	edited := strings.Replace(operatorPolicy, "a: 1", "a: 2", 1)
	elsewhere := strings.Replace(operatorPolicy, "name: etcd", "name: etcd, namespace: other", 1)
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
		{name: "its own kind, in its own namespace", object: []string{operatorPolicy}, allowed: []string{makesPolicies},
			asked: []string{makesPolicies}},
		{name: "attack: a kind that it may not create", object: []string{operatorPolicy},
			asked:   []string{makesPolicies},
			refused: "spec.policy-templates[0] makes OperatorPolicy shop/etcd, which its author may not create (policy/escalation): it needs the right to create operatorpolicies.policy.open-cluster-management.io in namespace shop"},
		{name: "attack: a Constraint is for the whole cluster", object: []string{operatorPolicy, constraint},
			allowed: []string{makesPolicies}, asked: []string{makesConstraints, makesPolicies},
			refused: "spec.policy-templates[1] makes Constraint open, which its author may not create (policy/escalation): it needs the right to create constraints.operators.coreos.com in the whole cluster"},
		{name: "attack: a namespace in the template is not where it goes", object: []string{elsewhere},
			asked: []string{makesPolicies}, refused: "in namespace shop"},
		{name: "what stays is not asked about", old: []string{operatorPolicy}, object: []string{operatorPolicy}},
		{name: "attack: what stays is not what is new beside it", old: []string{operatorPolicy},
			object: []string{operatorPolicy, constraint}, asked: []string{makesConstraints},
			refused: "spec.policy-templates[1]"},
		{name: "attack: the same name with other contents", old: []string{operatorPolicy}, object: []string{edited},
			asked: []string{makesPolicies}, refused: "spec.policy-templates[0]"},
		{name: "a template that moves is the same", old: []string{operatorPolicy, constraint},
			object: []string{constraint, operatorPolicy}},
		{name: "one right is asked about once", object: []string{operatorPolicy, other},
			allowed: []string{makesPolicies}, asked: []string{makesPolicies}},
		{name: "without a kind nothing is made", object: []string{nothing}},
		{name: "an error is not a yes", object: []string{operatorPolicy}, err: errors.New("the API server is away"),
			asked: []string{makesPolicies}, refused: "could not be checked (policy/escalation): try again"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: map[string]bool{}, err: tc.err}
			for _, right := range tc.allowed {
				authorizer.allowed[right] = true
			}
			gate := newGate(t, storeOf(t), authorizer)
			var old *unstructured.Unstructured
			if tc.old != nil {
				old = marked(t, policy(t, tc.old))
			}
			got := send(t, gate, "tenant", false, old, policy(t, tc.object))
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
			if !slices.Equal(authorizer.asked, tc.asked) {
				t.Errorf("asked is %q, want %q", authorizer.asked, tc.asked)
			}
		})
	}
}

// TestUnknownFieldsWarn: unknown fields are warned of where the spec changes, and not where a mark does.
func TestUnknownFieldsWarn(t *testing.T) {
	stored := policy(t, []string{"- objectDefinition: {apiVersion: v1, kind: X}"})
	put(stored, "a", "spec", "unknown")
	remarked, edited := stored.DeepCopy(), stored.DeepCopy()
	put(remarked, "a", "metadata", "annotations", metakey.Verified)
	put(edited, "a", "spec", "another")
	for object, want := range map[*unstructured.Unstructured]int{remarked: 0, edited: 2} {
		warnings := send(t, newGate(t, storeOf(t), &rights{}), "tenant", false, stored, object).warnings
		if n := strings.Count(strings.Join(warnings, "\n"), "(policy/field)"); n != want {
			t.Errorf("%v: the warnings are %q, want %d of the rule", object, warnings, want)
		}
	}
}

// TestEscalationByEnabling checks the rights of the user who enables a Policy that another user has stored.
func TestEscalationByEnabling(t *testing.T) {
	authorizer := &rights{}
	gate := newGate(t, storeOf(t), authorizer)
	template := []string{"- objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: x}}"}
	old, object := policy(t, template), policy(t, template)
	if err := unstructured.SetNestedField(old.Object, true, "spec", "disabled"); err != nil {
		t.Fatal(err)
	}
	if got := send(t, gate, "tenant", false, nil, old); !got.allowed || len(authorizer.asked) > 0 {
		t.Errorf("disabled: allowed is %v, asked is %q", got.allowed, authorizer.asked)
	}
	if got := send(t, gate, "tenant", false, marked(t, old), object); got.allowed || len(authorizer.asked) != 1 {
		t.Errorf("enabled: allowed is %v, asked is %q", got.allowed, authorizer.asked)
	}
}

// TestEscalationByRemediation checks rights again where a Policy changes from inform to enforce.
func TestEscalationByRemediation(t *testing.T) {
	authorizer := &rights{}
	gate := newGate(t, storeOf(t), authorizer)
	template := []string{"- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: x}}"}
	old, object := policy(t, template), policy(t, template)
	if err := unstructured.SetNestedField(object.Object, "enforce", "spec", "remediationAction"); err != nil {
		t.Fatal(err)
	}
	if got := send(t, gate, "tenant", false, marked(t, old), object); got.allowed || len(authorizer.asked) != 1 {
		t.Errorf("allowed is %v, asked is %q", got.allowed, authorizer.asked)
	}
}

func policy(t *testing.T, templates []string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: policy.open-cluster-management.io/v1\nkind: Policy\nmetadata: {name: app, namespace: shop}\nspec:\n  policy-templates:\n  " + strings.Join(templates, "\n  ") + "\n"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// dependent is a Policy that waits for objects, each "<apiVersion> <kind> <namespace> <name>", and makes nothing.
func dependent(t *testing.T, on ...string) *unstructured.Unstructured {
	t.Helper()
	u := policy(t, []string{"- objectDefinition: {apiVersion: v1, kind: X}"})
	var dependencies []any
	for _, text := range on {
		words := strings.Fields(text)
		dependencies = append(dependencies, map[string]any{"apiVersion": words[0], "kind": words[1],
			"namespace": words[2], "name": words[3], "compliance": "Compliant"})
	}
	if err := unstructured.SetNestedSlice(u.Object, dependencies, "spec", "dependencies"); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestA8Dependencies asks whether the author of a Policy may get what it waits for (threat O22).
func TestA8Dependencies(t *testing.T) {
	const (
		secret    = "operators.coreos.com/v1alpha1 Subscription victim secret-project"
		nothing   = "operators.coreos.com/v1alpha1 Subscription victim nothing"
		own       = "operators.coreos.com/v1alpha1 Subscription shop mine"
		policy    = "policy.open-cluster-management.io/v1 Policy victim db"
		broad     = "operators.coreos.com/v1 Constraint victim all"
		zone      = "example.com/v1 Zone shop east"
		anywhere  = "get subscriptions.operators.coreos.com/"
		everyone  = anywhere + "victim"
		theSecret = everyone + "/secret-project"
	)
	for _, tc := range []struct {
		name    string
		old, on []string
		allowed []string
		asked   []string
		refused string
		narrow  string
	}{
		{name: "what is beside it", on: []string{own}},
		{name: "attack: does it exist?", on: []string{secret, nothing},
			asked:   []string{anywhere, everyone, everyone + "/nothing", theSecret},
			refused: "spec.dependencies[1] waits for Subscription victim/nothing, which its author may not get (policy/dependency-access)"},
		{name: "one right for all of a kind", on: []string{secret, nothing}, allowed: []string{everyone},
			asked: []string{anywhere, everyone}},
		{name: "a right to all of a kind anywhere", on: []string{secret, nothing}, allowed: []string{anywhere},
			asked: []string{anywhere}},
		{name: "a right to one name", on: []string{secret}, allowed: []string{theSecret},
			asked: []string{anywhere, everyone, theSecret}},
		{name: "attack: a right to one name is none to others", on: []string{secret, nothing},
			allowed: []string{theSecret}, asked: []string{anywhere, everyone, everyone + "/nothing", theSecret},
			refused: "victim/nothing"},
		{name: "attack: the state of a Policy elsewhere", on: []string{policy},
			asked: []string{"get policies.policy.open-cluster-management.io/",
				"get policies.policy.open-cluster-management.io/victim",
				"get policies.policy.open-cluster-management.io/victim/db"},
			refused: "it needs the right to get policies.policy.open-cluster-management.io db in namespace victim"},
		{name: "attack: what has no namespace", on: []string{broad},
			asked:   []string{"get constraints.operators.coreos.com/", "get constraints.operators.coreos.com//all"},
			refused: "in the whole cluster"},
		{name: "what stays is not asked about", old: []string{secret}, on: []string{secret}},
		{name: "attack: what stays is not what is new beside it", old: []string{secret}, on: []string{secret, nothing},
			asked: []string{anywhere, everyone, everyone + "/nothing"}, refused: "nothing"},
		{name: "a kind that may have no namespaces", on: []string{zone}, allowed: []string{"get zones.example.com/"},
			asked: []string{"get zones.example.com/"}},
		{name: "attack: a kind that may have no namespaces", on: []string{zone},
			asked: []string{"get zones.example.com/"}, narrow: "Zone.example.com"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: map[string]bool{}}
			for _, right := range tc.allowed {
				authorizer.allowed[right] = true
			}
			var old *unstructured.Unstructured
			if tc.old != nil {
				old = marked(t, dependent(t, tc.old...))
			}
			got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, old, dependent(t, tc.on...))
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
			if !slices.Equal(authorizer.asked, tc.asked) {
				t.Errorf("asked is %q, want %q", authorizer.asked, tc.asked)
			}
			if _, narrow, _ := strings.Cut(markOf(t, got.object), " "); narrow != tc.narrow {
				t.Errorf("the mark says %q of kinds, want %q", narrow, tc.narrow)
			}
		})
	}
}

// TestA8ManyDependencies bounds the questions, and asks no more once something is missing.
func TestA8ManyDependencies(t *testing.T) {
	many := func(n int, namespace string) (on []string, names map[string]bool) {
		names = map[string]bool{}
		for i := range n {
			on = append(on, fmt.Sprintf("operators.coreos.com/v1alpha1 Subscription %s s%03d", namespace, i))
			names[fmt.Sprintf("get subscriptions.operators.coreos.com/%s/s%03d", namespace, i)] = true
		}
		return on, names
	}
	few, ofFew := many(dependency.MaxQuestions-2, "victim")
	lots, ofLots := many(450, "victim")
	for _, tc := range []struct {
		name    string
		on      []string
		allowed map[string]bool
		asked   int
		refused string
	}{
		{name: "no right", on: few, asked: dependency.MaxQuestions, refused: "(policy/dependency-access)"},
		{name: "a right to each, as many as are asked about", on: few, allowed: ofFew, asked: dependency.MaxQuestions},
		{name: "attack: hundreds of questions", on: lots, allowed: ofLots, asked: 2,
			refused: "takes 452 access reviews, at most 20 are made (policy/escalation): split it into Policies"},
		{name: "hundreds of objects, and a right to all", on: lots,
			allowed: map[string]bool{"get subscriptions.operators.coreos.com/": true}, asked: 1},
		{name: "hundreds of objects, and a right to all in the namespace", on: lots,
			allowed: map[string]bool{"get subscriptions.operators.coreos.com/victim": true}, asked: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: tc.allowed}
			got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, nil, dependent(t, tc.on...))
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) ||
				len(authorizer.asked) != tc.asked {
				t.Errorf("allowed is %v, asked about %d rights, want %d: %s", got.allowed, len(authorizer.asked),
					tc.asked, got.message)
			}
		})
	}
}

// TestA8CycleOfOthers shows no way through the Policies of others to those who may not get them.
func TestA8CycleOfOthers(t *testing.T) {
	const text = `
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: base, namespace: victim}
spec:
  dependencies: [{kind: Policy, name: app, namespace: shop, compliance: Compliant}]
  policy-templates: [{objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: x}}}]
`
	other := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &other.Object); err != nil {
		t.Fatal(err)
	}
	on := dependent(t, "policy.open-cluster-management.io/v1 Policy victim base")
	if err := unstructured.SetNestedSlice(on.Object, []any{map[string]any{"objectDefinition": map[string]any{
		"apiVersion": "policy.open-cluster-management.io/v1", "kind": "ConfigurationPolicy",
		"metadata": map[string]any{"name": "x"}}}}, "spec", "policy-templates"); err != nil {
		t.Fatal(err)
	}
	makes := "create configurationpolicies.policy.open-cluster-management.io/shop"
	authorizer := &rights{allowed: map[string]bool{makes: true}}
	got := send(t, newGate(t, storeOf(t, other), authorizer), "tenant", false, nil, on)
	if got.allowed || strings.Contains(got.message, "->") ||
		!strings.Contains(got.message, "(policy/dependency-access)") {
		t.Errorf("allowed is %v: %s", got.allowed, got.message)
	}
	authorizer.allowed["get policies.policy.open-cluster-management.io/victim"] = true
	if got := send(t, newGate(t, storeOf(t, other), authorizer), "tenant", false, nil, on); got.allowed ||
		!strings.Contains(got.message, "(policy/dependency-cycle)") {
		t.Errorf("with the right, allowed is %v: %s", got.allowed, got.message)
	}
}

// markOf is the mark of what is stored.
func markOf(t *testing.T, object []byte) string {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(object); err != nil {
		t.Fatal(err)
	}
	return u.GetAnnotations()[metakey.Verified]
}

// TestB2Mark wants the mark of a Policy to say that the rights of its author were verified, no matter who wrote what
// before (threat O21).
func TestB2Mark(t *testing.T) {
	constraint := []string{"- objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: open}, spec: {}}"}
	with := func(u *unstructured.Unstructured, mark string) *unstructured.Unstructured {
		u = u.DeepCopy()
		u.SetAnnotations(map[string]string{metakey.Verified: mark, "kept": "yes"})
		return u
	}
	bare := policy(t, constraint)
	valid := marked(t, bare)
	renamed := valid.DeepCopy()
	renamed.SetName("another")
	generated := bare.DeepCopy()
	generated.SetName("")
	generated.SetGenerateName("app-")
	edited := policy(t, []string{strings.Replace(constraint[0], "open", "wide", 1)})
	for _, tc := range []struct {
		name        string
		may         bool
		old, object *unstructured.Unstructured
		refused     string
	}{
		{name: "its author may", may: true, object: bare},
		{name: "its author may, whatever mark they write", may: true, object: with(bare, "forged")},
		{name: "attack: it is written with a forged mark", object: with(bare, "forged"), refused: "(policy/escalation)"},
		{name: "attack: it is written with the mark of another one", object: renamed, refused: "(policy/escalation)"},
		{name: "attack: it is edited and keeps its mark", old: valid, object: with(edited, markOf(t, raw(t, valid))),
			refused: "(policy/escalation)"},
		{name: "attack: what was stored without a mark answers for nothing", old: bare, object: with(bare, ""),
			refused: "(policy/escalation)"},
		{name: "attack: what was stored with a forged mark answers for nothing", old: with(bare, "forged"),
			object: bare, refused: "(policy/escalation)"},
		{name: "a user with the rights takes over what was stored without a mark", may: true, old: bare,
			object: with(bare, "")},
		{name: "no user takes a mark away", old: valid, object: bare},
		{name: "a name that is not known yet cannot be signed", may: true, object: generated,
			refused: "write metadata.name in place of metadata.generateName"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: map[string]bool{makesConstraints: tc.may}}
			got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, tc.old, tc.object)
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
			if got.allowed && markOf(t, got.object) != markOf(t, raw(t, valid)) {
				t.Errorf("the mark is %q", markOf(t, got.object))
			}
		})
	}
}

// TestB2WithoutKey holds Policies until marks can be signed.
func TestB2WithoutKey(t *testing.T) {
	gate := newGate(t, storeOf(t), &rights{})
	gate.Key = func() []byte { return nil }
	if got := send(t, gate, "admin", false, nil, dependent(t)); got.allowed ||
		!strings.Contains(got.message, "(gate/not-ready)") {
		t.Errorf("allowed is %v: %s", got.allowed, got.message)
	}
}
