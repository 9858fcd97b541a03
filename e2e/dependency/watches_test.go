package dependency

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules/dependency"
)

var (
	waiter   = types.NamespacedName{Namespace: "shop", Name: "waiting"}
	another  = types.NamespacedName{Namespace: "shop", Name: "another"}
	starting = types.NamespacedName{Namespace: "shop", Name: "starting"}
)

// TestDependencyWatches watches the dependencies of Policies in a real API server. Tests wait for notifications and
// never poll. Its cluster is its own: requests and notifications are counted.
func TestDependencyWatches(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, cluster.Options{Bare: true, WithoutOLM: true, Log: t.Output()})
	// What is served from the start; the API server takes a second until a new kind answers.
	admin, err := harness.NewClient(c, cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []*unstructured.Unstructured{watchedCRD("Widget", "Namespaced", nil, "v1"),
		watchedCRD("Gadget", "Cluster", nil, "v1"),
		watchedObject("Widget", "shop", "always", dependency.Compliant),
		watchedObject("Gadget", "", "always", dependency.Compliant)} {
		putWatched(t, admin, u)
	}
	t.Run("watches", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *cluster.Cluster){
			"a kind that comes, goes and comes back":           watchKindComesAndGoes,
			"a version that is served later":                   watchVersionServedLater,
			"one watch for an object that many wait for":       watchIsShared,
			"what may not be read is read once it may":         watchForbidden,
			"a right to one object is enough for it alone":     watchOneName,
			"a right to list and not to watch":                 watchListOnly,
			"an object that goes, slowly and at once":          watchDeletion,
			"objects of templates":                             watchTemplates,
			"objects of templates that may not be read":        watchTemplatesForbidden,
			"names that nothing can have":                      watchImpossible,
			"Policies and PolicySets are named but not read":   watchParents,
			"what was set before the start":                    watchSetBefore,
			"owners that come and go while everything changes": watchChurn,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
}

// reader may read everything.
func reader(t *testing.T, c *cluster.Cluster) *rest.Config {
	t.Helper()
	config, err := c.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func watchKindComesAndGoes(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	bad, fine := watchedTarget("Goer", "shop", "db"), watchedTarget("Widget", "shop", "always")
	w.Set(waiter, []watches.Target{bad, fine})
	w.untilSeen(t, waiter, bad, dependency.NoKind, "")
	if got := w.Observe(bad).Detail; got != "no CustomResourceDefinition serves Goer."+watchedGroup {
		t.Errorf("the detail is %q", got)
	}

	// A kind that is missing holds up no other.
	w.untilSeen(t, waiter, fine, "", dependency.Compliant)
	w.untilSeen(t, waiter, bad, dependency.NoKind, "")

	definition := watchedCRD("Goer", "Namespaced", nil, "v1")
	w.put(t, definition)
	w.untilSeen(t, waiter, bad, dependency.NotFound, "")
	w.put(t, watchedObject("Goer", "shop", "db", dependency.NonCompliant))
	w.untilSeen(t, waiter, bad, "", dependency.NonCompliant)
	w.delete(t, definition)
	w.untilSeen(t, waiter, bad, dependency.NoKind, "")
	if w.Object(bad) != nil {
		t.Error("the object outlives its kind")
	}
	w.untilSeen(t, waiter, fine, "", dependency.Compliant)
	if n := w.Open(); n != 1 {
		t.Errorf("%d objects are followed, want that of the kind that is there", n)
	}
	// What comes back is another kind: the object did not come with it.
	w.put(t, definition)
	w.untilSeen(t, waiter, bad, dependency.NotFound, "")
}

func watchVersionServedLater(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	wanted := watchedTarget("Version", "shop", "db")
	wanted.Version = "v2"
	w.Set(waiter, []watches.Target{wanted})
	w.put(t, watchedCRD("Version", "Namespaced", nil, "v1"))
	w.until(t, waiter, "v1 is served", func() bool {
		return w.Observe(wanted).Detail == "Version."+watchedGroup+" is not served in v2, served is v1"
	})
	if n := w.Open(); n != 0 {
		t.Errorf("%d objects are followed though none is served", n)
	}
	w.put(t, watchedObject("Version", "shop", "db", dependency.Compliant))
	definition := watchedCRD("Version", "Namespaced", nil, "v1", "v2")
	stored, err := w.of(definition).Get(t.Context(), definition.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	definition.SetResourceVersion(stored.GetResourceVersion())
	if _, err := w.of(definition).Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilSeen(t, waiter, wanted, "", dependency.Compliant)
	if got := w.Object(wanted).GetAPIVersion(); got != watchedGroup+"/v1" {
		t.Errorf("it is read in %s, want the version that is stored", got)
	}
}

func watchIsShared(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	// Notifications are counted: no template of another test has these owners.
	waiter := types.NamespacedName{Namespace: "shop", Name: "sharing"}
	another := types.NamespacedName{Namespace: "shop", Name: "sharing-too"}
	object := watchedObject("Gadget", "", "one", dependency.Compliant)
	w.put(t, object)
	// The same object, since the kind has no namespaces and a version does not count.
	first, second := watchedTarget("Gadget", "", "one"), watchedTarget("Gadget", "elsewhere", "one")
	second.Version = "v1"
	w.Set(waiter, []watches.Target{first, first})
	w.untilSeen(t, waiter, first, "", dependency.Compliant)
	w.untilNotified(t, waiter, 1)
	w.Set(another, []watches.Target{second}) // it is known already: no notification
	w.untilSeen(t, another, second, "", dependency.Compliant)
	if got := w.requests.of("/gadgets"); len(got) != 1 || len(w.requests.open("/gadgets")) != 1 {
		t.Errorf("the object is asked for with %v, want one request", got)
	}

	// A change that no Policy depends on notifies no owner; the next one that matters notifies once.
	w.put(t, watchedObject("Gadget", "", "other", dependency.Compliant))
	_, err := w.of(object).Apply(t.Context(), "one",
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": object.GetAPIVersion(), "kind": "Gadget",
			"metadata": map[string]any{"name": "one"}, "status": map[string]any{"compliant": "Compliant"}}},
		metav1.ApplyOptions{FieldManager: "another"})
	if err != nil {
		t.Fatal(err)
	}
	w.patch(t, object, `{"status":{"compliant":"NonCompliant"}}`)
	w.untilSeen(t, waiter, first, "", dependency.NonCompliant)
	w.untilSeen(t, another, second, "", dependency.NonCompliant)
	w.untilNotified(t, waiter, 2)
	w.untilNotified(t, another, 1)
	kept := w.Object(first)
	if _, ok := kept.Object["spec"]; ok || kept.GetManagedFields() != nil || kept.GetResourceVersion() == "" {
		t.Errorf("kept is %v", kept.Object)
	}

	w.Set(waiter, nil)
	if n := w.Open(); n != 1 {
		t.Errorf("%d objects are followed though one is still waited for", n)
	}
	w.patch(t, object, `{"status":{"compliant":"Compliant"}}`)
	w.untilSeen(t, another, second, "", dependency.Compliant)
	w.untilNotified(t, another, 2)
	if n := w.toldTimes(waiter); n != 2 {
		t.Errorf("told %d times though it waits for nothing any more, want twice", n)
	}
	w.Set(another, nil)
	harness.Eventually(t, "the watch ends", func(context.Context) error {
		if open := w.requests.open("/gadgets"); len(open) != 0 || w.Open() != 0 {
			return fmt.Errorf("open are %v", open)
		}
		return nil
	})
	w.Set(another, []watches.Target{second})
	w.untilSeen(t, another, second, "", dependency.Compliant)
	if got := w.requests.of("/gadgets"); len(got) != 2 {
		t.Errorf("asked for with %v, want one request more", got)
	}
}

func watchDeletion(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	object := watchedObject("Widget", "shop", "mortal", dependency.Compliant)
	object.SetFinalizers([]string{watchedGroup + "/held"})
	w.put(t, object)
	target := watchedTarget("Widget", "shop", "mortal")
	w.Set(waiter, []watches.Target{target})
	w.untilSeen(t, waiter, target, "", dependency.Compliant)
	w.delete(t, object)
	w.until(t, waiter, "it is being deleted", func() bool { return w.Object(target).GetDeletionTimestamp() != nil })
	w.patch(t, object, `{"metadata":{"finalizers":null}}`)
	w.untilSeen(t, waiter, target, dependency.NotFound, "")

	object = watchedObject("Widget", "shop", "mortal", dependency.NonCompliant)
	w.put(t, object)
	w.untilSeen(t, waiter, target, "", dependency.NonCompliant)
	w.delete(t, object)
	w.untilSeen(t, waiter, target, dependency.NotFound, "")
}

func watchImpossible(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	var targets []watches.Target
	for _, name := range []string{"", ".", "..", "a/b", "a%2fb"} {
		targets = append(targets, watchedTarget("Widget", "shop", name), watchedTarget("Widget", name, "db"))
	}
	strange := []watches.Target{watchedTarget("Widget", "shop", "Ünlike,ly=x"),
		watchedTarget("Widget", "no-such-namespace", "db")}
	w.Set(waiter, append(targets, strange...))
	for _, target := range append(targets, strange...) {
		w.untilSeen(t, waiter, target, dependency.NotFound, "")
	}
	if n := w.Open(); n != len(strange) {
		t.Errorf("%d objects are followed, want %d: %v", n, len(strange), w.requests.of("widgets"))
	}
}

func watchParents(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	policy := watches.Target{Ref: dependency.PolicyRef("shop", "db"), Version: "v1"}
	own := watches.Target{
		Ref: dependency.Ref{
			Group:     dependency.PolicyGroup,
			Kind:      "ConfigurationPolicy",
			Namespace: "shop",
			Name:      "made",
		},
		Template: true,
	}
	w.Set(waiter, []watches.Target{policy, own})
	w.Set(another, []watches.Target{{Ref: policy.Ref}})
	if got := w.Dependents(policy.Ref); len(got) != 2 {
		t.Errorf("dependents are %v, want both whichever version they name", got)
	}
	if got := w.Dependents(own.Ref); len(got) != 0 {
		t.Errorf("%v waits for its own template", got)
	}
	w.Set(waiter, nil)
	if got := w.Dependents(policy.Ref); len(got) != 1 || got[0] != another {
		t.Errorf("dependents are %v, want %v alone", got, another)
	}
	w.untilSeen(t, another, policy, dependency.NoKind, "")
	if n := w.Open(); n != 0 {
		t.Errorf("%d objects are followed, want none", n)
	}
}

func watchSetBefore(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	w.end(t)
	// These have run: what is set now stays as it is, and starts nothing.
	target := watchedTarget("Widget", "shop", "always")
	w.Set(waiter, []watches.Target{target})
	if w.Open() != 0 || w.Observe(target).Found() {
		t.Error("an object is followed after the end")
	}

	later := watchAs(t, c, reader(t, c), watches.Options{})
	later.Set(waiter, []watches.Target{target})
	if got := later.Observe(target); got.Reason != dependency.NotRead && !got.Found() {
		t.Errorf("it is %+v before it can be known", got)
	}
	later.untilSeen(t, waiter, target, "", dependency.Compliant)
}

// watchChurn has many owners name and drop the same few objects while their kind comes and goes, for the race detector,
// and wants the right ones followed in the end.
func watchChurn(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	definition := watchedCRD("Churned", "Namespaced", nil, "v1")
	w.put(t, definition)
	owner, target := types.NamespacedName{Namespace: "shop", Name: "churn-0"}, watchedTarget("Churned", "shop", "o0")
	w.Set(owner, []watches.Target{target})
	w.untilSeen(t, owner, target, dependency.NotFound, "")
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			owner := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("churn-%d", i)}
			for j := range 50 {
				targets := []watches.Target{watchedTarget("Churned", "shop", fmt.Sprintf("o%d", j%3)),
					watchedTarget("Churned", "shop", fmt.Sprintf("o%d", (i+j)%5))}
				w.Set(owner, targets)
				for _, target := range targets {
					w.Observe(target)
					w.Object(target)
				}
				w.Dependents(targets[0].Ref)
			}
			w.Set(owner, []watches.Target{watchedTarget("Churned", "shop", "o0")})
		}()
	}
	w.delete(t, definition)
	for range 4 {
		<-done
	}
	w.untilSeen(t, owner, target, dependency.NoKind, "")
	w.put(t, definition)
	w.untilSeen(t, owner, target, dependency.NotFound, "")
	if n := w.Open(); n != 1 {
		t.Errorf("%d objects are followed, want one", n)
	}
}
