package watches

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

func widget(namespace, name string) dependency.Ref {
	return dependency.Ref{Group: "example.com", Kind: "Widget", Namespace: namespace, Name: name}
}

// asking is a Policy and the objects that it depends on. Age is how many minutes later than others it was created.
type asking struct {
	namespace, name string
	age             int
	objects         []dependency.Ref
}

func (a asking) policy() types.NamespacedName {
	return types.NamespacedName{Namespace: a.namespace, Name: a.name}
}

func waiterOf(namespace, name string, age int, objects ...dependency.Ref) asking {
	return asking{namespace, name, age, objects}
}

// beyondOf returns how many objects of each Policy exceed the limits.
func beyondOf(all []asking) string {
	w := New(Options{})
	for _, a := range all {
		var targets []Target
		for _, object := range a.objects {
			targets = append(targets, Target{Ref: object})
		}
		w.owners[a.policy()] = newOwner(a.policy(), time.Date(2026, 11, 22, 0, a.age, 0, 0, time.UTC), targets)
	}
	w.ration()
	var counts []string
	for _, a := range all {
		count := 0
		for _, object := range a.objects {
			if w.beyond[shareOf(a.policy(), object)] {
				count++
			}
		}
		counts = append(counts, fmt.Sprintf("%s/%s %d of %d", a.namespace, a.name, count, len(a.objects)))
	}
	return strings.Join(counts, ", ")
}

// manyNamespaces returns one object in each of some namespaces.
func manyNamespaces(prefix string, count int) []dependency.Ref {
	var all []dependency.Ref
	for i := range count {
		all = append(all, widget(fmt.Sprintf("%s-%03d", prefix, i), "x"))
	}
	return all
}

// TestA2Budget distributes watches: 12 for a Policy, 40 for a namespace and 400 in all (threat O23), in any order of the
// Policies.
func TestA2Budget(t *testing.T) {
	sameKind := func(count int) (objects []dependency.Ref) {
		for i := range count {
			objects = append(objects, widget("victim", fmt.Sprintf("x%04d", i)))
		}
		return objects
	}
	var policies []dependency.Ref
	for i := range 15 {
		policies = append(policies, dependency.PolicyRef("shop", fmt.Sprintf("p%02d", i)))
	}
	for _, tc := range []struct {
		name    string
		waiters []asking
		want    string
	}{
		{name: "three at their limit", waiters: []asking{waiterOf("a", "one", 0, manyNamespaces("n", 12)...),
			waiterOf("a", "two", 1, manyNamespaces("m", 12)...), waiterOf("a", "three", 2, manyNamespaces("o", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12"},
		{name: "a fourth", waiters: []asking{waiterOf("a", "one", 0, manyNamespaces("n", 12)...),
			waiterOf("a", "two", 1, manyNamespaces("m", 12)...), waiterOf("a", "three", 2, manyNamespaces("o", 12)...),
			waiterOf("a", "four", 3, manyNamespaces("p", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12, a/four 8 of 12"},
		{name: "a fourth that waits where others do", waiters: []asking{
			waiterOf("a", "one", 0, manyNamespaces("n", 12)...), waiterOf("a", "two", 1, manyNamespaces("m", 12)...),
			waiterOf("a", "three", 2, manyNamespaces("o", 12)...), waiterOf("a", "four", 3, manyNamespaces("n", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12, a/four 0 of 12"},
		{name: "one watch for all of a kind in a namespace", waiters: []asking{waiterOf("a", "one", 0, sameKind(1000)...)},
			want: "a/one 0 of 1000"},
		{name: "attack: too many kinds or namespaces for a Policy",
			waiters: []asking{waiterOf("a", "one", 0, manyNamespaces("n", 15)...)}, want: "a/one 3 of 15"},
		{name: "Policies need no watch", waiters: []asking{waiterOf("a", "one", 0, policies...)},
			want: "a/one 0 of 15"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := beyondOf(tc.waiters); got != tc.want {
				t.Errorf("beyond are %s; want %s", got, tc.want)
			}
			slices.Reverse(tc.waiters)
			got := strings.Split(beyondOf(tc.waiters), ", ")
			if slices.Reverse(got); strings.Join(got, ", ") != tc.want {
				t.Errorf("in another order beyond are %s; want %s", got, tc.want)
			}
		})
	}
}

// TestA2BudgetOfAll: ten hostile namespaces take all watches. What is older keeps its own, what is newer gets none until
// an older one waits for less.
func TestA2BudgetOfAll(t *testing.T) {
	all := []asking{waiterOf("older", "one", 0, manyNamespaces("n", 3)...), waiterOf("later", "one", 2, widget("later", "x"))}
	for i := range 10 {
		for j, count := range []int{12, 12, 12, 4} {
			all = append(all, waiterOf(fmt.Sprintf("hostile-%02d", i), fmt.Sprint("p", j), 1,
				manyNamespaces(fmt.Sprintf("h-%d-%d", i, j), count)...))
		}
	}
	if got := beyondOf(all); !strings.HasPrefix(got, "older/one 0 of 3, later/one 1 of 1, ") {
		t.Errorf("beyond are %s", got)
	}
	if got := beyondOf(all[:len(all)-4]); !strings.HasPrefix(got, "older/one 0 of 3, later/one 0 of 1, ") {
		t.Errorf("given back, beyond are %s", got)
	}
}

// TestA2TooMany: an object that is not watched takes nothing back.
func TestA2TooMany(t *testing.T) {
	f := dependency.Evaluate(dependency.Dependency{Ref: widget("victim", "x"), Want: dependency.Compliant},
		dependency.Observed{Reason: dependency.TooMany, Detail: tooManyText})
	if f.Met || !f.Undecided || f.Unread || !strings.HasPrefix(f.Text, "too many objects are waited for") {
		t.Errorf("got %+v", f)
	}
}
