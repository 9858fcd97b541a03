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
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

const (
	// firstResync is longer than OLM's own retries. After its resync OLM resolves again by itself.
	firstResync = 3 * time.Second
	lastResync  = 15 * time.Minute
)

// pendingResync is the next attempt to make OLM resolve a namespace in which it has no plan and writes none. It tries
// nine times within two seconds and then stops until its next resync, after 15 minutes: an upgrade that it planned
// while no webhook endpoint answered would be delayed that long. One whose plan was deleted early would wait forever:
// OLM v0.42 clears the reference only if the conditions change as well. And one that it resolved while it deleted the
// replaced ClusterServiceVersion, or linked a new one, or while a catalog was unhealthy that is gone, waits for its
// resync.
type pendingResync struct {
	next time.Time
	wait time.Duration // after next
}

// due reports whether to make OLM resolve a namespace again now, and the time until the next attempt; 0 for a
// namespace that needs none. The intervals double, since the cause may last, and end at the interval of OLM's
// resync: the condition that shows the failure remains after OLM has succeeded.
func (p *pendingResync) due(failing bool, now time.Time) (due bool, after time.Duration) {
	switch {
	case !failing:
		*p = pendingResync{}
		return false, 0
	case p.wait == 0:
		*p = pendingResync{next: now.Add(firstResync), wait: firstResync}
	case p.wait > lastResync:
		return false, 0
	case !now.Before(p.next):
		due = true
		p.wait *= 2
		p.next = now.Add(p.wait)
	}
	return due, p.next.Sub(now)
}

// resync makes OLM resolve again if it has no plan, and repeat a plan that an outage of Opgate has failed. It returns
// the delay until the namespace is reconciled again without an event, 0 for never.
func (r *Controller) resync(
	ctx context.Context, namespace string, ns *state.Namespace, w *compliance.Input,
) (after time.Duration, err error) {
	noted := r.state.namespace(namespace)
	acts := len(noted.removed.deleted) > 0 || slices.ContainsFunc(ns.Policies(),
		func(p *operatorpolicy.Policy) bool { return p.Enforced })
	subscriptions := w.Namespace.Subscriptions()
	i := slices.IndexFunc(subscriptions, func(s *olm.Subscription) bool {
		return refused(s) || rules.FailureOutdated(s, w.Namespace.CSVs()) ||
			compliance.CatalogRecovered(s, w.Catalogs, w.CatalogSource) || rules.Dangling(s, ns) || interrupted(s, ns) != nil
	})
	now := r.Now()
	due, after := noted.resync.due(i >= 0 && acts, now)
	if !due {
		return after, nil
	}
	sub := subscriptions[i]
	switch err := r.repair(ctx, sub, ns, now); {
	case apply.Outdated(err):
		return after, nil // the object changed, which is the purpose
	case err != nil:
		return after, fmt.Errorf("trigger OLM re-resolution for Subscription %s/%s: %w", namespace, sub.Metadata.Name,
			err)
	}
	log.FromContext(ctx).Info("triggered OLM re-resolution", "namespace", namespace, "name", sub.Metadata.Name)
	return after, nil
}

// repair makes OLM work on a Subscription again.
func (r *Controller) repair(ctx context.Context, sub *olm.Subscription, ns *state.Namespace, now time.Time) error {
	if plan := interrupted(sub, ns); plan != nil {
		// As OLM does when the rights of the account change.
		return r.Writer.Patch(ctx, apply.Version(snapshot.InstallPlans, &plan.Metadata),
			map[string]any{"status": map[string]any{"phase": olm.PhaseInstalling}}, "status")
	}
	if rules.Dangling(sub, ns) {
		// As OLM does, unless the plan was deleted before OLM had set a condition for it.
		return r.Writer.Patch(ctx, apply.Version(snapshot.Subscriptions, &sub.Metadata), map[string]any{
			"status": map[string]any{"installPlanRef": nil, "installplan": nil, "currentCSV": nil, "state": nil,
				"lastUpdated": now.UTC().Format(time.RFC3339)}}, "status")
	}
	return r.Writer.Resync(ctx, sub, now)
}

// refused reports whether OLM could not write the plan for a Subscription.
func refused(s *olm.Subscription) bool {
	c := s.Condition(compliance.TypeBundleUnpackFailed)
	return c != nil && c.Reason == "EnsureInstallPlanFailed"
}

// interrupted returns the plan of a Subscription if an outage of Opgate has failed it, else nil. Earlier plans are
// outdated.
func interrupted(s *olm.Subscription, ns *state.Namespace) *olm.InstallPlan {
	if plan := compliance.PlanNamed(ns, s.Status.InstallPlan.Name); plan != nil && rules.Interrupted(plan) {
		return plan
	}
	return nil
}

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
func (r *Controller) removeStale(ctx context.Context, ns *state.Namespace, plan *olm.InstallPlan) (
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
	switch err := r.Writer.Delete(ctx, object); {
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
	return true, "", 0, r.Writer.Done(ctx, object, nil)
}

// ownedBySubscription reports whether a plan has owners as OLM sets them. In a namespace that is judged only OLM
// creates plans.
func ownedBySubscription(plan *metav1.PartialObjectMetadata, ns *state.Namespace) bool {
	return slices.ContainsFunc(plan.OwnerReferences, func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(ns.Subscriptions(),
			func(s *olm.Subscription) bool { return string(o.UID) == s.Metadata.UID })
	})
}

// planLag is how long a plan that a Subscription refers to may be missing before that is reported. OLM writes a plan, then
// its status, and last the Subscription's reference to it; each arrives by a separate watch, and not always in that order.
const planLag = time.Second

// behind returns how long no policy of a namespace is evaluated, since a plan that a Subscription refers to may not have
// arrived: one that is about to be approved would be reported as missing, or as not going to be approved.
func (r *Controller) behind(ns *state.Namespace) time.Duration {
	missing := ""
	for _, sub := range ns.Subscriptions() {
		if name := sub.Status.InstallPlan.Name; name != "" && !written(ns, name) {
			missing += sub.Metadata.UID + " " + sub.Metadata.ResourceVersion + " "
		}
	}
	state := r.state.namespace(ns.Name())
	if state.missing != missing {
		state.missing, state.missingSince = missing, r.Now()
	}
	if missing == "" {
		return 0
	}
	return max(0, planLag-r.Now().Sub(state.missingSince))
}

// written reports whether OLM has written a plan in full.
func written(ns *state.Namespace, name string) bool {
	plan := compliance.PlanNamed(ns, name)
	return plan != nil && plan.Status.Phase != ""
}
