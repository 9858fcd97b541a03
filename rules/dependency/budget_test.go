package dependency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func widget(namespace, name string) Ref {
	return Ref{Group: "example.com", Kind: "Widget", Namespace: namespace, Name: name}
}

// waiterOf returns a Waiter for objects; age is how many minutes later than others it was created.
func waiterOf(namespace, name string, age int, objects ...Ref) Waiter {
	return Waiter{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
		Created: time.Date(2026, 11, 22, 0, age, 0, 0, time.UTC), Objects: objects}
}

// manyNamespaces returns one object in each of some namespaces.
func manyNamespaces(prefix string, count int) []Ref {
	var all []Ref
	for i := range count {
		all = append(all, widget(fmt.Sprintf("%s-%03d", prefix, i), "x"))
	}
	return all
}

// beyondOf returns the objects of each waiter that exceed the budget.
func beyondOf(b *Budget, waiters []Waiter) string {
	var all []string
	for _, w := range waiters {
		count := 0
		for _, object := range w.Objects {
			if b.Beyond(w.NamespacedName, object) {
				count++
			}
		}
		all = append(all, fmt.Sprintf("%s/%s %d of %d", w.Namespace, w.Name, count, len(w.Objects)))
	}
	return strings.Join(all, ", ")
}

// TestA2Budget distributes watches: 12 for a Policy, 40 for a namespace and 400 in all (threat O23), in any order of the
// Policies.
func TestA2Budget(t *testing.T) {
	sameKind := func(count int) (objects []Ref) {
		for i := range count {
			objects = append(objects, widget("victim", fmt.Sprintf("x%04d", i)))
		}
		return objects
	}
	var policies []Ref
	for i := range 15 {
		policies = append(policies, PolicyRef("shop", fmt.Sprintf("p%02d", i)))
	}
	for _, tc := range []struct {
		name    string
		waiters []Waiter
		want    string
	}{
		{name: "three at their limit", waiters: []Waiter{waiterOf("a", "one", 0, manyNamespaces("n", 12)...),
			waiterOf("a", "two", 1, manyNamespaces("m", 12)...), waiterOf("a", "three", 2, manyNamespaces("o", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12"},
		{name: "a fourth", waiters: []Waiter{waiterOf("a", "one", 0, manyNamespaces("n", 12)...),
			waiterOf("a", "two", 1, manyNamespaces("m", 12)...), waiterOf("a", "three", 2, manyNamespaces("o", 12)...),
			waiterOf("a", "four", 3, manyNamespaces("p", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12, a/four 8 of 12"},
		{name: "a fourth that waits where others do", waiters: []Waiter{
			waiterOf("a", "one", 0, manyNamespaces("n", 12)...), waiterOf("a", "two", 1, manyNamespaces("m", 12)...),
			waiterOf("a", "three", 2, manyNamespaces("o", 12)...), waiterOf("a", "four", 3, manyNamespaces("n", 12)...)},
			want: "a/one 0 of 12, a/two 0 of 12, a/three 0 of 12, a/four 0 of 12"},
		{name: "one watch for all of a kind in a namespace", waiters: []Waiter{waiterOf("a", "one", 0, sameKind(1000)...)},
			want: "a/one 0 of 1000"},
		{name: "attack: too many kinds or namespaces for a Policy",
			waiters: []Waiter{waiterOf("a", "one", 0, manyNamespaces("n", 15)...)}, want: "a/one 3 of 15"},
		{name: "Policies need no watch", waiters: []Waiter{waiterOf("a", "one", 0, policies...)},
			want: "a/one 0 of 15"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				b := &Budget{}
				arrival := slices.Clone(tc.waiters)
				order.Shuffle(len(arrival), func(i, j int) { arrival[i], arrival[j] = arrival[j], arrival[i] })
				for i, w := range arrival {
					before := map[types.NamespacedName]string{}
					for _, other := range arrival[:i] {
						before[other.NamespacedName] = beyondOf(b, []Waiter{other})
					}
					changed := b.Set(w)
					for _, other := range arrival[:i] {
						key := other.NamespacedName
						if differs := beyondOf(b, []Waiter{other}) != before[key]; differs &&
							!slices.Contains(changed, key) {
							t.Errorf("%s is not said to have changed by %s", key, w.NamespacedName)
						}
					}
				}
				if got := beyondOf(b, tc.waiters); got != tc.want {
					t.Fatalf("beyond are %s; want %s", got, tc.want)
				}
				// A deleted Policy releases its share and leaves no state.
				order.Shuffle(len(arrival), func(i, j int) { arrival[i], arrival[j] = arrival[j], arrival[i] })
				for _, w := range arrival {
					w.Objects = nil
					b.Set(w)
				}
				if len(b.waiters)+len(b.beyond) > 0 {
					t.Fatalf("left behind are %v, beyond %v", b.waiters, b.beyond)
				}
			}
		})
	}
}

// TestA2BudgetOfAll: ten hostile namespaces take all watches. What is older keeps its own, what is newer gets none until
// an older one waits for less.
func TestA2BudgetOfAll(t *testing.T) {
	b := &Budget{}
	older, later := waiterOf("older", "one", 0, manyNamespaces("n", 3)...), waiterOf("later", "one", 2, widget("later", "x"))
	b.Set(later)
	if beyondOf(b, []Waiter{later}) != "later/one 0 of 1" {
		t.Error("it gets none while there are enough")
	}
	var last []types.NamespacedName
	for i := range 10 {
		for j, count := range []int{12, 12, 12, 4} {
			last = b.Set(waiterOf(fmt.Sprintf("hostile-%02d", i), fmt.Sprint("p", j), 1,
				manyNamespaces(fmt.Sprintf("h-%d-%d", i, j), count)...))
		}
	}
	if !slices.Equal(last, []types.NamespacedName{later.NamespacedName}) {
		t.Errorf("changed are %v", last)
	}
	b.Set(older)
	waiters := []Waiter{older, later}
	if got := beyondOf(b, waiters); got != "older/one 0 of 3, later/one 1 of 1" {
		t.Errorf("beyond are %s", got)
	}
	for j := range 4 {
		b.Set(waiterOf("hostile-03", fmt.Sprint("p", j), 1))
	}
	if got := beyondOf(b, waiters); got != "older/one 0 of 3, later/one 0 of 1" {
		t.Errorf("given back, beyond are %s", got)
	}
}

// TestA2BudgetIsGivenBack deletes an older Policy, and a newer one takes its share.
func TestA2BudgetIsGivenBack(t *testing.T) {
	b := &Budget{}
	for i, name := range []string{"one", "two", "three", "four"} {
		b.Set(waiterOf("a", name, i, manyNamespaces(name, 12)...))
	}
	four := types.NamespacedName{Namespace: "a", Name: "four"}
	if !b.Beyond(four, widget("four-011", "x")) {
		t.Error("the fourth is within")
	}
	if changed := b.Set(waiterOf("a", "one", 0)); !slices.Equal(changed, []types.NamespacedName{four}) ||
		b.Beyond(four, widget("four-011", "x")) {
		t.Errorf("changed are %v", changed)
	}
}

// TestA2TooMany: an object that is not watched takes nothing back.
func TestA2TooMany(t *testing.T) {
	f := Evaluate(Dependency{Ref: widget("victim", "x"), Want: Compliant},
		Observed{Reason: TooMany, Detail: TooManyText()})
	if f.Met || !f.Undecided || f.Unread || !strings.HasPrefix(f.Text, "too many objects are waited for") {
		t.Errorf("got %+v", f)
	}
}
