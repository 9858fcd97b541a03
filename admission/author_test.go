package admission

import (
	"errors"
	"fmt"
	"os"
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
	return rules.SignAuthor(testKey, op)
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
	many, equal := make([]string, rules.MaxLookups+1), make([]string, rules.MaxLookups+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{{ fromConfigMap "pins" "etcd-%d" "v" }}`, i)
		const kind = "customresourcedefinition" // in another case it has the same resource
		equal[i] = fmt.Sprintf(`{{ lookup "v1" "%s%s" "pins" "etcd" }}`, strings.ToUpper(kind[:i]), kind[i:])
	}
	stored := lookingUp(t, equal...)
	annotated := stored.DeepCopy()
	annotated.SetAnnotations(map[string]string{"x": "y"})
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
			object: lookingUp(t, `{{ if true }}`+literal, `{{ end }}`), asked: []string{mayOne},
			refused: "spec looks up ConfigMap pins/etcd"},
		{name: "attack: it is written with a forged mark", object: withMark(bare, "forged"), asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: it is edited and keeps its mark", old: signed,
			object: withMark(lookingUp(t, literal, "x"), lookupMark(t, bare)), asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: it is written with a mark of before", old: lookingUp(t), object: signed,
			asked: []string{mayOne}, refused: "(operatorpolicy/lookup)"},
		{name: "attack: templates are switched on", old: off, object: bare, asked: []string{mayOne},
			refused: "(operatorpolicy/lookup)"},
		{name: "attack: more than can be asked", object: lookingUp(t, many...), refused: "its templates look up 21 objects"},
		{name: "attack: more than can be asked, by one right that the author has", allowed: []string{"get customresourcedefinitions./pins/etcd"},
			object: lookingUp(t, equal...), refused: "its templates look up 21 objects"},
		{name: "control: a stored policy with as many is labelled", old: stored, object: annotated},
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
	gate := New(optionsOf(Options{Store: storeOf(t), Authorizer: authorizer}))
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

// elsewhere is an OperatorPolicy of namespace shop about another one, or with a catalog in another one.
func elsewhere(t *testing.T, action string, fields map[string]any) *unstructured.Unstructured {
	t.Helper()
	u := lookingUp(t)
	spec := u.Object["spec"].(map[string]any)
	spec["remediationAction"], spec["subscription"] = action, map[string]any{"name": "etcd", "namespace": "payments"}
	for field, value := range fields {
		spec[field] = value
	}
	return u
}

// authorRow is a row of the table of fields and rights.
type authorRow struct {
	object, weaker *unstructured.Unstructured
	rights         []string
	// unmarked is set if the right has no mark.
	unmarked bool
}

func authorRows(t *testing.T) map[string]authorRow {
	t.Helper()
	fromHub := map[string]any{"name": "etcd", "namespace": "shop", "source": "hub", "sourceNamespace": "olm"}
	except := []any{map[string]any{"versions": []any{"etcd.v2"}, "rules": []any{"bundle/version"}, "reason": "a ticket",
		"expires": "2126-01-01T00:00:00Z"}}
	return map[string]authorRow{
		"`spec.deletion`: `Confirm`, and again for `Deny`": {
			object: elsewhere(t, "enforce", map[string]any{"deletion": "Deny"}),
			weaker: elsewhere(t, "enforce", map[string]any{"deletion": "Confirm"}),
			rights: []string{"delete namespaces./payments/payments", "delete operatorgroups.operators.coreos.com/payments"}},
		"`spec.deletion` with `spec.subscription.source` and `sourceNamespace`": {
			object: elsewhere(t, "enforce", map[string]any{"deletion": "Confirm", "subscription": fromHub}),
			weaker: elsewhere(t, "enforce", map[string]any{"subscription": fromHub}),
			rights: []string{"delete namespaces./olm/olm", "delete catalogsources.operators.coreos.com/olm/hub"}},
		"`spec.planApproval: IfAllowed`": {
			object: elsewhere(t, "enforce", map[string]any{"planApproval": "IfAllowed"}),
			weaker: elsewhere(t, "enforce", map[string]any{"planApproval": "IfRequested"}),
			rights: []string{"update installplans.operators.coreos.com/payments"}},
		"`spec.remediationAction: inform`": {object: elsewhere(t, "inform", nil), weaker: elsewhere(t, "enforce", nil),
			rights: []string{"get subscriptions.operators.coreos.com/payments"}},
		"a template": {object: lookingUp(t, `{{ fromConfigMap "pins" "etcd" "v" }}`), weaker: lookingUp(t),
			rights: []string{"get configmaps./pins/etcd"}},
		"`spec.exceptions`, added, prolonged or widened": {unmarked: true,
			object: elsewhere(t, "enforce", map[string]any{"exceptions": except}), weaker: elsewhere(t, "enforce", nil),
			rights: []string{"override operatorpolicies.policy.open-cluster-management.io/shop/etcd"}},
	}
}

// changed returns a copy with a field of its metadata or its spec.
func changed(u *unstructured.Unstructured, part, field string, value any) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.Object[part].(map[string]any)[field] = value
	return u
}

// TestA1A2AuthorRights goes through the table of fields and rights in docs/rules.md: a user without the right is refused,
// and no other; what is stored needs it again only once it grows, or if it was never verified (threats O47, O67, O78,
// O79).
func TestA1A2AuthorRights(t *testing.T) {
	text, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "| Field of an OperatorPolicy | Right that its author needs | Rule |\n|---|---|---|\n")
	section, _, _ = strings.Cut(section, "\n\n")
	lines, rows := strings.Split(section, "\n"), authorRows(t)
	if len(lines) != len(rows) {
		t.Errorf("the table has %d rows, and this test %d", len(lines), len(rows))
	}
	for _, line := range lines {
		cells := strings.Split(line, " | ")
		name, rule := strings.TrimPrefix(cells[0], "| "), "operatorpolicy/author-right"
		row, ok := rows[name]
		if !ok {
			t.Fatalf("no test of %s", name)
		}
		if _, link, is := strings.Cut(cells[2], "["); is {
			rule, _, _ = strings.Cut(link, "]")
		}
		mark := lookupMark(t, row.object)
		verified := withMark(row.object, mark)
		for title, c := range map[string]struct {
			old, object *unstructured.Unstructured
			// without is the index of a right that the user has not; -1 if they have all.
			without int
			none    bool
			refused bool
		}{
			"the author may":               {object: row.object, without: -1},
			"attack: the author may not":   {object: row.object, none: true, refused: true},
			"attack: one right is missing": {object: row.object, refused: true},
			"attack: what is stored grows": {old: row.weaker, object: row.object, none: true, refused: true},
			"what is stored is labelled": {old: row.object, none: true,
				object: changed(row.object, "metadata", "labels", map[string]any{"a": "b"})},
			"attack: what was never verified is edited": {old: row.object, none: true,
				object: changed(row.object, "spec", "severity", "low"), refused: rule == "operatorpolicy/author-right"},
			"what is verified is edited":      {old: verified, none: true, object: changed(verified, "spec", "severity", "low")},
			"what is verified is made weaker": {old: verified, none: true, object: withMark(row.weaker, mark)},
		} {
			t.Run(name+"/"+title, func(t *testing.T) {
				authorizer := &rights{allowed: map[string]bool{}}
				for i, right := range row.rights {
					authorizer.allowed[right] = !c.none && i != c.without
				}
				got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, c.old, c.object)
				verb, _, _ := strings.Cut(row.rights[0], " ")
				if want := "(" + rule + "): it needs the right to " + verb; got.allowed == c.refused ||
					c.refused && !strings.Contains(got.message, want) {
					t.Errorf("allowed is %v: %s", got.allowed, got.message)
				}
				op, _, err := rules.DecodeOperatorPolicy(got.object)
				if err == nil && title == "the author may" && !row.unmarked && !rules.AuthorVerified(testKey, op) {
					t.Error("it is not marked")
				}
			})
		}
	}
}

// TestA1A2AuthorsOfPolicies asks the author of a Policy for the rights that an OperatorPolicy in it needs (threats O78,
// O79).
func TestA1A2AuthorsOfPolicies(t *testing.T) {
	template := func(spec string) []string {
		return []string{"- objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd}, " +
			"spec: {complianceType: musthave, upgradeApproval: None, subscription: {name: etcd, namespace: payments}, " + spec + "}}"}
	}
	for spec, right := range map[string]string{
		"remediationAction: enforce":                          "",
		"remediationAction: inform":                           "get subscriptions.operators.coreos.com in namespace payments",
		"remediationAction: enforce, deletion: Deny":          "delete namespaces payments in namespace payments",
		"remediationAction: enforce, planApproval: IfAllowed": "update installplans.operators.coreos.com in namespace payments",
	} {
		authorizer := &rights{allowed: map[string]bool{makesPolicies: true}}
		got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, nil, policy(t, template(spec)))
		if got.allowed != (right == "") || !strings.Contains(got.message, right) {
			t.Errorf("%s: allowed is %v: %s", spec, got.allowed, got.message)
		}
	}
}

// TestA2Preview: a write tells nothing of another namespace to a user who may not get Subscriptions there, whatever the
// policy does (threat O79).
func TestA2Preview(t *testing.T) {
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
		"metadata": map[string]any{"name": "etcd", "namespace": "payments"},
		"spec":     map[string]any{"name": "etcd", "channel": "gold", "source": "hub", "sourceNamespace": "olm"},
		"status":   map[string]any{"installedCSV": "etcd.v7.1.3"}}}
	for _, may := range []bool{true, false} {
		authorizer := &rights{allowed: map[string]bool{"get subscriptions.operators.coreos.com/payments": may}}
		got := send(t, newGate(t, storeOf(t, secret), authorizer), "tenant", false, nil, elsewhere(t, "enforce", nil))
		if shown := strings.Contains(strings.Join(got.warnings, "\n"), "etcd.v7.1.3"); !got.allowed || shown != may {
			t.Errorf("a user who may read there: %t; allowed is %t, warnings %q", may, got.allowed, got.warnings)
		}
	}
}
