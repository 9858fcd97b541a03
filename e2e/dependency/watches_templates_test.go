package dependency

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
)

func watchTemplates(t *testing.T, c *cluster.Cluster) {
	w := watchAs(t, c, reader(t, c), watches.Options{})
	definition := watchedCRD("Made", "Namespaced", nil, "v1")
	made := watchedTarget("Made", "shop", "db")
	made.Template = true
	w.Set(another, []watches.Target{made})
	w.untilSeen(t, another, made, dependency.NoKind, "")
	w.put(t, definition)
	w.put(t, watchedCRD("Broad", "Cluster", map[string]any{metakey.PolicyType: "template"}, "v1"))
	w.until(t, another, "the kind is there", func() bool { return w.Lookup(watchedGroup, "Made") != nil })
	if ready, forbidden := w.Template(watchedGroup, "Made"); ready || forbidden != nil ||
		len(w.requests.of("mades")) > 0 {
		t.Errorf("a kind that is none of templates is read: %v %v %v", ready, forbidden, w.requests.of("mades"))
	}
	w.patch(t, definition, `{"metadata":{"labels":{"policy.open-cluster-management.io/policy-type":"template"}}}`)
	w.until(t, another, "templates may be of the kind",
		func() bool { ready, _ := w.Template(watchedGroup, "Made"); return ready })
	w.untilSeen(t, another, made, dependency.NotFound, "")

	labelled := watchedObject("Made", "shop", "db", dependency.Compliant)
	labelled.SetLabels(map[string]string{metakey.Policy: waiter.Name,
		metakey.ClusterNamespace: "elsewhere"})
	w.put(t, labelled)
	w.put(t, watchedObject("Made", "shop", "unlabelled", dependency.Compliant))
	owned := func(parent types.NamespacedName) string {
		var names []string
		for _, u := range w.Owned(parent) {
			state, _, _ := unstructured.NestedString(u.Object, "status", "compliant")
			names = append(names, u.GetKind()+" "+u.GetName()+" "+state)
		}
		return strings.Join(names, ", ")
	}
	w.until(t, waiter, "its object is there", func() bool { return owned(waiter) == "Made db Compliant" })
	w.until(t, waiter, "the object of the target is there",
		func() bool { return w.Observe(made).State == dependency.Compliant })
	w.patch(t, labelled, `{"status":{"compliant":"NonCompliant"}}`)
	w.until(t, waiter, "its object changed", func() bool { return owned(waiter) == "Made db NonCompliant" })

	// An object changes its owner: both are notified.
	w.patch(t, labelled, `{"metadata":{"labels":{"`+metakey.Policy+`":"another"}}}`)
	w.until(t, waiter, "its object is gone", func() bool { return owned(waiter) == "" })
	w.until(t, another, "it has the object", func() bool { return owned(another) == "Made db NonCompliant" })
	w.patch(t, labelled, `{"metadata":{"labels":{"`+metakey.Policy+`":null}}}`)
	w.until(t, another, "its object is gone", func() bool { return owned(another) == "" })

	broad := watchedObject("Broad", "", "db", dependency.Unknown)
	broad.SetLabels(map[string]string{metakey.Policy: waiter.Name,
		metakey.ClusterNamespace: waiter.Namespace})
	w.put(t, broad)
	w.until(t, waiter, "it has an object without a namespace", func() bool { return owned(waiter) == "Broad db " })
	if w.Open() != 0 || len(w.requests.of("fieldSelector")) != 0 {
		t.Errorf("objects of templates are followed each on its own: %v", w.requests.of("fieldSelector"))
	}

	w.delete(t, watchedCRD("Broad", "Cluster", nil, "v1"))
	w.until(t, waiter, "the kind is gone", func() bool { return owned(waiter) == "" })
	w.delete(t, definition)
	w.untilSeen(t, another, made, dependency.NoKind, "")
	if ready, _ := w.Template(watchedGroup, "Made"); ready {
		t.Error("templates of a kind that is gone are ready")
	}
}

func watchTemplatesForbidden(t *testing.T, c *cluster.Cluster) {
	guest := newGuest(t, c, "guest-templates")
	w := watchAs(t, c, guest.config, watches.Options{})
	definition := watchedCRD("Guarded", "Namespaced", map[string]any{metakey.PolicyType: "template"}, "v1")
	w.put(t, definition)
	made := watchedTarget("Guarded", "shop", "db")
	made.Template = true
	w.Set(waiter, []watches.Target{made})
	w.untilSeen(t, waiter, made, dependency.Forbidden, "")
	const want = "the right to list and watch guardeds." + watchedGroup + " in all namespaces is missing"
	if ready, err := w.Template(watchedGroup, "Guarded"); ready || err == nil || err.Error() != want {
		t.Errorf("ready is %v, the error %v; want %s", ready, err, want)
	}
	guest.grant(t, "guardeds", "", "")
	w.patch(t, definition, `{"metadata":{"annotations":{"changed":"yes"}}}`)
	w.until(t, waiter, "they may be read",
		func() bool { ready, err := w.Template(watchedGroup, "Guarded"); return ready && err == nil })
}
