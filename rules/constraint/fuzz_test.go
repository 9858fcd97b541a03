package constraint

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
)

// FuzzDefine: parsing is total, every refusal has a useful message, and what is accepted can be judged within the
// limits.
func FuzzDefine(f *testing.F) {
	f.Add(seed(`properties.exists(p, p.type == "certified")`), `[{"type":"olm.k8s","value":{"version":"1.21"}}]`)
	f.Add(`[{"type":"olm.constraint","value":{"rule":"true","messageExpression":"csv","action":{"id":"warn"}}}]`,
		`[{"type":"olm.gvk","value":{"group":"a","version":"v1","kind":"B"}}]`)
	f.Add(olmConstraint(`{"all":{"constraints":[{"gvk":{"group":"a","version":"v1","kind":"B"}},{"not":{"constraints":[{"package":{"packageName":"a","versionRange":">=1.0.0"}}]}},{"any":{"constraints":[]}}]}}`), `[{"type":"x","value":null}]`)
	f.Add(`[{"type":"olm.constraint","type":"x","value":{}}]`, `[{"type":"olm.maxOpenShiftVersion","value":"4.19"}]`)
	f.Add("[\n\t{ \"type\" :\"olm.constraint\" , \"value\" : {\"cel\":{\"rule\":\"\\u0074rue\"}} } ]\n", "")
	f.Add(strings.Repeat("[", 200), strings.Repeat(`{"a":`, 200))
	for _, rule := range hostileRules {
		f.Add(seed(rule), "")
	}
	for _, rule := range largeRules {
		f.Add(seed(rule), "")
	}
	large, small := crowdOf(100), etcd("n", "1.5", "deep", strings.Repeat("[", 50)+strings.Repeat("]", 50))
	unknown := &Bundle{Bundle: olm.Bundle{Package: "etcd"}, Unknown: Properties | Version}
	f.Fuzz(func(t *testing.T, constraintsJSON, propertiesJSON string) {
		d := Define(Meta{Name: "fuzz"}, &constraintv1.ConstraintSpec{Constraints: constraintsJSON,
			Properties: propertiesJSON})
		for _, fault := range d.Faults {
			if !strings.HasPrefix(fault.Path, "spec") || fault.Message == "" ||
				strings.ContainsRune(fault.Message, '\n') || fault.Kind < Syntax || fault.Kind > Ineffective {
				t.Errorf("%+v", fault)
			}
		}
		s := NewSet([]*Definition{d}, kubeOne)
		for _, b := range []*Bundle{large, small, unknown} {
			budget := NewBudget(nil)
			for _, found := range s.Judge(b, shop, budget) {
				if found.Outcome == Satisfied || found.Outcome != Violated && found.Why == "" ||
					len(found.Message) > messageShown+4 || len(found.Rule) > ruleShown+4 {
					t.Errorf("%+v", found)
				}
			}
			if spent := budget.Spent(); spent > BundleCostLimit+RuleCostLimit+largestCall {
				t.Errorf("spent %d", spent)
			}
		}
		s.Applies(shop)
		if d.fault() != nil && (s.Empty() || !s.Applies(shop)) {
			t.Error("a faulty definition must bind")
		}
	})
}

// FuzzOwn: a bundle's own constraints are untrusted input from any catalog.
func FuzzOwn(f *testing.F) {
	f.Add(`{"cel":{"rule":"properties.exists(p, p.type == 'gpu')"}}`)
	f.Add(`{"all":{"constraints":[{"not":{"constraints":[{"gvk":{"group":"a","version":"v1","kind":"B"}}]}},{}]}}`)
	f.Add(`{"cel":{"rule":"\ud800"},"CEL":null}`)
	f.Add(`{"package":{"packageName":"a","versionRange":"1 - 2 || x"}}`)
	s := NewSet(nil, kubeOne)
	f.Fuzz(func(t *testing.T, value string) {
		properties, err := olm.ParseProperties(`{"properties":[{"type":"olm.constraint","value":` + value + `}]}`)
		if err != nil {
			return
		}
		Prepare(properties)
		before := Compilations()
		for _, found := range s.Own(&Bundle{Bundle: olm.Bundle{Properties: properties}}, []*Bundle{etcd(), {Unknown: OfBundle}}, shop,
			nil) {
			if found.Outcome == Satisfied || found.Why == whyNotCompiled || found.Outcome == Failed && found.Why == "" {
				t.Errorf("%+v", found)
			}
		}
		if Compilations() != before {
			t.Error("compiled while judging")
		}
	})
}
