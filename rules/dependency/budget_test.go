package dependency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func widget(namespace, name string) Ref {
	return Ref{Group: "example.com", Kind: "Widget", Namespace: namespace, Name: name}
}

// waiterOf returns a Waiter for objects; age is how many minutes later than others it was created.
func waiterOf(namespace, name string, age int, objects ...Ref) Waiter {
	return Waiter{Namespace: namespace, Name: name, Created: time.Date(2026, 11, 22, 0, age, 0, 0, time.UTC),
		Objects: objects}
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
			if b.Beyond(w.Namespace, w.Name, object) {
				count++
			}
		}
		all = append(all, fmt.Sprintf("%s/%s %d of %d", w.Namespace, w.Name, count, len(w.Objects)))
	}
	return strings.Join(all, ", ")
}

// TestA2Budget distributes watches with limits of 3 per Policy, 5 per namespace and 8 in total, and 20 objects per
// namespace (threat O23), in any order of the Policies.
func TestA2Budget(t *testing.T) {
	limits := Limits{PolicyWatches: 3, NamespaceWatches: 5, Watches: 8, Objects: 20}
	var sameKind []Ref
	for i := range 30 {
		sameKind = append(sameKind, widget("victim", fmt.Sprintf("x%02d", i)))
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
		{name: "within", waiters: []Waiter{waiterOf("a", "one", 0, manyNamespaces("n", 3)...)}, want: "a/one 0 of 3"},
		{name: "one watch for all of a kind in a namespace",
			waiters: []Waiter{waiterOf("a", "one", 0, sameKind[:20]...)}, want: "a/one 0 of 20"},
		{name: "attack: too many objects", waiters: []Waiter{waiterOf("a", "one", 0, sameKind...)},
			want: "a/one 10 of 30"},
		{name: "attack: too many kinds or namespaces for a Policy",
			waiters: []Waiter{waiterOf("a", "one", 0, manyNamespaces("n", 5)...)}, want: "a/one 2 of 5"},
		{name: "attack: too many for a namespace", waiters: []Waiter{
			waiterOf("a", "one", 0, manyNamespaces("n", 3)...), waiterOf("a", "two", 1, manyNamespaces("m", 3)...),
			waiterOf("a", "three", 2, manyNamespaces("n", 2)...)},
			want: "a/one 0 of 3, a/two 1 of 3, a/three 0 of 2"},
		{name: "attack: hostile namespaces that come later", waiters: []Waiter{
			waiterOf("older", "one", 0, manyNamespaces("n", 3)...),
			waiterOf("hostile", "one", 1, manyNamespaces("h", 3)...),
			waiterOf("hostile", "two", 1, manyNamespaces("i", 3)...),
			waiterOf("later", "one", 2, manyNamespaces("n", 3)...),
			waiterOf("latest", "one", 3, manyNamespaces("z", 3)...)},
			want: "older/one 0 of 3, hostile/one 0 of 3, hostile/two 1 of 3, later/one 0 of 3, latest/one 3 of 3"},
		{name: "attack: hostile namespaces that were there before leave the rest", waiters: []Waiter{
			waiterOf("hostile", "one", 0, manyNamespaces("h", 3)...),
			waiterOf("hostile", "two", 0, manyNamespaces("i", 3)...),
			waiterOf("later", "one", 1, manyNamespaces("z", 3)...)},
			want: "hostile/one 0 of 3, hostile/two 1 of 3, later/one 0 of 3"},
		{name: "Policies need no watch", waiters: []Waiter{waiterOf("a", "one", 0, policies...)},
			want: "a/one 0 of 15"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				b := NewBudget(limits)
				arrival := slices.Clone(tc.waiters)
				order.Shuffle(len(arrival), func(i, j int) { arrival[i], arrival[j] = arrival[j], arrival[i] })
				for i, w := range arrival {
					before := map[Ref]string{}
					for _, other := range arrival[:i] {
						before[PolicyRef(other.Namespace, other.Name)] = beyondOf(b, []Waiter{other})
					}
					changed := b.Set(w)
					for _, other := range arrival[:i] {
						ref := PolicyRef(other.Namespace, other.Name)
						if differs := beyondOf(b, []Waiter{other}) != before[ref]; differs &&
							!slices.Contains(changed, ref) {
							t.Errorf("%s is not said to have changed by %s/%s", ref, w.Namespace, w.Name)
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
				if len(b.namespaces)+len(b.areas)+len(b.closed) > 0 {
					t.Fatalf("left behind are %v, %v, %v", b.namespaces, b.areas, b.closed)
				}
			}
		})
	}
}

// TestA2BudgetIsGivenBack deletes an older Policy, and a newer one takes its share.
func TestA2BudgetIsGivenBack(t *testing.T) {
	b := NewBudget(Limits{PolicyWatches: 2, NamespaceWatches: 2, Watches: 2, Objects: 10})
	b.Set(waiterOf("a", "old", 0, manyNamespaces("n", 2)...))
	b.Set(waiterOf("b", "new", 1, manyNamespaces("m", 2)...))
	if !b.Beyond("b", "new", widget("m-000", "x")) {
		t.Error("the newer one is within")
	}
	if changed := b.Set(waiterOf("a", "old", 0)); !slices.Equal(changed, []Ref{PolicyRef("b", "new")}) ||
		b.Beyond("b", "new", widget("m-000", "x")) {
		t.Errorf("changed are %v", changed)
	}
}

// TestA2TooMany: an object that is not watched takes nothing back.
func TestA2TooMany(t *testing.T) {
	f := Evaluate(Dependency{Ref: widget("victim", "x"), Want: Compliant},
		Observed{Reason: TooMany, Detail: DefaultLimits.BeyondText()})
	if f.Met || !f.Undecided || f.Unread || !strings.HasPrefix(f.Text, "too many objects are waited for") {
		t.Errorf("got %+v", f)
	}
}

func BenchmarkBudget(b *testing.B) {
	budget := NewBudget(DefaultLimits)
	for i := range 2_000 {
		budget.Set(waiterOf(fmt.Sprintf("n%d", i%100), fmt.Sprintf("p%d", i), 0, manyNamespaces("n", 1+i%50)...))
	}
	one := waiterOf("n1", "one", 0, manyNamespaces("n", 3)...)
	none := waiterOf("n1", "one", 0)
	b.ReportAllocs()
	for b.Loop() {
		budget.Set(one)
		budget.Set(none)
	}
}
