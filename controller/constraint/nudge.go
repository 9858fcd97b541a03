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

// soonSeen is long enough for a virtual operator to reach OLM's cache.
const soonSeen = time.Second

// nudge makes OLM resolve a namespace again. OLM treats an unsatisfiable resolution as final: it resolves again when a Subscription, an
// OperatorGroup or the namespace changes, or after 15 minutes, but not when a ClusterServiceVersion changes.
func (r *reconciler) nudge(ctx context.Context, ns *rules.Namespace) error {
	for _, sub := range ns.Subscriptions() {
		if sub.Metadata.DeletionTimestamp != "" {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": rules.ResyncRequest(r.Now().UTC().Format(time.RFC3339))}})
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
