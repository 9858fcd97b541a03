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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/rules"
)

// NudgeAnnotation of a Subscription says when the loop last asked OLM to try again. Nobody reads it: that it
// changes is what makes OLM look.
const NudgeAnnotation = "opgate.io/nudged-at"

const (
	// firstNudge is longer than OLM tries by itself, lastNudge as long as OLM waits then.
	firstNudge = 3 * time.Second
	lastNudge  = 15 * time.Minute
)

// nudges remembers the namespaces in which OLM has no plan and writes none. It tries nine times within two
// seconds and then gives up until its next resync, in a quarter of an hour: an upgrade that it planned while
// nobody answered for a webhook would wait so long. So would one whose plan somebody deleted, since OLM looks
// at that only when the Subscription changes. The zero value is ready for use.
type nudges struct {
	mu      sync.Mutex
	failing map[string]nudge
}

type nudge struct {
	next time.Time
	wait time.Duration // after next
}

// due tells whether OLM is to be nudged for a namespace now, and how long it is until the next time; 0 for a
// namespace that needs none. The pauses grow, since what OLM failed on may last.
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
	case !now.Before(entry.next):
		nudged = true
		entry.wait = min(2*entry.wait, lastNudge)
		entry.next = now.Add(entry.wait)
	}
	n.failing[namespace] = entry
	return nudged, entry.next.Sub(now)
}

// nudge makes OLM look again where it has no plan. It gives how long it is until that is to be
// looked at again though nothing happens, 0 for never.
func (r *reconciler) nudge(ctx context.Context, namespace string, ns *rules.Namespace, w *world) (after time.Duration, err error) {
	i := slices.IndexFunc(w.subscriptions, func(s compliance.Subscription) bool { return unplanned(&s, ns) })
	enforced := slices.ContainsFunc(ns.Policies(), func(p *rules.Policy) bool { return p.Enforced })
	nudged, after := r.nudges.due(namespace, i >= 0 && enforced, r.Now())
	if !nudged {
		return after, nil
	}
	name := w.subscriptions[i].Name
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{NudgeAnnotation: r.Now().UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return 0, err
	}
	object := whole(gvkSubscription)
	object.SetNamespace(namespace)
	object.SetName(name)
	err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	r.Metrics.wrote("patch", gvkSubscription.Kind, err)
	switch {
	case apierrors.IsNotFound(err):
		return after, nil
	case err != nil:
		return after, fmt.Errorf("nudge OLM for Subscription %s/%s: %w", namespace, name, err)
	}
	log.FromContext(ctx).Info("OLM nudged, which has no plan", "namespace", namespace, "name", name)
	return after, nil
}

// unplanned tells whether OLM could not write the plan for a Subscription, or takes one that was deleted for
// one that waits.
func unplanned(s *compliance.Subscription, ns *rules.Namespace) bool {
	if s.State == "UpgradePending" && s.InstallPlan != "" &&
		!slices.ContainsFunc(ns.Plans(), func(p *rules.InstallPlan) bool { return p.Metadata.Name == s.InstallPlan }) {
		return true
	}
	return slices.ContainsFunc(s.Conditions, func(c compliance.SubscriptionCondition) bool {
		return c.Type == "BundleUnpackFailed" && c.Reason == "EnsureInstallPlanFailed" && c.Status == string(metav1.ConditionTrue)
	})
}
