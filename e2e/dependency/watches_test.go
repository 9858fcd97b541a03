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

// TestDependencyWatches watches the dependencies of Policies in a real API server, as far as no script of TestDependency
// shows it. Tests wait for notifications and never poll. Its cluster is its own: requests and notifications are counted.
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
			"a version that is served later":                   watchVersionServedLater,
			"one watch for an object that many wait for":       watchIsShared,
			"a right to one object is enough for it alone":     watchOneName,
			"a right to list and not to watch":                 watchListOnly,
			"names that nothing can have":                      watchImpossible,
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
