package constraint

import (
	"fmt"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

// TestDefineSeed: the example of the proposal works unchanged (R-CO-3).
func TestDefineSeed(t *testing.T) {
	d := sound(t, "cluster-constraints",
		`[{"type":"olm.constraint","value":{"evaluator":{"id":"cel"},"rule":"properties.exists(p, p.type == \"certified\")","message":"require to have certified property","action":{"id":"require"}}}]`,
		`[{"type":"olm.k8s","value":{"version":"1.21"}},{"type":"olm.label","value":{"label":"secured"}}]`)
	if len(d.Faults) != 0 || len(d.Constraints) != 1 || len(d.Properties) != 2 {
		t.Fatalf("%+v", d)
	}
	c := d.Constraints[0]
	if c.Action != Require || c.Message != "require to have certified property" || c.Index != 0 {
		t.Errorf("%+v", c)
	}
	if p := d.Properties[0]; p.Type != "olm.k8s" || string(p.Raw) != `{"version":"1.21"}` {
		t.Errorf("%s %s", p.Type, p.Raw)
	}
}

// TestDefineFaults: invalid input, each with the kind and path of its first fault and a part of the message.
func TestDefineFaults(t *testing.T) {
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	deeper := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	value := func(v string) string { return `[{"type":"olm.constraint","value":` + v + `}]` }
	property := func(kind, v string) string { return fmt.Sprintf(`[{"type":%q,"value":%s}]`, kind, v) }
	for _, c := range []struct {
		name, constraints, properties string
		kind                          FaultKind
		path, says                    string
	}{
		{name: "not JSON", constraints: "[{\n  \"type\": olm}]", kind: Syntax, path: "spec.constraints",
			says: "line 2, column 11"},
		{name: "cut off", constraints: `[{"type":"olm.constraint"`, kind: Syntax, path: "spec.constraints",
			says: "unexpected end"},
		{name: "two documents", constraints: `[] []`, kind: Syntax, path: "spec.constraints", says: "line 1, column 4"},
		{name: "an object", constraints: `{}`, kind: Syntax, path: "spec.constraints", says: "is an object"},
		{name: "null", constraints: `null`, kind: Syntax, path: "spec.constraints", says: "is null"},
		{name: "null element", constraints: `[null]`, kind: Syntax, path: "spec.constraints[0]", says: "is null"},
		{name: "null value", constraints: value(`null`), kind: Syntax, path: "spec.constraints[0].value",
			says: "is null"},
		{name: "no value", constraints: `[{"type":"olm.constraint"}]`, kind: Syntax, path: "spec.constraints[0].value",
			says: "missing"},
		{name: "no type", constraints: `[{"value":{"rule":"true"}}]`, kind: Syntax, path: "spec.constraints[0].type",
			says: "missing"},
		{name: "type is a number", constraints: `[{"type":1,"value":{}}]`, kind: Syntax,
			path: "spec.constraints[0].type", says: "a number"},
		{name: "other type", constraints: `[{"type":"olm.gvk","value":{}}]`, kind: Syntax,
			path: "spec.constraints[0].type", says: "olm.constraint is accepted"},
		{name: "unknown key", constraints: `[{"type":"olm.constraint","value":{"rule":"true"},"when":1}]`, kind: Syntax,
			path: "spec.constraints[0].when", says: "known are type, value"},
		{name: "unknown key in the proposal's form", constraints: value(`{"rule":"true","Message":"x"}`), kind: Syntax,
			path: "spec.constraints[0].value.Message", says: "is not known"},
		{name: "key twice", constraints: value(`{"rule":"true","rule":"false"}`), kind: Syntax,
			path: "spec.constraints[0].value.rule", says: "repeated at line 1, column 50"},
		{name: "key twice, deep", constraints: value(`{"rule":"true","action":{"id":"warn","id":"require"}}`),
			kind: Syntax, path: "spec.constraints[0].value.action.id", says: "is repeated at"},
		{name: "key twice, escaped", constraints: value(`{"rule":"true","r\u0075le":"false"}`), kind: Syntax,
			path: "spec.constraints[0].value.rule", says: "is repeated at"},
		{name: "key twice in a property", properties: property("x", `{"a":[{"b":1,"b":2}]}`), kind: Syntax,
			path: "spec.properties[0].value.a[0].b", says: "is repeated at"},
		{name: "evaluator", constraints: value(`{"evaluator":{"id":"rego"},"rule":"true"}`), kind: Syntax,
			path: "spec.constraints[0].value.evaluator.id", says: "cel is accepted"},
		{name: "evaluator is text", constraints: value(`{"evaluator":"cel","rule":"true"}`), kind: Syntax,
			path: "spec.constraints[0].value.evaluator", says: `{"id": "..."}`},
		{name: "action", constraints: value(`{"rule":"true","action":{"id":"audit"}}`), kind: Syntax,
			path: "spec.constraints[0].value.action.id", says: "require and warn"},
		{name: "rule is a number", constraints: value(`{"rule":1}`), kind: Syntax,
			path: "spec.constraints[0].value.rule", says: "a string is required"},
		{name: "no rule", constraints: value(`{"message":"x"}`), kind: Syntax, path: "spec.constraints[0].value.rule",
			says: "missing"},
		{name: "empty", constraints: value(`{}`), kind: Rule, path: "spec.constraints[0].value", says: "empty"},
		{name: "both forms", constraints: value(`{"cel":{"rule":"true"},"action":{"id":"warn"}}`), kind: Syntax,
			path: "spec.constraints[0].value.action", says: "cannot be combined with cel"},
		{name: "rule does not compile", constraints: value(`{"rule":"propertys.exists(p, true)"}`), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "the variables are properties"},
		{name: "rule is not a bool", constraints: value(`{"rule":"1"}`), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "must give bool"},
		{name: "rule is dynamic", constraints: value(`{"rule":"properties[0].value"}`), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "must give bool"},
		{name: "reserved word", constraints: value(`{"rule":"package == 'etcd'"}`), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "packageName"},
		{name: "field of the cluster", constraints: value(`{"rule":"cluster.vesion == 'x'"}`), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "it has version"},
		{name: "message does not compile", constraints: value(`{"rule":"true","messageExpression":"1"}`), kind: Rule,
			path: "spec.constraints[0].value.messageExpression", says: "must give string"},
		{name: "range", constraints: value(`{"package":{"packageName":"etcd","versionRange":"latest"}}`), kind: Rule,
			path: "spec.constraints[0].value.package.versionRange", says: "is not a version range"},
		{name: "nested rule", constraints: value(
			`{"all":{"constraints":[{"cel":{"rule":"true"}},{"not":{"constraints":[{"cel":{"rule":"1"}}]}}]}}`),
			kind: Rule, path: "spec.constraints[0].value.all.constraints[1].not.constraints[0].cel.rule",
			says: "must give bool"},
		{name: "nested empty", constraints: value(`{"any":{"constraints":[{}]}}`), kind: Rule,
			path: "spec.constraints[0].value.any.constraints[0]", says: "is empty"},
		{name: "one too large", constraints: value(`{"rule":"true","message":"` +
			strings.Repeat("x", maxConstraintBytes) + `"}`), kind: Size, path: "spec.constraints[0]", says: "65536"},
		{name: "rule too long", constraints: seed(strings.Repeat(" ", maxRuleBytes) + "true"), kind: Rule,
			path: "spec.constraints[0].value.rule", says: "the limit is 10000"},
		{name: "too much together", properties: property("x", `"`+strings.Repeat("x", maxObjectBytes)+`"`), kind: Size,
			path: "spec", says: "1048576"},
		{name: "too many", constraints: "[" + strings.Repeat("{},", maxConstraints) + "{}]", kind: Size,
			path: "spec.constraints", says: "the limit is 256"},
		{name: "too much CEL", constraints: seed(manyRules()...), kind: Rule, path: "spec.constraints[11].value.rule",
			says: "use several Constraint objects"},
		{name: "too many properties", properties: "[" + strings.Repeat("{},", maxProperties) + "{}]", kind: Size,
			path: "spec.properties", says: "the limit is 1024"},
		{name: "deep", constraints: deep, kind: Size, path: "spec.constraints", says: "deeper than 100 levels"},
		{name: "deeper", constraints: deeper, kind: Size, path: "spec.constraints", says: "deeper than 100 levels"},
		{name: "deep property", properties: property("x", deep), kind: Size, path: "spec.properties",
			says: "deeper than 100 levels"},
		{name: "not UTF-8", properties: property("x", "\"\xff\""), kind: Syntax, path: "spec.properties", says: "UTF-8"},
		{name: "empty type", properties: property("", "1"), kind: Syntax, path: "spec.properties[0].type", says: "empty"},
		{name: "no property value", properties: `[{"type":"x"}]`, kind: Syntax, path: "spec.properties[0].value",
			says: "any JSON value"},
		{name: "package version", properties: property("olm.package", `{"packageName":"etcd","version":"v1"}`),
			kind: PropertyShape, path: "spec.properties[0].value.version", says: "semantic version"},
		{name: "package is text", properties: property("olm.package", `"etcd"`), kind: PropertyShape,
			path: "spec.properties[0].value", says: "is a string"},
		{name: "package without name", properties: property("olm.package", `{"version":"1.0.0"}`), kind: PropertyShape,
			path: "spec.properties[0].value.packageName", says: "missing"},
		{name: "gvk without kind", properties: property("olm.gvk", `{"group":"a","version":"v1","kind":""}`),
			kind: PropertyShape, path: "spec.properties[0].value.kind", says: "empty"},
		{name: "gvk with more", properties: property("olm.gvk",
			`{"group":"a","version":"v1","kind":"B","plural":"bs"}`), kind: PropertyShape,
			path: "spec.properties[0].value.plural", says: "not known"},
		{name: "label is a number", properties: property("olm.label", `{"label":1}`), kind: PropertyShape,
			path: "spec.properties[0].value.label", says: "a number"},
		{name: "version as a number", properties: property("olm.kubeversion", `{"version":1.21}`), kind: PropertyShape,
			path: "spec.properties[0].value.version", says: "a number"},
		{name: "version is a word", properties: property("olm.k8s", `{"version":"latest"}`), kind: PropertyShape,
			path: "spec.properties[0].value.version", says: "1.36"},
		{name: "version is null", properties: property("olm.k8sversion", `{"version":null}`), kind: PropertyShape,
			path: "spec.properties[0].value.version", says: "null"},
		{name: "OpenShift as a number", properties: property("olm.maxOpenShiftVersion", `4.1`), kind: PropertyShape,
			path: "spec.properties[0].value", says: `"4.19"`},
		{name: "OpenShift with a patch", properties: property("olm.maxOpenShiftVersion", `"4.19.1"`),
			kind: PropertyShape, path: "spec.properties[0].value", says: "MAJOR.MINOR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Define(Meta{Name: "bad"}, &constraintv1.ConstraintSpec{Constraints: c.constraints,
				Properties: c.properties})
			if len(d.Faults) == 0 {
				t.Fatal("no fault")
			}
			f := d.Faults[0]
			if f.Kind != c.kind || f.Path != c.path || !strings.Contains(f.Message, c.says) {
				t.Errorf("got kind %d at %s: %s\nwant kind %d at %s: …%s…", f.Kind, f.Path, f.Message, c.kind, c.path,
					c.says)
			}
			if f.Warning() || len(f.Value) > valueShown+4 {
				t.Errorf("warning %v, value %q", f.Warning(), f.Value)
			}
			found := NewSet([]*Definition{d}, kubeOne).Judge(etcd(), shop, nil)
			if len(found) != 1 || found[0].Outcome != Failed || found[0].Constraint != nil ||
				!strings.Contains(found[0].Why, c.says) {
				t.Errorf("a faulty definition must hold every bundle, found %+v", found)
			}
		})
	}
}

