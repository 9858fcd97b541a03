package operatorpolicy

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// OLM writes a plan, then its status, and last the Subscription's reference to it. Each arrives by a separate watch,
// and so not always in that order. If policies were evaluated before the plan is known, a plan that is about to be
// approved would be reported as missing, or as not going to be approved. If a plan is missing, the API server is asked
// whether it exists.

// behind reports whether the API server has a newer state of a plan that a Subscription refers to than the snapshot:
// its event will enqueue the namespace.
func (r *reconciler) behind(ctx context.Context, s *snapshot.Snapshot, ns *state.Namespace) (bool, error) {
	var plans []types.NamespacedName
	missing := ""
	for _, sub := range ns.Subscriptions() {
		key := types.NamespacedName{Namespace: ns.Name(), Name: sub.Status.InstallPlan.Name}
		if key.Name != "" && !written(ns, key.Name) {
			plans = append(plans, key)
			missing += sub.Metadata.UID + " " + sub.Metadata.ResourceVersion + " "
			if known := s.Find(snapshot.InstallPlans, key); known != nil {
				missing += known.ResourceVersion + " "
			}
		}
	}
	state := r.state.namespace(ns.Name())
	if missing == "" || state.asked == missing {
		state.asked = missing
		return false, nil
	}
	state.asked = missing
	for _, key := range plans {
		now := apply.Head(snapshot.InstallPlans, key)
		err := r.reader.Get(ctx, key, now)
		if apierrors.IsNotFound(err) {
			continue
		}
		known := s.Find(snapshot.InstallPlans, key)
		if err == nil && known != nil && !snapshot.Older(known.ResourceVersion, now.GetResourceVersion()) {
			continue // OLM has not written more
		}
		state.asked = "" // until the plan is known, the answer stays the same
		if err != nil {
			return false, fmt.Errorf("read InstallPlan %s: %w", key, err)
		}
		return true, nil
	}
	return false, nil
}

// planNamed returns a plan of a namespace, nil if it is not known.
func planNamed(ns *state.Namespace, name string) *olm.InstallPlan {
	i := slices.IndexFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == name })
	if i < 0 {
		return nil
	}
	return ns.Plans()[i]
}

// written reports whether OLM has written a plan in full.
func written(ns *state.Namespace, name string) bool {
	plan := planNamed(ns, name)
	return plan != nil && plan.Status.Phase != ""
}
