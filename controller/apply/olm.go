package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// Approve approves a plan only if it is in the state that was judged: if OLM or another replica has changed it since,
// the error is Outdated.
func (w *Writer) Approve(ctx context.Context, plan *olm.InstallPlan) error {
	err := w.patch(ctx, Version(snapshot.InstallPlans, &plan.Metadata),
		map[string]any{"spec": map[string]any{"approved": true}})
	w.Metrics.approved(err)
	if err != nil {
		return fmt.Errorf("approve InstallPlan %s: %w", plan.Metadata.Key(), err)
	}
	return nil
}

// Approved waits until the snapshot shows approvals of plans of one namespace, so that none is sent twice.
func (w *Writer) Approved(ctx context.Context, plans []*olm.InstallPlan) error {
	if len(plans) == 0 {
		return nil
	}
	return w.Store.Wait(ctx, snapshot.InstallPlans, "", func(s *snapshot.Snapshot) bool {
		now := map[string]*olm.InstallPlan{}
		for _, plan := range s.Namespace(plans[0].Metadata.Namespace).Plans() {
			now[plan.Metadata.UID] = plan
		}
		return !slices.ContainsFunc(plans, func(plan *olm.InstallPlan) bool {
			return now[plan.Metadata.UID] != nil && !now[plan.Metadata.UID].Spec.Approved
		})
	})
}

// Resync makes OLM resolve the namespace of a Subscription again. OLM treats an unsatisfiable resolution as final: it
// resolves again when a Subscription, an OperatorGroup or the namespace changes, or after 15 minutes, but not when a
// ClusterServiceVersion changes. If the Subscription has changed since it was read, the error is Outdated.
func (w *Writer) Resync(ctx context.Context, sub *olm.Subscription, now time.Time) error {
	return w.Patch(ctx, Version(snapshot.Subscriptions, &sub.Metadata), map[string]any{"metadata": map[string]any{
		"annotations": rules.ResyncRequest(now.UTC().Format(time.RFC3339))}})
}
