package operatorpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
)

// The fields of an OperatorGroup that name its target namespaces, of which OLM ignores the second one beside the first,
// and the account that OLM installs as.
const (
	GroupTargets  = "targetNamespaces"
	GroupSelector = "selector"
	GroupAccount  = "serviceAccountName"
)

// Group is the OperatorGroup that a policy names.
type Group struct {
	Name string
	// Fields are those of its spec that the policy sets, in the form of unstructured objects. An empty value sets nothing.
	Fields map[string]any

	names []string
}

// Names returns the target namespaces that the policy lists.
func (g *Group) Names() []string {
	if g == nil {
		return nil
	}
	return g.names
}

// GroupOf returns the OperatorGroup that a policy names, nil if it names none, and a sentence on each field that cannot
// be read.
func GroupOf(spec *policyv1beta2.OperatorPolicySpec) (*Group, []string) {
	written := spec.OperatorGroup
	if written == nil {
		return nil, nil
	}
	group, problems := &Group{Name: written.Name, Fields: map[string]any{}}, []string(nil)
	path := "spec.operatorGroup."
	targets := Read[[]string](path+GroupTargets, written.TargetNamespaces, &problems)
	selector := Read[map[string]any](path+GroupSelector, written.Selector, &problems)
	if t := written.Target; t != nil { // the proposal's spelling of the two; a policy that uses both is not valid
		targets = append(targets, Read[[]string](path+"target.namespaces", t.Namespaces, &problems)...)
		if selector == nil {
			selector = Read[map[string]any](path+"target.selector", t.Selector, &problems)
		}
	}
	if len(targets) > 0 {
		names := make([]any, len(targets))
		for i, name := range targets {
			names[i] = name
		}
		group.names, group.Fields[GroupTargets] = targets, names
	}
	if !EmptySelector(selector) {
		group.Fields[GroupSelector] = selector
	}
	if written.ServiceAccountName != "" {
		group.Fields[GroupAccount] = written.ServiceAccountName
	}
	if written.UpgradeStrategy != "" {
		group.Fields["upgradeStrategy"] = written.UpgradeStrategy
	}
	if static := Read[*bool](path+"staticProvidedAPIs", written.StaticProvidedAPIs, &problems); static != nil {
		group.Fields["staticProvidedAPIs"] = *static
	}
	return group, problems
}

// Targets reports whether the group is for some namespaces only.
func (g *Group) Targets() bool {
	return g != nil && (g.Fields[GroupTargets] != nil || g.Fields[GroupSelector] != nil)
}

// Differs returns the first field that the policy sets to another value than these fields have, "" if there is none.
// They are those of a stored OperatorGroup, or those that another policy sets: what that leaves open contradicts nothing.
func (g *Group) Differs(from map[string]any, stored bool) string {
	other := &Group{Fields: from}
	for _, field := range slices.Sorted(maps.Keys(g.Fields)) {
		has, set := from[field]
		set = set || stored || (field == GroupTargets || field == GroupSelector) && other.Targets()
		if set && !Same(field, has, g.Fields[field]) {
			return field
		}
	}
	return ""
}

// EmptySelector reports whether a label selector has no requirement.
func EmptySelector(selector map[string]any) bool {
	labels, _ := selector["matchLabels"].(map[string]any)
	expressions, _ := selector["matchExpressions"].([]any)
	return len(labels) == 0 && len(expressions) == 0
}

// Read decodes a field that may hold any JSON, and appends a sentence if it cannot be read.
func Read[T any](path string, value *apiextensionsv1.JSON, problems *[]string) T {
	var into T
	if value == nil || len(value.Raw) == 0 {
		return into
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value.Raw, &into); err != nil {
		*problems = append(*problems, fmt.Sprintf("%s: Invalid value: %s: %s", path,
			text.Quote(text.Unquote(value.Raw)), err))
	}
	return into
}

// Same compares by meaning where defaults of the schema or a controller may have rewritten the stored form of a value:
// a comparison of the text would cause the same write again and again.
func Same(field string, live, want any) bool {
	switch field {
	case "config":
		return sameAs[operatorsv1alpha1.SubscriptionConfig](live, want)
	case GroupSelector:
		return sameAs[metav1.LabelSelector](live, want)
	case GroupTargets:
		a, errA := typed[[]string](live)
		b, errB := typed[[]string](want)
		return errA == nil && errB == nil && slices.Equal(unique(a), unique(b))
	}
	return reflect.DeepEqual(live, want)
}

func sameAs[T any](live, want any) bool {
	a, errA := typed[T](live)
	b, errB := typed[T](want)
	if errA != nil || errB != nil {
		return reflect.DeepEqual(live, want)
	}
	return equality.Semantic.DeepEqual(a, b)
}

func typed[T any](value any) (into T, err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return into, err
	}
	return into, json.Unmarshal(raw, &into)
}

// unique sorts names and removes repetitions.
func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
