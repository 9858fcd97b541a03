package constraint

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

// offering returns an element of spec.offers.
func offering(kind, value string) constraintv1.ConstraintOffer {
	return constraintv1.ConstraintOffer{Type: kind, Value: apiextensionsv1.JSON{Raw: []byte(value)}}
}

// TestRulesMeanTheSame: a rule and an offer mean what they mean as JSON, and are counted after the elements of the
// strings (R-CO-11).
func TestRulesMeanTheSame(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		rule constraintv1.ConstraintRule
	}{
		{
			name: "the least",
			text: `{"rule":"version == '0.9.4'"}`,
			rule: constraintv1.ConstraintRule{Expression: "version == '0.9.4'"},
		},
		{
			name: "refuses in computed words",
			text: `{"rule":"cluster.properties.size() > 9","message":"no","messageExpression":"'not ' + version","action":{"id":"require"}}`,
			rule: constraintv1.ConstraintRule{Expression: "cluster.properties.size() > 9", Message: "no",
				MessageExpression: "'not ' + version", Action: "require"},
		},
		{
			name: "warns",
			text: `{"rule":"false","message":"no","action":{"id":"warn"},"on":"bundle"}`,
			rule: constraintv1.ConstraintRule{Expression: "false", Message: "no", Action: "warn", Target: "bundle"},
		},
		{
			name: "on catalogs",
			text: `{"rule":"source.digest != ''","on":"catalogSource"}`,
			rule: constraintv1.ConstraintRule{Expression: "source.digest != ''", Target: "catalogSource"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := sound(t, "one", olmConstraint(c.text), `[{"type":"acme","value":{"a":1}}]`)
			two := Define(Meta{Name: "one"}, &constraintv1.ConstraintSpec{Rules: []constraintv1.ConstraintRule{c.rule},
				Offers: []constraintv1.ConstraintOffer{offering("acme", `{"a":1}`)}})
			if len(two.Faults) > 0 || len(one.Constraints) != len(two.Constraints) ||
				len(one.OnWrites) != len(two.OnWrites) {
				t.Fatalf("%+v\n%+v", one, two)
			}
			if len(two.Properties) != 1 || two.Properties[0].Type != "acme" ||
				string(two.Properties[0].Raw) != `{"a":1}` {
				t.Errorf("properties %+v", two.Properties)
			}
			before := NewSet([]*Definition{one}, kubeOne).Judge(etcd(), shop, nil)
			after := NewSet([]*Definition{two}, kubeOne).Judge(etcd(), shop, nil)
			if len(before) != len(after) {
				t.Fatalf("%+v\n%+v", before, after)
			}
			for i := range before {
				if c := after[i].Constraint; c.Path != "spec.rules[0]" || c.Action != before[i].Constraint.Action {
					t.Errorf("%+v", c)
				}
				before[i].Definition, after[i].Definition = nil, nil
				before[i].Constraint, after[i].Constraint = nil, nil
				if before[i] != after[i] {
					t.Errorf("%+v\n%+v", before[i], after[i])
				}
			}
		})
	}
	both := Define(Meta{Name: "both"}, &constraintv1.ConstraintSpec{Constraints: seed("true", "true"),
		Rules: []constraintv1.ConstraintRule{{Expression: "true"}}})
	if last := both.Constraints[2]; last.Index != 2 || last.Path != "spec.rules[0]" ||
		both.Constraints[1].Path != "spec.constraints[1]" {
		t.Errorf("%+v", both.Constraints)
	}
}

// TestRuleFaults: rules and offers that cannot be used hold every bundle, with the path of the field.
func TestRuleFaults(t *testing.T) {
	rule := func(r constraintv1.ConstraintRule) constraintv1.ConstraintSpec {
		return constraintv1.ConstraintSpec{Rules: []constraintv1.ConstraintRule{{Expression: "true"}, r}}
	}
	offersToo := func(o constraintv1.ConstraintOffer) constraintv1.ConstraintSpec {
		return constraintv1.ConstraintSpec{Offers: []constraintv1.ConstraintOffer{offering("a", "1"), o}}
	}
	many := make([]constraintv1.ConstraintRule, 12)
	for i, r := range manyRules() {
		many[i].Expression = r
	}
	for _, c := range []struct {
		name string
		spec constraintv1.ConstraintSpec
		kind FaultKind
		path string
		says string
	}{
		{"no expression", rule(constraintv1.ConstraintRule{}), Syntax, "spec.rules[1].expression", "is empty"},
		{"an action that is none", rule(constraintv1.ConstraintRule{Expression: "true", Action: "Deny"}), Syntax,
			"spec.rules[1].action", "require and warn"},
		{"a target that is none", rule(constraintv1.ConstraintRule{Expression: "true", Target: "pod"}), Syntax,
			"spec.rules[1].target", "operatorGroup are accepted"},
		{"does not compile", rule(constraintv1.ConstraintRule{Expression: "1"}), Rule, "spec.rules[1].expression",
			"must give bool"},
		{"a message that does not compile",
			rule(constraintv1.ConstraintRule{Expression: "true", MessageExpression: "1"}), Rule,
			"spec.rules[1].messageExpression", "must give string"},
		{"too much CEL", constraintv1.ConstraintSpec{Rules: many}, Rule, "spec.rules[11].expression",
			"use several Constraint objects"},
		{"too much CEL in both forms", constraintv1.ConstraintSpec{Constraints: seed(manyRules()[:6]...),
			Rules: many[:6]}, Rule,
			"spec.rules[5].expression", "use several Constraint objects"},
		{"too many in both forms", constraintv1.ConstraintSpec{Constraints: seed("true"),
			Rules: make([]constraintv1.ConstraintRule, maxConstraints)},
			Size, "spec.rules", "the limit is 256 together"},
		{"too many offers", constraintv1.ConstraintSpec{Properties: `[{"type":"a","value":1}]`,
			Offers: make([]constraintv1.ConstraintOffer, maxProperties)},
			Size, "spec.offers", "the limit is 1024 together"},
		{"too large", offersToo(offering("a", `"`+strings.Repeat("x", maxObjectBytes)+`"`)), Size, "spec",
			"the limit is 1048576"},
		{"no type", offersToo(offering("", "1")), Syntax, "spec.offers[1].type", "is empty"},
		{"no value", offersToo(offering("a", "")), Syntax, "spec.offers[1].value", "any value but null"},
		{"deep", offersToo(offering("a", strings.Repeat("[", 200)+strings.Repeat("]", 200))), Size,
			"spec.offers[1].value", "deeper than 100 levels"},
		{"out of shape", offersToo(offering("olm.label", `"secured"`)), PropertyShape, "spec.offers[1].value",
			"is a string"},
		{"out of shape below", offersToo(offering("olm.package", `{"packageName":"etcd","version":"1"}`)),
			PropertyShape, "spec.offers[1].value.version", "semantic version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Define(Meta{Name: "bad"}, &c.spec)
			if len(d.Faults) != 1 || d.Faults[0].Kind != c.kind || d.Faults[0].Path != c.path ||
				!strings.Contains(d.Faults[0].Message, c.says) {
				t.Fatalf("got %+v, want kind %d at %s: …%s…", d.Faults, c.kind, c.path, c.says)
			}
			if found := NewSet([]*Definition{d}, kubeOne).Judge(etcd(), shop, nil); len(found) != 1 ||
				found[0].Outcome != Failed {
				t.Errorf("a faulty definition must hold every bundle, found %+v", found)
			}
		})
	}
}
