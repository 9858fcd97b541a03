package v1_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// policy is one with a spec, which has no templates unless they are given.
func policy(spec map[string]any) map[string]any {
	if _, ok := spec["policy-templates"]; !ok {
		spec["policy-templates"] = []any{}
	}
	return map[string]any{
		"apiVersion": policyv1.GroupVersion.String(),
		"kind":       policyv1.Kind,
		"metadata":   map[string]any{"name": "app", "namespace": "shop"},
		"spec":       spec,
	}
}

// dependency is one with fields besides kind, name and compliance; a nil value removes a field.
func dependency(kind string, fields map[string]any) map[string]any {
	d := map[string]any{"apiVersion": policyv1.GroupVersion.String(), "kind": kind, "name": "db",
		"compliance": "Compliant"}
	for key, value := range fields {
		if value == nil {
			delete(d, key)
		} else {
			d[key] = value
		}
	}
	return d
}

// onTop and extra are Policies with a dependency, for all templates or for one.
func onTop(d map[string]any) map[string]any {
	return policy(map[string]any{"dependencies": []any{d}})
}

func extra(d map[string]any) map[string]any {
	return templates(map[string]any{"objectDefinition": map[string]any{}, "extraDependencies": []any{d}})
}

func templates(list ...any) map[string]any { return policy(map[string]any{"policy-templates": list}) }

func many(n int, value any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = runtime.DeepCopyJSONValue(value)
	}
	return list
}

// TestNamespaceOfDependency has every kind of the public API, with and without a namespace, in both places.
func TestNamespaceOfDependency(t *testing.T) {
	c := loadCRD(t)
	for kind, allowed := range map[string]bool{
		"Policy": true, "PolicySet": true, "OperatorPolicy": true, "Deployment": true,
		"ConfigurationPolicy": false, "CertificatePolicy": false,
	} {
		for place, made := range map[string]func(map[string]any) map[string]any{"spec.dependencies[0]": onTop,
			"spec.policy-templates[0].extraDependencies[0]": extra} {
			for _, namespace := range []any{nil, "", "elsewhere"} {
				_, errs := c.Admit(made(dependency(kind, map[string]any{"namespace": namespace})))
				if namespace != "elsewhere" || allowed {
					if len(errs) > 0 {
						t.Errorf("%s of a %s with namespace %v: %v", place, kind, namespace, errs)
					}
					continue
				}
				if len(errs) != 1 || errs[0].Field != place+".namespace" ||
					!strings.Contains(errs[0].Detail, "leave it out") {
					t.Errorf("%s of a %s with namespace %v should be refused at its namespace, gives %v", place, kind,
						namespace, errs)
				}
			}
		}
	}
}

