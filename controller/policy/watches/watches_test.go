package watches

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// widgets returns targets of a kind that is served, each in another namespace.
func widgets(prefix string, count int) []Target {
	var all []Target
	for i := range count {
		all = append(all, Target{Ref: dependency.Ref{Group: "example.com", Kind: "Widget",
			Namespace: fmt.Sprintf("%s-%03d", prefix, i), Name: "x"}})
	}
	return all
}

// running returns Watches that watch nothing, with the owners that they notify.
func running() (w *Watches, notified *[]string) {
	notified = &[]string{}
	w = New(Options{Notify: func(owner types.NamespacedName) { *notified = append(*notified, owner.String()) }})
	w.setRun(func(f *watch) { f.stop = func() {} })
	w.Define(nil, definitionObject("Widget", nil, "v1 served stored"))
	return w, notified
}

func policyIn(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestA2Limits: the Policies of a namespace need 40 watches at most, and all together 400 (threat O23). A Policy never
// takes a watch from another one, and what waits for room is notified once there is some.
func TestA2Limits(t *testing.T) {
	w, notified := running()
	wide := widgets("victim", 50)
	one, two, other := policyIn("a", "one"), policyIn("a", "two"), policyIn("b", "other")
	beyond := func(owner types.NamespacedName, targets []Target) (count int) {
		for _, target := range targets {
			if w.Beyond(owner, target) {
				count++
			}
		}
		return count
	}
	w.Set(one, wide[:39])
	w.Set(two, slices.Concat(wide[:10], wide[45:48]))
	if w.Open() != 40 || beyond(one, wide[:39]) != 0 || beyond(two, wide[:10]) != 0 || beyond(two, wide[45:48]) != 2 {
		t.Errorf("%d are open, beyond are %d and %d", w.Open(), beyond(one, wide[:39]), beyond(two, wide[45:48]))
	}
	if beyond(two, []Target{{Ref: dependency.PolicyRef("a", "p")}, {Ref: dependency.SetRef("a", "s")},
		{Ref: dependency.Ref{Group: "example.com", Kind: "Gadget", Namespace: "a", Name: "x"}}}) != 0 {
		t.Error("what is not watched is beyond a limit")
	}
	w.Set(other, wide) // whose watches are the namespace's own, shared or not
	if w.Open() < 40 || w.Open() > 80 || beyond(other, wide) != 10 {
		t.Errorf("%d are open, beyond are %d of another namespace", w.Open(), beyond(other, wide))
	}
	*notified = nil
	w.Set(one, wide[:38])
	if !slices.Contains(*notified, two.String()) {
		t.Errorf("notified are %v", *notified)
	}
	w.Set(two, slices.Concat(wide[:10], wide[45:48]))
	if beyond(two, wide[45:48]) != 1 {
		t.Errorf("%d are beyond the limit", beyond(two, wide[45:48]))
	}
	for i := range 12 {
		namespace := fmt.Sprintf("hostile-%02d", i)
		w.Set(policyIn(namespace, "p"), widgets(namespace, 40))
	}
	if last := widgets("hostile-11", 40); w.Open() != 400 || beyond(policyIn("hostile-11", "p"), last) == 0 ||
		beyond(one, wide[:38]) != 0 {
		t.Errorf("%d are open, %d beyond", w.Open(), beyond(policyIn("hostile-11", "p"), last))
	}
	for i := range 12 {
		w.Set(policyIn(fmt.Sprintf("hostile-%02d", i), "p"), nil)
	}
	w.Set(two, nil)
	w.Set(other, nil)
	w.Set(one, nil)
	if w.Open() != 0 || len(w.beyond) != 0 {
		t.Errorf("%d are open, and %v wait", w.Open(), w.beyond)
	}
	if !strings.HasPrefix(TooMany, "too many objects are waited for: the Policies of a namespace may wait for objects of 40 kinds") {
		t.Error(TooMany)
	}
}
