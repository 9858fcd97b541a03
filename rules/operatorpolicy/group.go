package operatorpolicy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/verdict"
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
	// Names are the target namespaces that the policy lists.
	Names []string
}

// operatorGroup reads spec.operatorGroup; nil if there is none. A policy selects its target namespaces in one way only.
func (r *reader) operatorGroup(spec *policyv1beta2.OperatorPolicySpec) *Group {
	written, path := spec.OperatorGroup, specPath.Child("operatorGroup")
	if written == nil {
		return nil
	}
	r.names(path, "name", written.Name, "namespace", written.Namespace, GroupAccount, written.ServiceAccountName)
	if ns := spec.Subscription.Namespace; written.Namespace != "" && ns != "" && written.Namespace != ns &&
		!isTemplate(written.Namespace+ns) {
		r.invalid(path.Child("namespace"), written.Namespace,
			fmt.Sprintf("must be the namespace of the subscription, %q, or be left out", ns))
	}
	group, given := &Group{Name: written.Name, Fields: map[string]any{}}, ""
	target := cmp.Or(written.Target, &policyv1beta2.OperatorGroupTarget{}) // the proposal's spelling of the two
	for _, form := range []struct {
		path  *field.Path
		value *apiextensionsv1.JSON
		read  func(*Group, *field.Path, *apiextensionsv1.JSON)
	}{
		{path.Child(GroupTargets), written.TargetNamespaces, r.targets},
		{path.Child(GroupSelector), written.Selector, r.selector},
		{path.Child("target", "namespaces"), target.Namespaces, r.targets},
		{path.Child("target", "selector"), target.Selector, r.selector},
	} {
		switch {
		case form.value == nil || string(form.value.Raw) == "null":
		case given != "":
			r.add(field.Forbidden(form.path, "the targets are already given by "+given+"; keep one of the two"))
		default:
			given = form.path.String()
			form.read(group, form.path, form.value)
		}
	}
	if written.ServiceAccountName != "" {
		group.Fields[GroupAccount] = written.ServiceAccountName
	}
	if written.UpgradeStrategy != "" {
		group.Fields["upgradeStrategy"] = written.UpgradeStrategy
	}
	if static := decoded[*bool](r, path.Child("staticProvidedAPIs"), written.StaticProvidedAPIs); static != nil {
		group.Fields["staticProvidedAPIs"] = *static
	}
	return group
}

// targets and selector keep what is valid alone: what is written may be deep, and large once it is decoded.
func (r *reader) targets(g *Group, path *field.Path, value *apiextensionsv1.JSON) {
	faults := len(r.errs)
	names := decoded[[]string](r, path, value)
	for i, name := range names {
		if len(r.errs) >= verdict.MaxFaults {
			break
		}
		for _, problem := range validation.IsDNS1123Label(name) {
			r.invalid(path.Index(i), name, problem)
		}
	}
	if len(r.errs) == faults && len(names) > 0 {
		g.Names, g.Fields[GroupTargets] = names, Read[[]any](value)
	}
}

func (r *reader) selector(g *Group, path *field.Path, value *apiextensionsv1.JSON) {
	faults := len(r.errs)
	selector := decoded[metav1.LabelSelector](r, path, value)
	r.add(metav1validation.ValidateLabelSelector(&selector, metav1validation.LabelSelectorValidationOptions{}, path)...)
	if written := Read[map[string]any](value); len(r.errs) == faults && !EmptySelector(written) {
		g.Fields[GroupSelector] = written
	}
}

// Targets reports whether the group is for some namespaces only.
func (g *Group) Targets() bool {
	return g != nil && (g.Fields[GroupTargets] != nil || g.Fields[GroupSelector] != nil)
}

// Differs returns the first field that the policy sets to another value than these fields have, "" if there is none.
// They are those of a stored OperatorGroup, or those that another policy sets: what that leaves open contradicts nothing.
func (g *Group) Differs(from map[string]any, stored bool) string {
	other := &Group{Fields: from}
	for _, name := range slices.Sorted(maps.Keys(g.Fields)) {
		has, set := from[name]
		set = set || stored || (name == GroupTargets || name == GroupSelector) && other.Targets()
		if set && !Same(name, has, g.Fields[name]) {
			return name
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

// Read decodes a field that may hold any JSON; the zero value if it has another type, which is a fault of the policy.
func Read[T any](value *apiextensionsv1.JSON) (into T) {
	if value != nil && kjson.UnmarshalCaseSensitivePreserveInts(value.Raw, &into) != nil {
		return *new(T)
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
