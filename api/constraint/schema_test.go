package constraint_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
)

// mebibyte is the limit of each string in characters, which are never more than bytes.
const mebibyte = 1 << 20

// minimal is the least Constraint that the schema accepts.
func minimal() map[string]any {
	return map[string]any{
		"apiVersion": constraintv1.GroupVersion.String(),
		"kind":       constraintv1.Kind,
		"metadata":   map[string]any{"name": "cluster-constraints"},
		"spec":       map[string]any{},
	}
}

// with is the least Constraint with a value at a path. A nil value removes the field.
func with(value any, path ...string) map[string]any {
	obj := minimal()
	inner := obj
	for _, key := range path[:len(path)-1] {
		next, ok := inner[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[key] = next
		}
		inner = next
	}
	if last := path[len(path)-1]; value == nil {
		delete(inner, last)
	} else {
		inner[last] = value
	}
	return obj
}

// rule is one with every field.
func rule() map[string]any {
	return map[string]any{"target": "bundle", "expression": "false", "message": "no", "messageExpression": "'no'",
		"action": "warn"}
}

func ruleWith(key string, value any) map[string]any {
	return with([]any{map[string]any{"expression": "true", key: value}}, "spec", "rules")
}

func condition() map[string]any {
	return map[string]any{"type": constraintv1.ConditionReady, "status": "True", "reason": "Compiled", "message": "",
		"lastTransitionTime": "2026-11-21T14:42:11Z"}
}

func count(index int64) map[string]any {
	return map[string]any{"index": index, "message": "certified only", "satisfied": int64(3), "violating": int64(1),
		"unknown": int64(0)}
}

// deletion is one with every field.
func deletion() map[string]any {
	return map[string]any{"action": "Confirm", "packages": []any{"etcd"},
		"catalogs": []any{map[string]any{"source": "hub", "sourceNamespace": "olm"}}}
}

func withField(obj map[string]any) map[string]any {
	obj["field"] = "spec.rules[0]"
	return obj
}

func without(obj map[string]any, key string) map[string]any {
	delete(obj, key)
	return obj
}

// status is one with every field.
func status() map[string]any {
	return map[string]any{
		"observedGeneration": int64(3), "evaluatedGeneration": int64(2), "conditions": []any{condition()},
		"constraints": []any{count(0), count(1), withField(count(2))}, "violating": int64(2),
		"virtualOperators": int64(4),
		"compliant":        "NonCompliant",
	}
}

// TestSchemaAccepts takes what the schema has to leave to the webhook, which knows what is wrong with it and says so.
func TestSchemaAccepts(t *testing.T) {
	c := loadCRD(t)
	for name, obj := range map[string]map[string]any{
		"nothing":               minimal(),
		"empty text":            with("", "spec", "constraints"),
		"no JSON":               with("[{", "spec", "constraints"),
		"as long as may be":     with(strings.Repeat("x", mebibyte), "spec", "constraints"),
		"as long in any tongue": with(strings.Repeat("é", mebibyte), "spec", "properties"),
		"a rule":                with([]any{rule()}, "spec", "rules"),
		"offers of any shape": with([]any{
			map[string]any{"type": "a", "value": true}, map[string]any{"type": "b", "value": []any{int64(1), "x"}},
			map[string]any{"type": "c", "value": map[string]any{"deep": map[string]any{"x": 1.5}}},
		}, "spec", "offers"),
		"deletions":      with(deletion(), "spec", "deletion"),
		"a whole status": with(status(), "status"),
		"a first status": with(map[string]any{"violating": int64(0), "virtualOperators": int64(0)}, "status"),
	} {
		t.Run(name, func(t *testing.T) {
			want := runtime.DeepCopyJSON(obj)
			if pruned, errs := c.Admit(obj); len(pruned) > 0 || len(errs) > 0 {
				t.Errorf("pruned %v, refused %v", pruned, errs)
			}
			if !reflect.DeepEqual(obj, want) {
				t.Error("it is not stored as it was written")
			}
		})
	}
}

