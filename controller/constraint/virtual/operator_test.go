package virtual

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
)

const secured = `[{"type":"olm.label","value":{"label":"secured"}}]`

// stored returns a Constraint in its stored form.
func stored(name, selector, properties string) *constraintv1.Constraint {
	return &constraintv1.Constraint{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1,
			Annotations: map[string]string{metakey.VirtualOperatorNamespaces: selector}},
		Spec: constraintv1.ConstraintSpec{Properties: properties},
	}
}

// operators returns what Constraints require on a cluster with Kubernetes 1.36.3.
func operators(t *testing.T, stored ...*constraintv1.Constraint) []*Operator {
	t.Helper()
	var definitions []*constraint.Definition
	for _, c := range stored {
		definitions = append(definitions,
			constraint.Define(constraint.Meta{Name: c.Name, UID: string(c.UID), Generation: c.Generation}, &c.Spec))
	}
	automatic := Automatic(constraint.NewSet(definitions, facts.Cluster{Version: "1.36.3"}))
	var all []*Operator
	for i, c := range stored {
		if o := Of(c, definitions[i], automatic); o != nil {
			all = append(all, o)
		}
	}
	return all
}

func TestProperties(t *testing.T) {
	const automatic = `{"type":"olm.k8s","value":{"version":"1.36.3"}},{"type":"olm.kubeversion","value":{"version":"1.36.3"}}`
	for _, tc := range []struct{ name, properties, others, want string }{
		{"the version of Kubernetes is filled in", secured, `[]`, `{"type":"olm.label","value":{"label":"secured"}},` +
			automatic},
		{"unless the Constraint gives it", `[{"type":"olm.k8s","value":{"version":"1.21"}}]`, `[]`,
			`{"type":"olm.k8s","value":{"version":"1.21"}},{"type":"olm.kubeversion","value":{"version":"1.36.3"}}`},
		{"or another one does", secured,
			`[{"type":"olm.k8s","value":{"version":"1.21"}},{"type":"olm.kubeversion","value":{"version":"1.21.0"}}]`,
			`{"type":"olm.label","value":{"label":"secured"}}`},
		{"values stay as they are written",
			`[{"type":"a","value":1.50},{"type":"a","value":"<&>\u00e9\u0000"},{"type":"b","value":12345678901234567890},{"type":"c","value":{"z":1,"a":[ null ]}}]`, `[]`,
			`{"type":"a","value":1.50},{"type":"a","value":"<&>\u00e9\u0000"},{"type":"b","value":12345678901234567890},{"type":"c","value":{"z":1,"a":[null]}},` + automatic},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := operators(t, stored("one", "", tc.properties), stored("two", "", tc.others))[0]
			if o.Problem != nil {
				t.Fatalf("problem: %+v", *o.Problem)
			}
			if want := `{"properties":[` + tc.want + `]}`; o.properties != want {
				t.Errorf("got  %s\nwant %s", o.properties, want)
			}
			if _, err := olm.ParseProperties(o.properties); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, tc := range []struct{ name, selector, properties, reason, message string }{
		{"a selector that cannot be read selects nothing", "team in (", secured, ReasonInvalidSelector,
			"write one as for kubectl -l"},
		{"nothing to show", "team=a", "", ReasonNoProperties, "the Constraint has no properties"},
		{"properties with faults", "team=a", `[{"type":"olm.label"}]`, ReasonInvalid, "condition Ready names"},
		{"more than an annotation holds", "team=a", `[{"type":"a","value":"` + strings.Repeat("x", 250<<10) + `"}]`,
			ReasonTooLarge, "an annotation holds at most 245760"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := operators(t, stored("one", tc.selector, tc.properties))[0]
			if o.Problem == nil || o.Problem.Reason != tc.reason || !strings.Contains(o.Problem.Message, tc.message) {
				t.Fatalf("problem: %+v", o.Problem)
			}
			if o.WantedIn(shop(nil)) {
				t.Error("it is wanted nevertheless")
			}
		})
	}
	t.Run("without the annotation no namespace is selected, which is said", func(t *testing.T) {
		c := stored("one", "", secured)
		c.Annotations = nil
		all := operators(t, c)
		if len(all) != 1 || all[0].WantedIn(shop(nil)) || all[0].Problem.Reason != ReasonNotSelected ||
			all[0].Problem.Message != "OLM's resolver does not see the properties of the Constraint, which only rules of Constraints may read: "+rules.ShowsProperties {
			t.Errorf("got %+v", all)
		}
	})
	t.Run("without properties and annotation there is nothing to say", func(t *testing.T) {
		c := stored("one", "", "")
		c.Annotations = nil
		if all := operators(t, c); len(all) != 0 {
			t.Errorf("got %+v", all)
		}
	})
}

