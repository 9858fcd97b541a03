package constraint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/constraints"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
)

// TestOLMVectors: every form of OLM's documented syntax, and how it is read. OLM's resolver first parses and then
// converts (convertConstraints in operator-lifecycle-manager pkg/controller/registry/resolver/resolver.go, which
// refuses {}); parse is the result of its parser, own this package's result for a bundle's own constraint, cluster its
// result for a cluster constraint. Where cluster is stricter than OLM the reason is stated: the author gets the error
// on write and can fix it.
func TestOLMVectors(t *testing.T) {
	const (
		pkg = `{"package":{"packageName":"foo","versionRange":">=1.0.0"}}`
		gvk = `{"gvk":{"group":"example.com","version":"v1","kind":"Foo"}}`
		cel = `{"cel":{"rule":"properties.exists(p, p.type == 'certified')"}}`
	)
	nested := `{"failureMessage":"blah","all":{"constraints":[` + pkg + `,` + gvk +
		`,{"failureMessage":"m","all":{"constraints":[` + pkg + `]}},{"any":{"constraints":[` + gvk + `,` + cel +
		`]}},{"not":{"constraints":[` + gvk + `]}}]}}`
	for _, v := range []struct {
		name, value         string
		parse, own, cluster bool
		stricter            string
	}{
		{name: "package", value: pkg, parse: true, own: true, cluster: true},
		{name: "package with a message",
			value: `{"failureMessage":"m","package":{"packageName":"foo","versionRange":">=1.0.0 <2.0.0 || 3.x"}}`,
			parse: true, own: true, cluster: true},
		{name: "gvk", value: gvk, parse: true, own: true, cluster: true},
		{name: "gvk of the core group", value: `{"gvk":{"group":"","version":"v1","kind":"Pod"}}`, parse: true,
			own: true, cluster: true},
		{name: "cel", value: cel, parse: true, own: true, cluster: true},
		{name: "cel with semver_compare",
			value: `{"cel":{"rule":"properties.exists(p, p.type == 'olm.package' && semver_compare(p.value.version, '1.0.0') >= 0)"}}`, parse: true, own: true, cluster: true},
		{name: "all", value: `{"all":{"constraints":[` + pkg + `]}}`, parse: true, own: true, cluster: true},
		{name: "any", value: `{"any":{"constraints":[` + pkg + `,` + gvk + `]}}`, parse: true, own: true,
			cluster: true},
		{name: "not", value: `{"not":{"constraints":[` + gvk + `]}}`, parse: true, own: true, cluster: true},
		{name: "nested", value: nested, parse: true, own: true, cluster: true},
		{name: "empty all", value: `{"all":{"constraints":[]}}`, parse: true, own: true, cluster: true},
		{name: "empty any", value: `{"any":{"constraints":[]}}`, parse: true, own: true, cluster: true},
		{name: "empty not", value: `{"not":{"constraints":[]}}`, parse: true, own: true, cluster: true},
		{name: "all without a list", value: `{"all":{}}`, parse: true, own: true, cluster: true},
		{name: "null list", value: `{"all":{"constraints":null}}`, parse: true, own: true, cluster: true},
		{name: "several kinds", value: `{"gvk":{"group":"a","version":"v1","kind":"B"},"cel":{"rule":"true"}}`,
			parse: true, own: true, cluster: true},
		{name: "null kinds", value: `{"gvk":null,"cel":{"rule":"true"}}`, parse: true, own: true, cluster: true},
		{name: "empty", value: `{}`, parse: true},
		{name: "only a message", value: `{"failureMessage":"m"}`, parse: true},
		{name: "nested empty", value: `{"all":{"constraints":[{}]}}`, parse: true},
		{name: "bad range", value: `{"package":{"packageName":"foo","versionRange":"one"}}`, parse: true},
		{name: "bad rule", value: `{"cel":{"rule":"1"}}`, parse: true},
		{name: "undeclared variable", value: `{"cel":{"rule":"nothing == 1"}}`, parse: true},
		{name: "unknown key", value: `{"failureMessage":"something","arbitrary":{"key":"value"}}`},
		{name: "unknown nested key", value: `{"all":{"constraints":[{"when":1}]}}`},
		{name: "wrong type", value: `{"package":"foo"}`},
		{name: "a list", value: `[]`},
		{name: "the proposal's form", value: `{"evaluator":{"id":"cel"},"rule":"true"}`, cluster: true},
		{name: "too large for both", value: `{"failureMessage":"` + strings.Repeat("x", 2<<16) +
			`","cel":{"rule":"true"}}`},

		{name: "another case", value: `{"CEL":{"rule":"true"}}`, parse: true, own: true,
			stricter: "OLM's parser does not tell cases apart, readers do"},
		{name: "key twice", value: `{"cel":{"rule":"true"},"cel":{"rule":"false"}}`, parse: true, own: true,
			stricter: "the last one counts, and the first one is read"},
		{name: "a rule twice", value: `{"cel":{"rule":"true","rule":"false"}}`, parse: true, own: true,
			stricter: "the last one counts, and the first one is read"},
		{name: "no package name", value: `{"package":{"versionRange":">=1.0.0"}}`, parse: true, own: true,
			stricter: "matches nothing"},
		{name: "gvk without kind", value: `{"gvk":{"group":"a","version":"v1"}}`, parse: true, own: true,
			stricter: "matches nothing"},
		{name: "more than 64 KiB", value: `{"failureMessage":"` + strings.Repeat("x", 1<<16) +
			`","cel":{"rule":"true"}}`, parse: true, own: true,
			stricter: "OLM's comment says 64 KiB, its number is twice that"},
		{name: "null", value: `null`, parse: true, stricter: "is {} to OLM's parser, which its resolver refuses"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := constraints.Parse(json.RawMessage(v.value))
			if (err == nil) != v.parse {
				t.Errorf("OLM's parser: %v", err)
			}
			properties := props(olm.TypeConstraint, v.value)
			Prepare(properties)
			if own := readOwn(properties[0].Raw, lookupRule); (own.err == nil) != v.own {
				t.Errorf("of a bundle: %v", own.err)
			}
			d := Define(Meta{}, &constraintv1.ConstraintSpec{Constraints: olmConstraint(v.value)})
			if (d.fault() == nil) != v.cluster {
				t.Errorf("of the cluster: %+v", d.Faults)
			}
			if (v.own && !v.cluster) != (v.stricter != "" && v.own) {
				t.Error("a difference without a reason")
			}
		})
	}
}
