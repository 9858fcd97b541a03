package constraint

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// soonSeen is long enough for OLM to have a virtual operator in its cache.
const soonSeen = time.Second

// nudge makes OLM resolve a namespace again. What cannot be satisfied it takes for final: it looks again when a Subscription, an
// OperatorGroup or the namespace changes, or after a quarter of an hour, and never because of a ClusterServiceVersion.
func (r *reconciler) nudge(ctx context.Context, ns *rules.Namespace) error {
	for _, sub := range ns.Subscriptions() {
		if sub.Metadata.DeletionTimestamp != "" {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{rules.NudgedAtAnnotation: r.Now().UTC().Format(time.RFC3339)}}})
		if err != nil {
			return err
		}
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(olm.SubscriptionGVK)
		object.SetNamespace(sub.Metadata.Namespace)
		object.SetName(sub.Metadata.Name)
		err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
		r.Wrote("patch", olm.KindSubscription, err)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("nudge OLM for Subscription %s/%s: %w", sub.Metadata.Namespace, sub.Metadata.Name, err)
		}
		return nil
	}
	return nil
}
