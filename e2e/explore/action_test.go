package explore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// Verbs of actions.
const (
	apply   = "apply"
	remove  = "delete"
	patch   = "patch"   // installPlanApproval of a Subscription alone
	approve = "approve" // the plan that waits, as an admin
	restart = "restart" // olm or opgate
	await   = "wait"    // until the invariants are met
)

// Kinds of objects, as in scripts.
const (
	operatorPolicy = "operatorpolicy"
	subscription   = "subscription"
	operatorGroup  = "operatorgroup"
	catalogSource  = "catalogsource"
	constraint     = "constraint"
	policy         = "policy"
)

// kinds are those of Kubernetes.
var kinds = map[string]string{
	operatorPolicy: "OperatorPolicy", subscription: "Subscription", operatorGroup: "OperatorGroup",
	catalogSource: "CatalogSource", constraint: "Constraint", policy: "Policy",
}

// fields are those of an object, by the names that scripts give them.
type fields map[string]string

// list returns the values of a field that is a list.
func (f fields) list(name string) []string {
	if f[name] == "" {
		return nil
	}
	return strings.Split(f[name], ",")
}

// action is what a user does: a line of a script, such as
// "apply operatorpolicy a complianceType=musthave channel=stable".
type action struct {
	verb, kind, name string
	fields           fields
}

// String returns the line. Fields are sorted.
func (a action) String() string {
	words := []string{a.verb}
	for _, word := range []string{a.kind, a.name} {
		if word != "" {
			words = append(words, word)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		words = append(words, name+"="+a.fields[name])
	}
	return strings.Join(words, " ")
}

// key identifies the object of an action.
func (a action) key() string { return a.kind + "/" + a.name }

// parse reads a script. Empty lines and those that begin with # say nothing.
func parse(script string) ([]action, error) {
	var actions []action
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		a := action{verb: words[0]}
		switch a.verb {
		case apply, remove, patch:
			if len(words) < 3 || kinds[words[1]] == "" {
				return nil, fmt.Errorf("%q names no object", strings.TrimSpace(line))
			}
			a.kind, a.name, words = words[1], words[2], words[3:]
		case restart:
			if len(words) != 2 || words[1] != "olm" && words[1] != "opgate" {
				return nil, errors.New("restart olm, or restart opgate")
			}
			a.kind, words = words[1], nil
		case approve, await:
			words = words[1:]
		default:
			return nil, fmt.Errorf("unknown action %q", a.verb)
		}
		for _, word := range words {
			name, value, ok := strings.Cut(word, "=")
			if !ok {
				return nil, fmt.Errorf("%q: want field=value", word)
			}
			if a.fields == nil {
				a.fields = fields{}
			}
			a.fields[name] = value
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// format returns a script.
func format(actions []action) string {
	var text strings.Builder
	for _, a := range actions {
		fmt.Fprintln(&text, a)
	}
	return text.String()
}

// place is where a walk is: the namespaces that policies can be moved between, and the address of its catalog.
type place struct {
	namespaces [2]string
	address    string
}

// namespace returns the one that a policy is about: the first, or the second where field namespace is "second".
func (p place) namespace(f fields) string {
	if f["namespace"] == "second" {
		return p.namespaces[1]
	}
	return p.namespaces[0]
}

// objects are those that a user writes for an action: one, or a catalog in each namespace.
func (p place) objects(a action) []*unstructured.Unstructured {
	first := p.namespaces[0]
	switch a.kind {
	case operatorPolicy:
		return []*unstructured.Unstructured{p.operatorPolicy(first+"-"+a.name, a.fields)}
	case policy:
		template := p.operatorPolicy(first+"-"+a.name+"-template", a.fields)
		template.SetNamespace("")
		u := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: %[1]s-%[2]s, namespace: %[3]s}
spec:
  remediationAction: enforce
  dependencies:
  - {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, name: %[1]s-%[4]s,
     namespace: %[3]s, compliance: Compliant}
`, first, a.name, cluster.PolicyNamespace, a.fields["after"])
		templates := []any{map[string]any{"objectDefinition": template.Object}}
		return []*unstructured.Unstructured{harness.WithField(u, templates, "spec", "policy-templates")}
	case subscription:
		spec := map[string]any{"name": packageName, "source": catalogName, "sourceNamespace": first}
		copyFields(spec, a.fields, "channel", "startingCSV", "installPlanApproval")
		u := harness.WithField(harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %s, namespace: %s}
`, a.name, first), spec, "spec")
		if requested := a.fields["requested"]; requested != "" {
			u.SetAnnotations(map[string]string{metakey.RequestedApproval: requested})
		}
		return []*unstructured.Unstructured{u}
	case operatorGroup:
		return []*unstructured.Unstructured{harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %s, namespace: %s}
spec: {targetNamespaces: [%[2]s]}
`, a.name, first)}
	case constraint:
		rules := fmt.Sprintf(`[{"type": "olm.constraint", "value": {"evaluator": {"id": "cel"}, `+
			`"message": "%[1]s is not wanted",`+
			` "rule": "!(namespaceObject.metadata.name in ['%[2]s', '%[3]s'] && csv == '%[1]s')"}}]`,
			a.fields["forbids"], first, p.namespaces[1])
		return []*unstructured.Unstructured{harness.WithField(harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: %s-%s}
`, first, a.name), rules, "spec", "constraints")}
	}
	var catalogs []*unstructured.Unstructured
	for _, namespace := range p.namespaces {
		catalogs = append(catalogs, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: %s, namespace: %s}
spec: {sourceType: grpc, address: %q, displayName: explored, publisher: opgate.io}
`, a.name, namespace, p.address))
	}
	return catalogs
}

// operatorPolicy is one with an OperatorGroup for the namespace alone.
func (p place) operatorPolicy(name string, f fields) *unstructured.Unstructured {
	namespace := p.namespace(f)
	u := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: %[3]s
  subscription: {name: %[4]s, namespace: %[5]s, source: %[6]s, sourceNamespace: %[5]s}
  upgradeApproval: Automatic
`, name, cluster.PolicyNamespace, f["complianceType"], cmp.Or(f["package"], packageName), namespace, catalogName)
	spec := u.Object["spec"].(map[string]any)
	copyFields(spec["subscription"].(map[string]any), f, "channel", "startingCSV")
	copyFields(spec, f, "remediationAction", "upgradeApproval")
	if versions := f.list("versions"); versions != nil {
		var all []any
		for _, v := range versions {
			all = append(all, v)
		}
		spec["versions"] = all
	}
	if f["complianceType"] == musthave {
		group := map[string]any{"name": groupName, "namespace": namespace, "targetNamespaces": []any{namespace}}
		copyFields(group, f, "upgradeStrategy")
		spec["operatorGroup"] = group
	}
	return u
}

// copyFields sets those that a script names.
func copyFields(to map[string]any, from fields, names ...string) {
	for _, name := range names {
		if value := from[name]; value != "" {
			to[name] = value
		}
	}
}
