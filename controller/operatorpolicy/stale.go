package operatorpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// catalogLag is how long PackageManifests may lack a version of which OLM has made a plan.
const catalogLag = time.Minute

// removalDelay is how long a plan stays that OLM has made again after it was deleted, and mostRemovalDelay at most: OLM
// may have made it from a cache that was late, or will make it again and again. It doubles with each deletion.
const removalDelay, mostRemovalDelay = time.Minute, time.Hour

// removal is the stale plans of a namespace that were deleted for one generation of each Subscription, by their
// ClusterServiceVersions. It is in memory: after a restart at most one more plan of each namespace is deleted at once,
// which OLM makes again within seconds.
type removal struct {
	subscriptions string
	deleted       map[string]deletion
}

// deletion is when a plan was deleted last, and how long the same one stays after that.
type deletion struct {
	at    time.Time
	delay time.Duration
}

// wait returns how long a plan stays, since one with these ClusterServiceVersions was deleted after the Subscriptions
// changed last.
func (m *removal) wait(current *snapshot.Snapshot, plan *olm.InstallPlan, now time.Time) time.Duration {
	subscriptions := ""
	for _, o := range current.Objects(snapshot.Subscriptions, snapshot.InNamespace(plan.Metadata.Namespace)) {
		subscriptions += fmt.Sprintf("%s %d\n", o.UID, o.Generation)
	}
	if m.subscriptions != subscriptions || m.deleted == nil {
		*m = removal{subscriptions: subscriptions, deleted: map[string]deletion{}}
	}
	last := m.deleted[versionsOf(plan)]
	return max(0, last.at.Add(last.delay).Sub(now))
}

// done records that a plan was deleted, after wait.
func (m *removal) done(plan *olm.InstallPlan, now time.Time) {
	delay := min(max(removalDelay, 2*m.deleted[versionsOf(plan)].delay), mostRemovalDelay)
	m.deleted[versionsOf(plan)] = deletion{now, delay}
}

func versionsOf(plan *olm.InstallPlan) string {
	return strings.Join(slices.Sorted(slices.Values(plan.Spec.CSVNames)), " ")
}

// removeStale deletes a plan that is not approved and cannot be what its Subscriptions ask for any more, since OLM
// resolves nothing new while it waits. For a plan that stays it returns the sentence for the status, and the delay
// until it may be deleted.
func (r *reconciler) removeStale(ctx context.Context, ns *state.Namespace, plan *olm.InstallPlan) (
	removed bool, stays string, after time.Duration, err error) {
	in := rules.StaleInput{Plan: plan, Namespace: ns, Packages: r.Packages.Version, CatalogsCurrent: true}
	why := rules.Stale(in)
	if why == "" {
		return false, "", 0, nil
	}
	created, _ := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	if wait := created.Add(catalogLag).Sub(r.Now()); wait > 0 {
		if in.CatalogsCurrent = false; rules.Stale(in) == "" {
			return false, "", wait, nil
		}
	}
	key := types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name}
	head := apply.Head(snapshot.InstallPlans, key)
	stays = rules.StaleAdvice(plan, why)
	deleted := &r.state.namespace(key.Namespace).removed
	switch err := r.reader.Get(ctx, key, head); {
	case apply.Outdated(err):
		return true, "", 0, nil
	case err != nil:
		return false, stays, 0, fmt.Errorf("read InstallPlan %s: %w", key, err)
	case !ownedBySubscription(head, ns):
		return false, stays + "; it is not deleted, since its owners do not show that OLM made it", 0, nil
	}
	if after := deleted.wait(r.Store.Load(), plan, r.Now()); after > 0 {
		return false, stays + "; it was deleted, and OLM has made the same one again; it is deleted again within an hour",
			after, nil
	}
	object := &unstructured.Unstructured{Object: plan.Metadata.Reference(olm.InstallPlanGVK)}
	switch err := r.writer.Delete(ctx, object); {
	case apply.Outdated(err):
		return true, "", 0, nil
	case err != nil:
		return false, stays, 0, fmt.Errorf("delete stale InstallPlan %s: %w", key, err)
	}
	deleted.done(plan, r.Now())
	r.Events.Record(events.Event{Regarding: planReference(plan), Reason: events.Stale, Action: events.Delete,
		Note: "deleted, so that OLM plans again: " + why})
	log.FromContext(ctx).Info("stale plan deleted", "namespace", plan.Metadata.Namespace, "name", plan.Metadata.Name,
		"csvs", plan.Spec.CSVNames, "reason", why)
	return true, "", 0, r.writer.Done(ctx, object, nil)
}

// ownedBySubscription reports whether a plan has owners as OLM sets them. In a namespace that is judged only OLM
// creates plans.
func ownedBySubscription(plan *metav1.PartialObjectMetadata, ns *state.Namespace) bool {
	return slices.ContainsFunc(plan.OwnerReferences, func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(ns.Subscriptions(),
			func(s *olm.Subscription) bool { return string(o.UID) == s.Metadata.UID })
	})
}
