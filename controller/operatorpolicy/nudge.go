package operatorpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const (
	// firstNudge is longer than OLM's own retries. After its resync OLM resolves again by itself.
	firstNudge = 3 * time.Second
	resync     = 15 * time.Minute
)

// nudges records the namespaces in which OLM has no plan and writes none. It tries nine times within two
// seconds and then stops until its next resync, after 15 minutes: an upgrade that it planned while
// no webhook endpoint answered would be delayed that long. One whose plan was deleted early would wait forever:
// OLM v0.42 clears the reference only if the conditions change as well. The zero value is ready for use.
type nudges struct {
	mu      sync.Mutex
	failing map[string]nudge
}

type nudge struct {
	next time.Time
	wait time.Duration // after next
}

// due reports whether to nudge OLM for a namespace now, and the time until the next nudge; 0 for a
// namespace that needs none. The intervals double, since the cause may last, and end at the interval of OLM's
// resync: the condition that shows the failure remains after OLM has succeeded.
func (n *nudges) due(namespace string, failing bool, now time.Time) (nudged bool, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !failing {
		delete(n.failing, namespace)
		return false, 0
	}
	if n.failing == nil {
		n.failing = map[string]nudge{}
	}
	entry, known := n.failing[namespace]
	switch {
	case !known:
		entry = nudge{next: now.Add(firstNudge), wait: firstNudge}
	case entry.wait > resync:
		return false, 0
	case !now.Before(entry.next):
		nudged = true
		entry.wait *= 2
		entry.next = now.Add(entry.wait)
	}
	n.failing[namespace] = entry
	return nudged, entry.next.Sub(now)
}

// nudge makes OLM resolve again if it has no plan. It returns the delay until the namespace is reconciled again
// without an event, 0 for never.
func (r *reconciler) nudge(ctx context.Context, namespace string, ns *rules.Namespace, w *world) (after time.Duration, err error) {
	enforced := slices.ContainsFunc(ns.Policies(), func(p *rules.OperatorPolicy) bool { return p.Enforced })
	i := slices.IndexFunc(w.subscriptions, func(s compliance.Subscription) bool { return refused(&s) || dangling(&s, ns) })
	nudged, after := r.nudges.due(namespace, i >= 0 && enforced, r.Now())
	if !nudged {
		return after, nil
	}
	sub := &w.subscriptions[i]
	object := headOnly(gvkSubscription) // the response is not needed, and Subscriptions may be large
	object.SetNamespace(namespace)
	object.SetName(sub.Name)
	now := r.Now().UTC().Format(time.RFC3339)
	if dangling(sub, ns) {
		// As OLM does, unless the plan was deleted before OLM had set a condition for it.
		err = r.client.Status().Patch(ctx, object, merge(map[string]any{
			"metadata": map[string]any{"uid": sub.UID, "resourceVersion": text(&unstructured.Unstructured{Object: sub.Content}, "metadata", "resourceVersion")},
			"status":   map[string]any{"installPlanRef": nil, "installplan": nil, "currentCSV": nil, "state": nil, "lastUpdated": now},
		}))
	} else {
		err = r.client.Patch(ctx, object, merge(map[string]any{"metadata": map[string]any{"annotations": rules.ResyncRequest(now)}}))
	}
	r.Metrics.Wrote("patch", gvkSubscription.Kind, err)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return after, nil // the object changed, which is the purpose
	case err != nil:
		return after, fmt.Errorf("nudge OLM for Subscription %s/%s: %w", namespace, sub.Name, err)
	}
	log.FromContext(ctx).Info("OLM nudged, which has no plan", "namespace", namespace, "name", sub.Name)
	return after, nil
}

// merge returns a merge patch.
func merge(patch map[string]any) client.Patch {
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err) // it contains only strings
	}
	return client.RawPatch(types.MergePatchType, data)
}

// refused reports whether OLM could not write the plan for a Subscription.
func refused(s *compliance.Subscription) bool {
	return slices.ContainsFunc(s.Conditions, func(c compliance.SubscriptionCondition) bool {
		return c.Type == "BundleUnpackFailed" && c.Reason == "EnsureInstallPlanFailed" && c.Status == string(metav1.ConditionTrue)
	})
}

// dangling reports whether OLM treats a deleted plan as pending.
func dangling(s *compliance.Subscription, ns *rules.Namespace) bool {
	return s.State == "UpgradePending" && s.InstallPlan != "" &&
		!slices.ContainsFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == s.InstallPlan })
}