// TestSchemaAccepts takes what is reported in the status of a Policy, and does not keep it from being stored.
func TestSchemaAccepts(t *testing.T) {
	c := loadCRD(t)
	large := map[string]any{"objectDefinition": map[string]any{"kind": "ConfigurationPolicy",
		"text": strings.Repeat("x", 1<<20)}}
	status := func(status map[string]any) map[string]any {
		obj := policy(map[string]any{})
		obj["status"] = status
		return obj
	}
	for name, obj := range map[string]map[string]any{
		"no templates":          policy(map[string]any{}),
		"a template of nothing": templates(map[string]any{"objectDefinition": map[string]any{}}),
		"a template without a kind": templates(
			map[string]any{"objectDefinition": map[string]any{"metadata": map[string]any{"name": "x"}}}),
		"a template whose kind is a number": templates(
			map[string]any{"objectDefinition": map[string]any{"kind": int64(3), "metadata": "x"}}),
		"a template of 1 MiB": templates(large),
		"as many templates as may be": templates(
			many(500, map[string]any{"objectDefinition": map[string]any{}})...),
		"as many dependencies as may be": policy(
			map[string]any{"dependencies": many(500, dependency("Policy", map[string]any{"namespace": "shop"}))}),
		"no apiVersion": onTop(dependency("Policy", map[string]any{"apiVersion": nil})),
		"a dependency on anything": extra(dependency("Widget",
			map[string]any{"apiVersion": "example.com/v1alpha7"})),
		"the same one twice": policy(map[string]any{"dependencies": many(2, dependency("Policy", nil))}),
		"a state of its own": status(
			map[string]any{"details": []any{map[string]any{"compliant": "UnknownCompliancy",
				"templateMeta": map[string]any{"name": "x", "creationTimestamp": nil}}}}),
		"a status of ours": status(map[string]any{
			"observedGeneration": int64(3), "compliant": "Pending", "pendingDependencies": int64(21),
			"conditions": []any{map[string]any{"type": "Compliant", "status": "False", "reason": "Pending",
				"message":            "",
				"lastTransitionTime": "2026-11-21T14:42:11Z"}},
			"dependencies": many(20, map[string]any{"apiVersion": "v1", "kind": "Policy", "namespace": "shop",
				"name": "db", "compliance": "Compliant",
				"state": "Odd", "reason": "WrongState", "message": "it is Odd", "templates": many(5, "x")}),
		}),
	} {
		t.Run(name, func(t *testing.T) {
			want := runtime.DeepCopyJSON(obj)
			want["spec"].(map[string]any)["disabled"] = false
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
	noTemplates := policy(map[string]any{})
	delete(noTemplates["spec"].(map[string]any), "policy-templates")
	tests := []struct {
		name string
		obj  map[string]any
		at   string
	}{
		{"no templates at all", noTemplates, "spec.policy-templates"},
		{"a template without an object", templates(map[string]any{"ignorePending": true}),
			"spec.policy-templates[0].objectDefinition"},
		{"a template that is text", templates(map[string]any{"objectDefinition": "kind: Policy"}),
			"spec.policy-templates[0].objectDefinition"},
		{"a template that is null", templates(nil), "spec.policy-templates[0]"},
		{"ignorePending is text",
			templates(map[string]any{"objectDefinition": map[string]any{}, "ignorePending": "yes"}),
			"spec.policy-templates[0].ignorePending"},
		{"disabled is text", policy(map[string]any{"disabled": "no"}), "spec.disabled"},
		{"another action", policy(map[string]any{"remediationAction": "ENFORCE"}), "spec.remediationAction"},
		{"an action for templates", policy(map[string]any{"remediationAction": "InformOnly"}), "spec.remediationAction"},
		{"no kind", onTop(dependency("", map[string]any{"kind": nil})), "spec.dependencies[0].kind"},
		{"an empty kind", onTop(dependency("", nil)), "spec.dependencies[0].kind"},
		{"no name", onTop(dependency("Policy", map[string]any{"name": nil})), "spec.dependencies[0].name"},
		{"an empty name", onTop(dependency("Policy", map[string]any{"name": ""})), "spec.dependencies[0].name"},
		{"no state", extra(dependency("Policy", map[string]any{"compliance": nil})),
			"spec.policy-templates[0].extraDependencies[0].compliance"},
		{"a state in another case", extra(dependency("Policy", map[string]any{"compliance": "compliant"})),
			"spec.policy-templates[0].extraDependencies[0].compliance"},
		{"a state that is none", onTop(dependency("Policy", map[string]any{"compliance": "Terminating"})),
			"spec.dependencies[0].compliance"},
		{"too many templates", templates(many(501, map[string]any{"objectDefinition": map[string]any{}})...),
			"spec.policy-templates"},
		{"too many dependencies", policy(map[string]any{"dependencies": many(501, dependency("Policy", nil))}),
			"spec.dependencies"},
		{"too many extra dependencies",
			templates(map[string]any{"objectDefinition": map[string]any{},
				"extraDependencies": many(501, dependency("Policy", nil))}),
			"spec.policy-templates[0].extraDependencies"},
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

// TestUnknownFields are stored, since the definition of Open Cluster Management may grow. The gate warns of them.
func TestUnknownFields(t *testing.T) {
	c := loadCRD(t)
	for want, obj := range map[string]map[string]any{
		"spec.dependences":              policy(map[string]any{"dependences": []any{}}),
		"spec.dependencies[0].apiGroup": onTop(dependency("Policy", map[string]any{"apiGroup": "x"})),
		"spec.dependencies[0].message":  onTop(dependency("Policy", map[string]any{"message": "installed"})),
		"spec.policy-templates[0].spec": templates(map[string]any{"objectDefinition": map[string]any{},
			"spec": map[string]any{}}),
		"spec.policy-templates[0].ignore": templates(
			map[string]any{"objectDefinition": map[string]any{"deep": []any{map[string]any{"er": nil}}},
				"ignore": true}),
	} {
		if pruned, errs := c.Admit(obj); len(pruned) > 0 || len(errs) > 0 {
			t.Errorf("%s: pruned %v, refused %v", want, pruned, errs)
		}
	}
}
