package virtual

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// shop is a namespace of team a with a Subscription, with changes.
func shop(change func(c *state.NamespaceContents)) *state.Namespace {
	c := state.NamespaceContents{Exists: true, Labels: map[string]string{"team": "a"},
		Subscriptions: []*olm.Subscription{{}}}
	if change != nil {
		change(&c)
	}
	return state.NewNamespace("shop", c)
}

func TestDecide(t *testing.T) {
	one := stored("one", "team=a", secured)
	live := func(change func(u *unstructured.Unstructured)) *unstructured.Unstructured {
		u := operators(t, one)[0].Object("shop")
		u.SetUID("live")
		if change != nil {
			change(u)
		}
		return u
	}
	deleting := func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(new(metav1.Unix(1, 0))) }
	for _, tc := range []struct {
		name        string
		constraints []*constraintv1.Constraint
		namespace   *state.Namespace
		live        []*unstructured.Unstructured
		want        []string
	}{
		{"made", []*constraintv1.Constraint{one}, shop(nil), nil, []string{"create one opgate-properties-one"}},
		{"there already", []*constraintv1.Constraint{one}, shop(nil), []*unstructured.Unstructured{live(nil)}, nil},
		{"one for each Constraint", []*constraintv1.Constraint{one, stored("two", "", secured)}, shop(nil),
			[]*unstructured.Unstructured{live(nil)},
			[]string{"create two opgate-properties-two"}},
		{"tampered with", []*constraintv1.Constraint{one}, shop(nil),
			[]*unstructured.Unstructured{live(func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })},
			[]string{"patch one opgate-properties-one"}},
		{"on its way out: its end is waited for", []*constraintv1.Constraint{one}, shop(nil),
			[]*unstructured.Unstructured{live(deleting)}, nil},
		{"the empty selector names all", []*constraintv1.Constraint{stored("one", "", secured)}, shop(nil), nil,
			[]string{"create one opgate-properties-one"}},
		{"selector names others", []*constraintv1.Constraint{stored("one", "team=b", secured)}, shop(nil), nil, nil},
		{"selector names others now", []*constraintv1.Constraint{stored("one", "team=b", secured)}, shop(nil),
			[]*unstructured.Unstructured{live(nil)}, []string{"delete one opgate-properties-one"}},
		{"selector unreadable now", []*constraintv1.Constraint{stored("one", "((", secured)}, shop(nil),
			[]*unstructured.Unstructured{live(nil)}, []string{"delete one opgate-properties-one"}},
		{"properties gone", []*constraintv1.Constraint{stored("one", "team=a", "")}, shop(nil),
			[]*unstructured.Unstructured{live(nil)}, []string{"delete one opgate-properties-one"}},
		{"Constraint gone", nil, shop(nil), []*unstructured.Unstructured{live(nil)},
			[]string{"delete one opgate-properties-one"}},
		{"deleted already", nil, shop(nil), []*unstructured.Unstructured{live(deleting)}, nil},
		{"no Subscription", []*constraintv1.Constraint{one},
			shop(func(c *state.NamespaceContents) { c.Subscriptions = nil }), nil, nil},
		{"last Subscription gone", []*constraintv1.Constraint{one},
			shop(func(c *state.NamespaceContents) { c.Subscriptions = nil }), []*unstructured.Unstructured{live(nil)},
			[]string{"delete one opgate-properties-one"}},
		{"namespace on its way out", []*constraintv1.Constraint{one},
			shop(func(c *state.NamespaceContents) { c.Deleting = true }), nil, nil},
		{"namespace on its way out takes what is in it along", nil,
			shop(func(c *state.NamespaceContents) { c.Deleting = true }), []*unstructured.Unstructured{live(nil)}, nil},
		{"labels of the namespace not known yet", []*constraintv1.Constraint{stored("one", "!team", secured)},
			shop(func(c *state.NamespaceContents) { c.Exists = false }),
			[]*unstructured.Unstructured{live(nil)}, nil},
		{"nothing known of the namespace", nil, nil, []*unstructured.Unstructured{live(nil)}, nil},
		{"attack: the name taken by another operator", []*constraintv1.Constraint{one},
			shop(func(c *state.NamespaceContents) {
				c.CSVs = []state.Installed{{Bundle: olm.Bundle{Name: "opgate-properties-one"}}}
			}), nil,
			[]string{"taken one"}},
		{"attack: another operator with our label is not deleted", nil, shop(nil),
			[]*unstructured.Unstructured{live(func(u *unstructured.Unstructured) {
				u.SetName("etcd.v0.9.4")
				u.SetOwnerReferences(nil)
			})}, nil},
		{"attack: an owner of our kind does not make it ours", nil, shop(nil),
			[]*unstructured.Unstructured{live(func(u *unstructured.Unstructured) { u.SetName("etcd.v0.9.4") })}, nil},
		{"a label that was changed does not keep it", nil, shop(nil),
			[]*unstructured.Unstructured{live(func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{metakey.VirtualOperator: "two"})
			})}, []string{"delete one opgate-properties-one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(tc.namespace, operators(t, tc.constraints...), tc.live)
			var got []string
			for _, a := range d.Actions {
				object, verb := a.Object, "patch"
				switch {
				case a.Object == nil:
					object, verb = a.Live, "delete"
				case a.Live == nil:
					verb = "create"
				}
				got = append(got, fmt.Sprintf("%s %s %s", verb, a.Constraint, object.GetName()))
			}
			for _, name := range d.Taken {
				got = append(got, "taken "+name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