func TestSchemaRefuses(t *testing.T) {
	tests := []struct {
		name string
		obj  map[string]any
		at   string
	}{
		{"no spec", with(nil, "spec"), "spec"},
		{"spec is text", with("x", "spec"), "spec"},
		{"constraints are a list", with([]any{map[string]any{}}, "spec", "constraints"), "spec.constraints"},
		{"properties are an object", with(map[string]any{}, "spec", "properties"), "spec.properties"},
		{"constraints are a number", with(int64(1), "spec", "constraints"), "spec.constraints"},
		{"constraints are too long", with(strings.Repeat("x", mebibyte+1), "spec", "constraints"), "spec.constraints"},
		{"properties are too long", with(strings.Repeat("x", mebibyte+1), "spec", "properties"), "spec.properties"},
		{"a rule that is text", with([]any{"true"}, "spec", "rules"), "spec.rules[0]"},
		{"a rule without an expression", with([]any{map[string]any{"rule": "true"}}, "spec", "rules"),
			"spec.rules[0].expression"},
		{"an empty expression", ruleWith("expression", ""), "spec.rules[0].expression"},
		{"an expression that is too long", ruleWith("expression", strings.Repeat("x", 10_001)), "spec.rules[0].expression"},
		{"a message that is too long", ruleWith("message", strings.Repeat("x", 5_121)), "spec.rules[0].message"},
		{"an action that is none", ruleWith("action", "deny"), "spec.rules[0].action"},
		{"a target that is none", ruleWith("target", "pod"), "spec.rules[0].target"},
		{"an offer without a value", with([]any{map[string]any{"type": "a"}}, "spec", "offers"), "spec.offers[0].value"},
		{"an offer without a type", with([]any{map[string]any{"value": "a"}}, "spec", "offers"), "spec.offers[0].type"},
		{"a deletion without an action", with(without(deletion(), "action"), "spec", "deletion"), "spec.deletion.action"},
		{"a deletion that is an action alone", with("Deny", "spec", "deletion"), "spec.deletion"},
		{"an action on deletions that is none", with(map[string]any{"action": "deny"}, "spec", "deletion"),
			"spec.deletion.action"},
		{"two conditions of one type", with([]any{condition(), condition()}, "status", "conditions"), "status.conditions[1]"},
		{"two counts of one constraint", with([]any{count(1), count(1)}, "status", "constraints"), "status.constraints[1]"},
		{"a count before the first", with([]any{count(-1)}, "status", "constraints"), "status.constraints[0].index"},
		{"an outcome that is none", with("Terminating", "status", "compliant"), "status.compliant"},
		{"a count of nothing", with([]any{without(count(0), "unknown")}, "status", "constraints"),
			"status.constraints[0].unknown"},
	}
	c := loadCRD(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, errs := c.Admit(test.obj)
			if len(errs) != 1 || errs[0].Field != test.at {
				t.Errorf("should give one error at %s, gives %v", test.at, errs)
			}
		})
	}
}

// TestUnknownFields wants what is misspelt in the spec to reach the webhook, which refuses it by its path: without it,
// a Constraint with "constraint" would be a restriction that does not exist.
func TestUnknownFields(t *testing.T) {
	c := loadCRD(t)
	for _, name := range []string{"constraint", "Constraints", "property", "action"} {
		if pruned, errs := c.Admit(with(map[string]any{"deep": []any{"x"}}, "spec", name)); len(pruned) > 0 ||
			len(errs) > 0 {
			t.Errorf("spec.%s: pruned %v, refused %v", name, pruned, errs)
		}
	}
	for _, list := range []map[string]any{ruleWith("acton", "warn"),
		with(map[string]any{"action": "Deny", "package": "etcd"}, "spec", "deletion"),
		with([]any{map[string]any{"type": "a", "value": "b", "x": "y"}}, "spec", "offers")} {
		if pruned, errs := c.Admit(list); len(pruned) > 0 || len(errs) > 0 {
			t.Errorf("%v: pruned %v, refused %v", list["spec"], pruned, errs)
		}
	}
	for _, path := range [][]string{{"extra"}, {"status", "extra"}} {
		if pruned, _ := c.Admit(with("x", path...)); !reflect.DeepEqual(pruned, []string{strings.Join(path, ".")}) {
			t.Errorf("%v: pruned %v", path, pruned)
		}
	}
}

// TestSpecThroughTypes loses nothing of the lists in either version.
func TestSpecThroughTypes(t *testing.T) {
	for version, constraint := range map[string]runtime.Object{
		constraintv1.GroupVersion.String(): &constraintv1.Constraint{},
		constraintv2.GroupVersion.String(): &constraintv2.Constraint{},
	} {
		obj := with([]any{rule()}, "spec", "rules")
		obj["spec"].(map[string]any)["offers"] = []any{map[string]any{"type": "a",
			"value": map[string]any{"b": []any{int64(1), "x", false}}}}
		obj["spec"].(map[string]any)["deletion"] = deletion()
		obj["apiVersion"] = version
		throughTypes(t, obj, constraint)
	}
}

// TestStatusThroughTypes loses nothing, zeros included: that nothing violates a constraint has to be said.
func TestStatusThroughTypes(t *testing.T) {
	for _, status := range []map[string]any{status(),
		{"observedGeneration": int64(1), "violating": int64(0), "virtualOperators": int64(0)}} {
		throughTypes(t, with(status, "status"), &constraintv1.Constraint{})
		two := with(status, "status")
		two["apiVersion"] = constraintv2.GroupVersion.String()
		throughTypes(t, two, &constraintv2.Constraint{})
	}
}
