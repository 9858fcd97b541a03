package operatorpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
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
func (r *reconciler) resync(
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
func (r *reconciler) repair(ctx context.Context, sub *olm.Subscription, ns *state.Namespace, now time.Time) error {
	if plan := interrupted(sub, ns); plan != nil {
		// As OLM does when the rights of the account change.
		return r.writer.Patch(ctx, apply.Version(snapshot.InstallPlans, &plan.Metadata),
			map[string]any{"status": map[string]any{"phase": olm.PhaseInstalling}}, "status")
	}
	if rules.Dangling(sub, ns) {
		// As OLM does, unless the plan was deleted before OLM had set a condition for it.
		return r.writer.Patch(ctx, apply.Version(snapshot.Subscriptions, &sub.Metadata), map[string]any{
			"status": map[string]any{"installPlanRef": nil, "installplan": nil, "currentCSV": nil, "state": nil,
				"lastUpdated": now.UTC().Format(time.RFC3339)}}, "status")
	}
	return r.writer.Resync(ctx, sub, now)
}

// refused reports whether OLM could not write the plan for a Subscription.
func refused(s *olm.Subscription) bool {
	c := s.Condition(compliance.TypeBundleUnpackFailed)
	return c != nil && c.Reason == "EnsureInstallPlanFailed"
}

// interrupted returns the plan of a Subscription if an outage of Opgate has failed it, else nil. Earlier plans are
// outdated.
func interrupted(s *olm.Subscription, ns *state.Namespace) *olm.InstallPlan {
	if plan := planNamed(ns, s.Status.InstallPlan.Name); plan != nil && rules.Interrupted(plan) {
		return plan
	}
	return nil
}
