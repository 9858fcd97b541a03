package constraint

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// switchApprovals makes the Subscriptions of a namespace require approval if they were created before a Constraint that
// applies, and switches them back when none applies any more. Webhooks handle those that are written in the meantime.
func (r *reconciler) switchApprovals(ctx context.Context, ns *state.Namespace) error {
	var errs []error
	for _, sub := range ns.Subscriptions() {
		if changes := rules.ApprovalChanges(sub, ns); len(changes) > 0 && sub.Metadata.DeletionTimestamp == "" {
			errs = append(errs, r.switchApproval(ctx, sub, changes))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) switchApproval(ctx context.Context, sub *olm.Subscription, changes []verdict.Change) error {
	patch := apply.Locked(sub.Metadata.ResourceVersion, verdict.Patch(changes))
	switch err := r.writer.Patch(ctx, apply.Head(snapshot.Subscriptions, keyOf(sub)), patch); {
	case apply.Outdated(err):
		return nil
	case err != nil:
		return fmt.Errorf("switch the approval of Subscription %s: %w", keyOf(sub), err)
	}
	log.FromContext(ctx).Info("approval of Subscription switched", "namespace", sub.Metadata.Namespace,
		"name", sub.Metadata.Name,
		"because", changes[0].Message)
	return nil
}

// resync makes OLM resolve a namespace again, by one of its Subscriptions.
func (r *reconciler) resync(ctx context.Context, ns *state.Namespace) error {
	for _, sub := range ns.Subscriptions() {
		if sub.Metadata.DeletionTimestamp != "" {
			continue
		}
		if err := r.writer.Resync(ctx, sub, r.Now()); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("trigger OLM re-resolution for Subscription %s: %w", keyOf(sub), err)
		}
		return nil
	}
	return nil
}

func keyOf(sub *olm.Subscription) types.NamespacedName {
	return types.NamespacedName{Namespace: sub.Metadata.Namespace, Name: sub.Metadata.Name}
}
