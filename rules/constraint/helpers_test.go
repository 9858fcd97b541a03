package constraint

import (
	"encoding/json"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// seed returns spec.constraints with rules in the proposal's syntax (R-CO-4).
func seed(rules ...string) string {
	list := make([]any, 0, len(rules))
	for _, rule := range rules {
		list = append(list, map[string]any{"type": olm.TypeConstraint,
			"value": map[string]any{"evaluator": map[string]any{"id": "cel"}, "rule": rule, "message": "says no"}})
	}
	return jsonText(list)
}

// olmConstraint returns spec.constraints with one constraint in OLM's syntax.
func olmConstraint(value string) string { return `[{"type":"olm.constraint","value":` + value + `}]` }

func jsonText(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// props returns properties from pairs of type and JSON.
func props(pairs ...string) []olm.Property {
	var properties []olm.Property
	for i := 0; i < len(pairs); i += 2 {
		properties = append(properties, olm.Property{Type: pairs[i], Raw: json.RawMessage(pairs[i+1])})
	}
	return properties
}

func etcd(more ...string) *Bundle {
	return &Bundle{Bundle: olm.Bundle{Name: "etcdoperator.v0.9.4", Package: "etcd", Version: "0.9.4", Channel: "stable",
		Catalog: olm.Catalog{Namespace: "olm", Name: "curated"}, Properties: props(append([]string{
			"olm.package", `{"packageName":"etcd","version":"0.9.4"}`,
			"olm.gvk", `{"group":"etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster"}`,
		}, more...)...)}}
}

var (
	shop    = Namespace{Name: "shop", Labels: map[string]string{"tier": "tenant"}}
	kubeOne = facts.Cluster{Version: "1.36.3"}
)

// sound returns a definition without faults except warnings.
func sound(t testing.TB, name, constraintsJSON, propertiesJSON string) *Definition {
	t.Helper()
	d := Define(Meta{Name: name}, &constraintv1.ConstraintSpec{Constraints: constraintsJSON,
		Properties: propertiesJSON})
	if f := d.fault(); f != nil {
		t.Fatalf("%s: %s %s", constraintsJSON, f.Path, f.Message)
	}
	return d
}

// judgeOne judges a bundle by one constraint.
func judgeOne(t testing.TB, constraintsJSON string, b *Bundle, ns Namespace) Result {
	t.Helper()
	found := NewSet([]*Definition{sound(t, "one", constraintsJSON, "")}, kubeOne).Judge(b, ns, NewBudget(nil))
	switch len(found) {
	case 0:
		return Result{}
	case 1:
		return found[0]
	}
	t.Fatalf("%d findings", len(found))
	return Result{}
}

// crowdOf returns a bundle with n properties of the hinted shape's size.
func crowdOf(n int) *Bundle {
	b := etcd()
	b.Properties = nil
	items := make([]string, 14)
	for i := range items {
		items[i] = "item"
	}
	for i := range n {
		b.Properties = append(b.Properties, olm.Property{
			Type: strings.Repeat("t", 60),
			Raw: json.RawMessage(jsonText(map[string]any{"version": "1.2.3", "text": strings.Repeat("a", 250),
				"items": items, "n": i})),
		})
	}
	return b
}

// manifestOf returns what a ClusterServiceVersion with some rules requests.
func manifestOf(permissions, webhooks []map[string][]string) *olm.Demands {
	csv, err := olm.Decode[olm.CSV]([]byte(jsonText(map[string]any{"spec": map[string]any{
		"install":            map[string]any{"spec": map[string]any{"clusterPermissions": []any{map[string]any{"rules": permissions}}}},
		"webhookdefinitions": []any{map[string]any{"rules": webhooks}}}})))
	if err != nil {
		panic(err)
	}
	return &olm.Demands{Spec: &csv.Spec}
}
