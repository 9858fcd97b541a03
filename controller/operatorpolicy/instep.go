package operatorpolicy

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/controller/seen"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// What OLM writes comes here by several watches, and so not always in the order in which it was written: plans and Subscriptions
// by those of the snapshot, by which plans are judged, and Subscriptions once more by that of the cache, from which policies
// are evaluated. OLM writes a plan, then its status, and last which plan a Subscription follows. Were the last evaluated before
// the others are known, a plan that is approved in a moment would be reported as one that is not there, or that nobody approves.
// Subscriptions that only one of the two has count for nothing here: they were deleted, or cannot be read.

// planTimeout is how long a plan may take to follow the Subscription that names it. It takes milliseconds; a plan that is gone
// is reported after that.
const planTimeout = 250 * time.Millisecond

// latePlans remembers since when a Subscription names a plan of which nothing is known yet, by namespace. The zero value is ready
// for use.
type latePlans struct {
	mu    sync.Mutex
	since map[string]latePlan
}

type latePlan struct {
	name string
	at   time.Time
}

// wait gives how long to wait for a plan that is late, "" for none; 0 is not at all.
func (l *latePlans) wait(namespace, name string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name == "" {
		delete(l.since, namespace)
		return 0
	}
	if l.since == nil {
		l.since = map[string]latePlan{}
	}
	if l.since[namespace].name != name {
		l.since[namespace] = latePlan{name, now}
	}
	return max(0, l.since[namespace].at.Add(planTimeout).Sub(now))
}

// late names a plan that a Subscription follows and that OLM has not written in full, as far as the snapshot knows.
func late(ns *rules.Namespace) string {
	for _, s := range ns.Subscriptions() {
		name := s.Status.InstallPlan.Name
		if name != "" && !slices.ContainsFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == name && p.Status.Phase != "" }) {
			return name
		}
	}
	return ""
}

// upToSnapshot waits until the Subscriptions of the cache are at least as new as those of the snapshot.
func (r *reconciler) upToSnapshot(ctx context.Context, namespace string, ns *rules.Namespace) error {
	if len(ns.Subscriptions()) == 0 {
		return nil
	}
	var failed error
	err := seen.Wait(ctx, func() bool {
		cached := map[string]string{}
		failed = r.each(ctx, gvkSubscription, namespace, func(u *unstructured.Unstructured) { cached[u.GetName()] = u.GetResourceVersion() })
		for _, s := range ns.Subscriptions() {
			if version, ok := cached[s.Metadata.Name]; ok && seen.Older(version, s.Metadata.ResourceVersion) {
				return false
			}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

// ahead tells whether a Subscription was observed that is newer than that of the snapshot.
func (w *world) ahead(ns *rules.Namespace) bool {
	known := map[string]string{}
	for _, s := range ns.Subscriptions() {
		known[s.Metadata.Name] = s.Metadata.ResourceVersion
	}
	for i := range w.subscriptions {
		observed := unstructured.Unstructured{Object: w.subscriptions[i].Content}
		if version, ok := known[observed.GetName()]; ok && seen.Older(version, observed.GetResourceVersion()) {
			return true
		}
	}
	return false
}
