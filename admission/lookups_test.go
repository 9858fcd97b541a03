package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
)

// lookingUp returns an OperatorPolicy with these versions.
func lookingUp(t *testing.T, versions ...string) *unstructured.Unstructured {
	t.Helper()
	text := "apiVersion: policy.open-cluster-management.io/v1beta2\nkind: OperatorPolicy\nmetadata: {name: etcd, namespace: shop}\n" +
		"spec: {remediationAction: enforce, complianceType: musthave, upgradeApproval: None, subscription: {name: etcd, namespace: shop}, versions: [etcd.v1]}"
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	if len(versions) > 0 {
		var entries []any
		for _, v := range versions {
			entries = append(entries, v)
		}
		u.Object["spec"].(map[string]any)["versions"] = entries
	}
	return u
}

// lookupMark returns the mark that verifies what an OperatorPolicy looks up.
func lookupMark(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	op, _, err := rules.DecodeOperatorPolicy(raw(t, u))
	if err != nil {
		t.Fatal(err)
	}
	return rules.SignLookups(testKey, op)
}

func withMark(u *unstructured.Unstructured, mark string) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetAnnotations(map[string]string{metakey.Verified: mark, "kept": "yes"})
	return u
}

// TestI1AuthorsOfLookups asks whether the author of an OperatorPolicy may get what its templates look up (threat O47).
func TestI1AuthorsOfLookups(t *testing.T) {
	const literal, computed, anyKind = `{{ fromConfigMap "pins" "etcd" "v" }}`,
		`{{ fromConfigMap "pins" (print "etcd") "v" }}`, `{{ lookup "v1" (print "Pod") "a" "b" }}`
	const mayOne, mayAll, mayEverything = "get configmaps./pins/etcd", "get configmaps./", "get *.*/"
	bare := lookingUp(t, literal)
	signed := withMark(bare, lookupMark(t, bare))
	generated := bare.DeepCopy()
	generated.SetName("")
	generated.SetGenerateName("etcd-")
	off := bare.DeepCopy()
	off.SetAnnotations(map[string]string{"policy.open-cluster-management.io/disable-templates": "true"})
	labelled := bare.DeepCopy()
	labelled.SetAnnotations(map[string]string{"x": "y"})
	many := make([]string, rules.MaxLookups+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{{ fromConfigMap "pins" "etcd-%d" "v" }}`, i)
	}
	for _, tc := range []struct {
		name        string
		user        string
		allowed     []string
		err         error
		old, object *unstructured.Unstructured
		asked       []string
		refused     string
		marked      bool
	}{
		{name: "no lookup", object: lookingUp(t)},
		{name: "the author may", allowed: []string{mayOne}, object: bare, asked: []string{mayOne}, marked: true},
		{name: "the author may, whatever mark they write", allowed: []string{mayOne}, object: withMark(bare, "forged"),
			asked: []string{mayOne}, marked: true},
		{name: "the author may get all", allowed: []string{mayAll}, object: lookingUp(t, computed),
			asked: []string{mayAll}, marked: true},
		{name: "the author may get everything", allowed: []string{mayEverything}, object: lookingUp(t, anyKind),
			asked: []string{mayEverything}, marked: true},
		{name: "templates do not change", old: signed, object: withMark(signed, lookupMark(t, bare)), marked: true},
		{name: "a stored policy without a mark is labelled by who may not", old: bare, object: labelled},
		{name: "a stored policy without a mark is marked by who may", allowed: []string{mayOne}, old: bare,
			object: withMark(bare, "again"), asked: []string{mayOne}, marked: true},
		{name: "attack: a stored policy without a mark is marked by who may not", old: bare,
			object: withMark(bare, "again"), asked: []string{mayOne}, refused: "(operatorpolicy/lookup)"},
		{name: "attack: a stored policy without a mark is labelled by who may, who answers for what another wrote",
			allowed: []string{mayOne}, old: bare, object: labelled},
		{name: "no user takes a mark away", old: signed, object: bare, marked: true},
		{name: "a name that is not known yet is not marked", allowed: []string{mayOne}, object: generated,
			asked: []string{mayOne}},
		{name: "attack: the author may not", object: bare, asked: []string{mayOne},
			refused: "which its author may not get (operatorpolicy/lookup): it needs the right to get configmaps etcd in namespace pins"},
		{name: "attack: a computed name", allowed: []string{mayOne}, object: lookingUp(t, computed),
			asked: []string{mayAll}, refused: "it needs the right to get configmaps in the whole cluster"},
		{name: "attack: a computed kind", allowed: []string{mayOne, mayAll}, object: lookingUp(t, anyKind),
			asked: []string{mayEverything}, refused: "spec looks up objects of a computed kind"},
		{name: "attack: half a template", allowed: []string{mayAll},
			object: lookingUp(t, `{{ if true }}`+literal, `{{ end }}`), asked: []string{mayEverything},
			refused: "objects of a computed kind"},
		{name: "attack: it is written with a forged mark", object: withMark(bare, "forged"), asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: it is edited and keeps its mark", old: signed,
			object: withMark(lookingUp(t, literal, "x"), lookupMark(t, bare)), asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: it is written with a mark of before", old: lookingUp(t), object: signed,
			asked: []string{mayOne}, refused: "(operatorpolicy/lookup)"},
		{name: "attack: templates are switched on", old: off, object: bare, asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: more than can be asked", object: lookingUp(t, many...),
			refused: "its templates look up 21 objects"},
		{name: "the question fails", err: errors.New("down"), object: bare, asked: []string{mayOne},
			refused: "could not be checked (operatorpolicy/lookup): try again"},
		{name: "Opgate writes the template of a Policy", user: "opgate", object: bare, marked: true},
		{name: "Opgate changes what was verified", user: "opgate", old: signed,
			object: withMark(lookingUp(t, literal, "x"), "old"), marked: true},
		{name: "attack: Opgate writes into what was not verified", user: "opgate", old: bare,
			object: lookingUp(t, literal, "x")},
		{name: "attack: Opgate annotates what was not verified", user: "opgate", old: bare, object: labelled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: map[string]bool{}, err: tc.err}
			for _, right := range tc.allowed {
				authorizer.allowed[right] = true
			}
			gate := newGate(t, storeOf(t), authorizer)
			gate.Identity = func() string { return "opgate" }
			user := tc.user
			if user == "" {
				user = "tenant"
			}
			got := send(t, gate, user, false, tc.old, tc.object)
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
			if diff := cmp.Diff(tc.asked, authorizer.asked); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
			if !got.allowed {
				return
			}
			op, _, err := rules.DecodeOperatorPolicy(got.object)
			if err != nil {
				t.Fatal(err)
			}
			if marked := rules.LookupsVerified(testKey, op); marked != tc.marked {
				t.Errorf("marked is %v", marked)
			}
		})
	}
}

// TestI1LookupsOfCallers refuses lookups of callers that are not the API server, and asks nothing for them (threat
// G20).
func TestI1LookupsOfCallers(t *testing.T) {
	authorizer := &rights{allowed: map[string]bool{"get configmaps./pins/etcd": true}}
	gate, err := New(optionsOf(Options{Store: storeOf(t), Authorizer: authorizer}))
	if err != nil {
		t.Fatal(err)
	}
	got := send(t, gate, "tenant", false, nil, lookingUp(t, `{{ fromConfigMap "pins" "etcd" "v" }}`))
	if got.allowed || !strings.Contains(got.message, "(operatorpolicy/lookup)") || len(authorizer.asked) > 0 {
		t.Errorf("allowed is %v, asked %v: %s", got.allowed, authorizer.asked, got.message)
	}
}

// TestI1AuthorsOfPolicies asks whether the author of a Policy may get what the OperatorPolicies in its templates look
// up (threat O47).
func TestI1AuthorsOfPolicies(t *testing.T) {
	template := func(text string) []string {
		return []string{"- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd}, spec: {versions: ['" + text + "']}}"}
	}
	const literal = `{{ fromConfigMap "pins" "etcd" "v" }}`
	for _, tc := range []struct {
		name    string
		text    string
		allowed []string
		refused string
	}{
		{name: "control: no lookup", text: "etcd.v1", allowed: []string{makesPolicies}},
		{name: "the author may", text: literal, allowed: []string{makesPolicies, "get configmaps./pins/etcd"}},
		{name: "attack: the author may create it only", text: literal, allowed: []string{makesPolicies},
			refused: "spec.policy-templates[0] looks up ConfigMap pins/etcd, which its author may not get (policy/escalation): it needs the right to get configmaps etcd in namespace pins"},
		{name: "attack: a computed name", text: `{{ fromConfigMap "pins" (print "etcd") "v" }}`,
			allowed: []string{makesPolicies, "get configmaps./pins/etcd"},
			refused: "it needs the right to get configmaps in the whole cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			authorizer := &rights{allowed: map[string]bool{}}
			for _, right := range tc.allowed {
				authorizer.allowed[right] = true
			}
			got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, nil, policy(t, template(tc.text)))
			if got.allowed != (tc.refused == "") || !strings.Contains(got.message, tc.refused) {
				t.Errorf("allowed is %v: %s", got.allowed, got.message)
			}
		})
	}
}
