package operatorpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// catalogLag is how long PackageManifests may lack a version of which OLM has made a plan.
const catalogLag = time.Minute

// removals records the stale plans that were deleted, by namespace, so that no plan is deleted again and again. It is in
// memory: after a restart at most one more plan of each namespace is deleted, which OLM makes again within seconds. The
// zero value is ready for use.
type removals struct {
	mu sync.Mutex
	of map[string]removal
}

// removal is what was deleted for one generation of each Subscription of a namespace.
type removal struct {
	subscriptions string
	lists         []string
}

// before reports whether a plan with these ClusterServiceVersions was deleted since a Subscription changed, and records
// that it is.
func (m *removals) before(current *snapshot.Snapshot, plan *olm.InstallPlan) bool {
	namespace, subscriptions := plan.Metadata.Namespace, ""
	for _, o := range current.Objects(snapshot.Subscriptions, snapshot.InNamespace(namespace)) {
		subscriptions += fmt.Sprintf("%s %d\n", o.UID, o.Generation)
	}
	list := strings.Join(slices.Sorted(slices.Values(plan.Spec.CSVNames)), " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.of[namespace]
	if last.subscriptions != subscriptions {
		last = removal{subscriptions: subscriptions}
	}
	if slices.Contains(last.lists, list) {
		return true
	}
	if m.of == nil {
		m.of = map[string]removal{}
	}
	last.lists = append(last.lists, list)
	m.of[namespace] = last
	return false
}

// failed drops the last plan of a namespace that was recorded: it is not deleted.
func (m *removals) failed(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.of[namespace]; len(last.lists) > 0 {
		last.lists = last.lists[:len(last.lists)-1]
		m.of[namespace] = last
	}
}

// forget drops what is known of a namespace in which nothing is approved.
func (m *removals) forget(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, namespace)
}

// any reports whether a plan of a namespace was deleted.
func (m *removals) any(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.of[namespace]
	return known
}

// removeStale deletes a plan that is not approved and cannot be what its Subscriptions ask for any more, since OLM
// resolves nothing new while it waits. For a plan that stays it returns the sentence for the status, and the delay until
// it may be deleted.
func (r *reconciler) removeStale(ctx context.Context, ns *rules.Namespace, plan *olm.InstallPlan) (
	removed bool, stays string, after time.Duration, err error) {
	in := rules.StaleInput{Plan: plan, Namespace: ns, Packages: r.Packages.Version, Settled: true}
	why := rules.Stale(in)
	if why == "" {
		return false, "", 0, nil
	}
	created, _ := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	if wait := created.Add(catalogLag).Sub(r.Now()); wait > 0 {
		if in.Settled = false; rules.Stale(in) == "" {
			return false, "", wait, nil
		}
	}
	key := types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name}
	head := apply.Head(snapshot.InstallPlans, key)
	stays = rules.StaleAdvice(plan, why)
	switch err := r.reader.Get(ctx, key, head); {
	case apply.Outdated(err):
		return true, "", 0, nil
	case err != nil:
		return false, stays, 0, fmt.Errorf("read InstallPlan %s: %w", key, err)
	case !ownedBySubscription(head, ns):
		return false, stays + "; it is not deleted, since its owners do not show that OLM made it", 0, nil
	case r.removals.before(r.Store.Load(), plan):
		return false, stays + "; it was deleted once, and OLM has made the same one again", 0, nil
	}
	object := &unstructured.Unstructured{Object: plan.Metadata.Reference(olm.InstallPlanGVK)}
	if err := r.writer.Do(ctx, apply.Delete, object, object); err != nil {
		r.removals.failed(key.Namespace)
		if apply.Outdated(err) {
			return true, "", 0, nil
		}
		return false, stays, 0, fmt.Errorf("delete stale InstallPlan %s: %w", key, err)
	}
	r.Events.Record(events.Event{Regarding: planReference(plan), Reason: events.Stale, Action: events.Delete,
		Note: "deleted, so that OLM plans again: " + why})
	log.FromContext(ctx).Info("stale plan deleted", "plan", plan.Metadata.Name, "csvs", plan.Spec.CSVNames, "reason", why)
	return true, "", 0, r.writer.Done(ctx, apply.Delete, object)
}

// ownedBySubscription reports whether a plan has owners as OLM sets them. In a namespace that is judged only OLM creates plans.
func ownedBySubscription(plan *metav1.PartialObjectMetadata, ns *rules.Namespace) bool {
	return slices.ContainsFunc(plan.OwnerReferences, func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(ns.Subscriptions(), func(s *olm.Subscription) bool { return string(o.UID) == s.Metadata.UID })
	})
}
