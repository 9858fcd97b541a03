package constraint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// switchApprovals makes the Subscriptions of a namespace require approval if they were created before a Constraint that applies, and
// switches them back when none applies any more. Webhooks handle those that are written in the meantime.
func (r *reconciler) switchApprovals(ctx context.Context, ns *rules.Namespace) error {
	var errs []error
	for _, sub := range ns.Subscriptions() {
		if changes := rules.ApprovalChanges(sub, ns); len(changes) > 0 && sub.Metadata.DeletionTimestamp == "" {
			errs = append(errs, r.switchApproval(ctx, sub, changes))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) switchApproval(ctx context.Context, sub *olm.Subscription, changes []rules.Change) error {
	patch, err := json.Marshal(locked(sub.Metadata.ResourceVersion, rules.Patch(changes)))
	if err != nil {
		return err
	}
	object := &metav1.PartialObjectMetadata{} // the response is not needed
	object.SetGroupVersionKind(olm.SubscriptionGVK)
	object.SetNamespace(sub.Metadata.Namespace)
	object.SetName(sub.Metadata.Name)
	err = r.client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch))
	r.Wrote("patch", olm.KindSubscription, err)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the object changed: its event enqueues the namespace
	case err != nil:
		return fmt.Errorf("switch the approval of Subscription %s/%s: %w", sub.Metadata.Namespace, sub.Metadata.Name, err)
	}
	log.FromContext(ctx).Info("approval of Subscription switched", "namespace", sub.Metadata.Namespace, "name", sub.Metadata.Name, "because", changes[0].Message)
	return nil
}

// locked makes a patch apply only to the state that was judged. Writing the expected resourceVersion fails with a conflict
// if the object has changed; a JSON patch test would fail as a patch that cannot be processed.
func locked(resourceVersion string, patch []rules.PatchOperation) []rules.PatchOperation {
	return append([]rules.PatchOperation{{Op: "replace", Path: "/metadata/resourceVersion", Value: resourceVersion}}, patch...)
}