// manyRules exceed the CEL of one object, each rule within its own limit.
func manyRules() []string {
	rules := make([]string, 12)
	for i := range rules {
		rules[i] = fmt.Sprintf("true || %d == %d", i, i) + strings.Repeat(" ", 9_000)
	}
	return rules
}

// TestDefineWarnings: valid input that hardly does what was intended.
func TestDefineWarnings(t *testing.T) {
	for _, c := range []struct{ value, path, says string }{
		{`{"not":{"constraints":[{"gvk":{"group":"a","version":"v1","kind":"B"}}]}}`, "spec.constraints[0].value.not",
			"is used alone"},
		{`{"any":{"constraints":[]}}`, "spec.constraints[0].value.any.constraints", "never satisfied"},
		{`{"all":{}}`, "spec.constraints[0].value.all.constraints", "always satisfied"},
		{`{"cel":{"rule":"true"},"package":{"packageName":"a","versionRange":">=1.0.0"}}`,
			"spec.constraints[0].value.cel", "beside package"},
	} {
		d := sound(t, "warned", olmConstraint(c.value), "")
		if len(d.Faults) != 1 || d.Faults[0].Kind != Ineffective || d.Faults[0].Path != c.path ||
			!strings.Contains(d.Faults[0].Message, c.says) {
			t.Errorf("%s: %+v", c.value, d.Faults)
		}
	}
}

// TestDefineAccepts: any type with any value is a property, however odd.
func TestDefineAccepts(t *testing.T) {
	for _, properties := range []string{
		"", " \n", "[]", `[{"type":"x","value":null}]`, `[{"type":"größe","value":"日本"}]`,
		`[{"type":"x","value":1e400}]`, `[{"value":{"a":[1,"2",{"b":null}]},"type":"x"}]`,
		`[{"type":"olm.maxOpenShiftVersion","value":"4.19"}]`,
		`[{"type":"olm.k8sversion","value":{"version":"1.20.1"}}]`,
		`[{"type":"olm.kubeversion","value":{"version":"v1.36"}}]`,
	} {
		if d := Define(Meta{}, &constraintv1.ConstraintSpec{Properties: properties}); len(d.Faults) != 0 {
			t.Errorf("%s: %+v", properties, d.Faults)
		}
	}
}
