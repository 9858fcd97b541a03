package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
)

// attackInterval is how often the attacker tries everything.
const attackInterval = 700 * time.Millisecond

// counter is the annotation that counts acknowledged writes.
const counter = "e2e.opgate.io/counter"

// attacker is a cluster admin who tries to get past the policies while the fault lasts, and afterwards.
type attacker struct {
	*play
	attempts, acknowledged int

	mu         sync.Mutex
	violations []error
}

// violate records what must not happen.
func (a *attacker) violate(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.violations) < 10 {
		a.violations = append(a.violations, fmt.Errorf("%s: "+format,
			append([]any{time.Now().Format("15:04:05.000")}, args...)...))
	}
}

// violated reports whether something happened that must not.
func (a *attacker) violated() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.violations) > 0
}

// attack tries until ctx ends.
func (a *attacker) attack(ctx context.Context) {
	for ctx.Err() == nil {
		for _, try := range []func(context.Context){a.approve, a.subscribeElsewhere, a.count} {
			bounded, cancel := context.WithTimeout(ctx, writeTimeout)
			try(bounded)
			cancel()
		}
		a.attempts++
		_ = pause(ctx, attackInterval)
	}
}

// approve approves every plan with a version that no policy allows.
func (a *attacker) approve(ctx context.Context) {
	for _, namespace := range a.governed() {
		plans, err := a.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, plan := range plans.Items {
			if !forbidden(&plan) {
				continue
			}
			_, err := a.Clients[cluster.Admin].Of(&plan).Patch(ctx, plan.GetName(), types.MergePatchType,
				[]byte(harness.Approval), metav1.PatchOptions{})
			if err == nil {
				a.violate("an admin approved %s in %s", plan.GetName(), namespace)
			}
		}
	}
}

// governed are the namespaces in which no version but one may be approved.
func (a *attacker) governed() []string {
	a.watcher.mu.Lock()
	defer a.watcher.mu.Unlock()
	namespaces := []string{a.permanent, a.own}
	if a.strict {
		namespaces = append(namespaces, a.extra)
	}
	return namespaces
}

// forbidden reports whether a plan installs a version that no policy of the campaign allows.
func forbidden(plan *unstructured.Unstructured) bool {
	names, _, _ := unstructured.NestedStringSlice(plan.Object, "spec", "clusterServiceVersionNames")
	for _, name := range names {
		if name != harness.Etcd2 {
			return true
		}
	}
	return false
}

// elsewhere is a Subscription to a catalog that the policy does not name.
func (a *attacker) elsewhere() *unstructured.Unstructured {
	return harness.Subscription(a.permanent, "elsewhere", harness.ForeignCatalog, "Manual")
}

// subscribeElsewhere subscribes to another catalog, without effect. Only the webhooks refuse that.
func (a *attacker) subscribeElsewhere(ctx context.Context) {
	body, err := a.elsewhere().MarshalJSON()
	if err != nil {
		a.violate("%v", err)
		return
	}
	judged := !a.row.unjudged || a.over.Load()
	answer, err := a.Clients[cluster.Admin].Send(ctx, harness.Request{
		Method: http.MethodPost, Path: harness.PathOf(harness.Subscriptions, a.permanent, "", ""),
		Query:       url.Values{"dryRun": {"All"}},
		ContentType: "application/json", Body: body,
	})
	if err == nil && answer.OK() && judged {
		a.violate("a Subscription to another catalog was admitted in %s", a.permanent)
	}
}

// catalogRefused returns an error until the gate refuses a Subscription to another catalog for its own reasons.
func (a *attacker) catalogRefused(ctx context.Context) error {
	return a.Attempt(ctx, install.Try{User: cluster.Admin, Object: a.elsewhere(), Refused: "(subscription/catalog)"})
}

// count writes an annotation on the permanent policy.
func (a *attacker) count(ctx context.Context) {
	p := policy(a.permanent)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, counter, a.acknowledged+1)
	if _, err := a.Clients[cluster.Admin].Of(p).Patch(ctx, p.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{}); err == nil {
		a.acknowledged++
	}
}

// counted returns an error if an acknowledged write is lost. One that was not acknowledged may be stored.
func (a *attacker) counted(ctx context.Context) error {
	p := policy(a.permanent)
	stored, err := a.Clients[cluster.Admin].Of(p).Get(ctx, p.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscan(strings.TrimSpace(stored.GetAnnotations()[counter]), &n); a.acknowledged > 0 &&
		(err != nil || n < a.acknowledged) {
		return fmt.Errorf("write %d was acknowledged, %q is stored", a.acknowledged, stored.GetAnnotations()[counter])
	}
	return nil
}