// OLM updates whole objects: if it wrote other fields than Opgate, each would revert the other.
func TestSpecIsAsOLMWritesIt(t *testing.T) {
	wrote, err := json.Marshal(operators(t, stored("one", "", secured))[0].Object("shop").Object)
	if err != nil {
		t.Fatal(err)
	}
	var csv v1alpha1.ClusterServiceVersion
	if err := json.Unmarshal(wrote, &csv); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(csv.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var before struct{ Spec any }
	var after any
	if err := json.Unmarshal(wrote, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Spec, after); diff != "" {
		t.Errorf("-Opgate +OLM\n%s", diff)
	}
	if supported := csv.Spec.InstallModes; len(supported) != 4 {
		t.Errorf("install modes: %+v", supported)
	}
	for _, mode := range csv.Spec.InstallModes {
		if mode.Supported != (mode.Type == v1alpha1.InstallModeTypeOwnNamespace) {
			t.Errorf("install mode %s: supported %t", mode.Type, mode.Supported)
		}
	}
}

func TestObject(t *testing.T) {
	u := operators(t, stored("one", "", secured))[0].Object("shop")
	if u.GetName() != "opgate-properties-one" || u.GetNamespace() != "shop" || u.GetKind() != "ClusterServiceVersion" {
		t.Errorf("identity: %s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
	}
	if diff := cmp.Diff(map[string]string{"opgate.io/virtual-operator": "one",
		"app.kubernetes.io/managed-by": "opgate"}, u.GetLabels()); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	owners := []metav1.OwnerReference{{APIVersion: "operators.coreos.com/v1", Kind: "Constraint", Name: "one",
		UID: "uid-one"}}
	if diff := cmp.Diff(owners, u.GetOwnerReferences()); diff != "" {
		t.Errorf("owners: %s", diff)
	}
}

func TestLongNames(t *testing.T) {
	name := strings.Repeat("constraint.", 20) + "example"
	u := operators(t, stored(name, "", secured))[0].Object("shop")
	if len(u.GetName()) > 63 || len(u.GetLabels()[metakey.VirtualOperator]) > 63 {
		t.Errorf("name %q, labels %v", u.GetName(), u.GetLabels())
	}
	if got := ConstraintOf(u); got != name {
		t.Errorf("made for %q, want %q", got, name)
	}
}

// corrected returns what is stored after a change, and after Opgate's correction.
func corrected(t *testing.T, change func(u *unstructured.Unstructured)) (before, after *unstructured.Unstructured) {
	t.Helper()
	o := operators(t, stored("one", "", secured))[0]
	before = o.Object("shop")
	change(before)
	return before, o.Corrected(before)
}

func set(u *unstructured.Unstructured, value any, fields ...string) {
	if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
		panic(err)
	}
}

func TestWhatOLMWritesStays(t *testing.T) {
	for name, change := range map[string]func(u *unstructured.Unstructured){
		"nothing": func(*unstructured.Unstructured) {},
		"status":  func(u *unstructured.Unstructured) { set(u, "Failed", "status", "phase") },
		"labels": func(u *unstructured.Unstructured) {
			set(u, "", "metadata", "labels",
				"olm.operatorgroup.uid/1")
		},
		"annotations": func(u *unstructured.Unstructured) {
			set(u, "g", "metadata", "annotations",
				"olm.operatorGroup")
		},
		"another owner": func(u *unstructured.Unstructured) {
			u.SetOwnerReferences(append(u.GetOwnerReferences(), metav1.OwnerReference{Kind: "X", Name: "x", UID: "x"}))
		},
		"fields left out": func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec",
				"cleanup")
		},
		"empty fields more": func(u *unstructured.Unstructured) { set(u, map[string]any{}, "spec", "selector") },
		"a null list": func(u *unstructured.Unstructured) {
			set(u, nil, "spec", "install", "spec",
				"deployments")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, after := corrected(t, change); after != nil {
				t.Errorf("corrected to %v", after.Object)
			}
		})
	}
}

func TestDriftIsCorrected(t *testing.T) {
	for name, change := range map[string]func(u *unstructured.Unstructured){
		"properties": func(u *unstructured.Unstructured) {
			set(u, "{}", "metadata", "annotations",
				metakey.Properties)
		},
		"no annotations": func(u *unstructured.Unstructured) { u.SetAnnotations(nil) },
		"another Constraint": func(u *unstructured.Unstructured) {
			set(u, "two", "metadata", "labels",
				metakey.VirtualOperator)
		},
		"managed by another": func(u *unstructured.Unstructured) {
			set(u, "helm", "metadata", "labels",
				metakey.ManagedBy)
		},
		"no owner": func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
		"an owner from before": func(u *unstructured.Unstructured) {
			o := u.GetOwnerReferences()
			o[0].UID = "old"
			u.SetOwnerReferences(o)
		},
		"a kind it owns": func(u *unstructured.Unstructured) {
			set(u, []any{map[string]any{"name": "x"}}, "spec", "customresourcedefinitions", "owned")
		},
		"something to run": func(u *unstructured.Unstructured) {
			set(u, []any{map[string]any{"name": "x"}}, "spec", "install", "spec", "deployments")
		},
		"rights": func(u *unstructured.Unstructured) {
			set(u, []any{map[string]any{"serviceAccountName": "x"}}, "spec", "install", "spec", "clusterPermissions")
		},
		"copied everywhere": func(u *unstructured.Unstructured) {
			set(u, []any{map[string]any{"type": "AllNamespaces", "supported": true}}, "spec", "installModes")
		},
		"replaces another":       func(u *unstructured.Unstructured) { set(u, "etcd.v0.9.4", "spec", "replaces") },
		"cleans up":              func(u *unstructured.Unstructured) { set(u, true, "spec", "cleanup", "enabled") },
		"a spec of another type": func(u *unstructured.Unstructured) { u.Object["spec"] = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			before, after := corrected(t, func(u *unstructured.Unstructured) {
				set(u, "kept", "metadata", "labels", "theirs")
				change(u)
			})
			if after == nil {
				t.Fatal("it was taken for current")
			}
			if after.GetLabels()["theirs"] != "kept" || after.GetResourceVersion() != before.GetResourceVersion() {
				t.Error("what is others' is gone")
			}
			o := operators(t, stored("one", "", secured))[0]
			if again := o.Corrected(after); again != nil {
				t.Errorf("corrected again to %v", again.Object)
			}
			want := o.Object("shop")
			if diff := cmp.Diff(want.Object["spec"], after.Object["spec"]); diff != "" {
				t.Errorf("spec: %s", diff)
			}
			if diff := cmp.Diff(want.GetOwnerReferences(), after.GetOwnerReferences()); diff != "" {
				t.Errorf("owners: %s", diff)
			}
		})
	}
}
