package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules/backstop"
)

// stoppedFor is how long the leader is stopped.
const stoppedFor = 30 * time.Second

// stopped stops the leader for longer than the Lease lasts. A plan comes that it would approve, and a policy wants an
// operator to be removed, for a moment; another replica leads, and a policy is edited. When the first one goes on, it
// approves, deletes and writes nothing and ends, and the admission policies stay those of the edit.
func stopped(t *testing.T, e *harness.LoopEnv) {
	first := &harness.Env{Cluster: e.Cluster, Gate: e.Gate, Clients: e.Clients}
	within(t, leaseTimeout, "the first replica leads",
		func(ctx context.Context) error { return leads(ctx, first, e.Scraper, true) })
	second, err := e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, SecureMetrics: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Gate = second
	namespace := operatorNamespace(t, e)
	e.Write(t, harness.OperatorPolicy(namespace))
	e.WaitCondition(t, namespace, "ValidPolicySpec", "True", "")
	kept := operatorNamespace(t, e)
	p := harness.OperatorPolicy(kept)
	p.Object["spec"].(map[string]any)["subscription"].(map[string]any)["channel"] = "alpha"
	e.Write(t, p)
	subscription := func(ctx context.Context) (types.UID, error) {
		u := harness.Subscription(kept, "etcd", harness.GoodCatalog, "Manual")
		err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(u), u)
		return u.GetUID(), err
	}
	var made types.UID
	within(t, leaseTimeout, "the Subscription is made", func(ctx context.Context) (err error) {
		made, err = subscription(ctx)
		return err
	})
	edit := func(policy, patch string) {
		o := &policyv1beta2.OperatorPolicy{}
		o.Namespace, o.Name = cluster.PolicyNamespace, policy
		if err := e.Admin.Patch(t.Context(), o, crclient.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}

	holder := leaseHolder(t, e)
	if err := first.Gate.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Gate.Resume() })
	paused := time.Now()
	const version = "etcd.v0.9.4-edited"
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	edit(namespace, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, version))
	edit(kept, `{"spec":{"complianceType":"mustnothave"}}`)
	edit(kept, `{"spec":{"complianceType":"musthave"}}`)
	within(t, leaseTimeout, "the second replica leads", func(ctx context.Context) error {
		if leaseHolder(t, e) == holder {
			return errors.New("the Lease has the same holder")
		}
		return leads(ctx, e.Env, e.Scraper, true)
	})
	var edited *unstructured.Unstructured
	within(t, leaseTimeout, "the second replica writes the edit", func(context.Context) error {
		if edited = validating(t, e); !strings.Contains(harness.AsJSON(t, edited), version) {
			return errors.New("the admission policy is that of before")
		}
		return nil
	})
	rests(t, e, namespace)
	rests(t, e, kept)
	time.Sleep(time.Until(paused.Add(stoppedFor)))

	from := time.Now()
	if err := first.Gate.Resume(); err != nil {
		t.Fatal(err)
	}
	within(t, leaseTimeout, "the first replica ends, and is started again", func(context.Context) error {
		if n := first.Gate.Restarts(); n != 1 {
			return fmt.Errorf("it was started again %d times", n)
		}
		return nil
	})
	e.WantApproved(t, namespace, "install-1", false)
	if now, err := subscription(t.Context()); err != nil || now != made {
		t.Errorf("the Subscription is %q, it was %q: %v", now, made, err)
	}
	if now := validating(t, e); now.GetGeneration() != edited.GetGeneration() {
		t.Errorf("the admission policy was written, generation %d", now.GetGeneration())
	}
	if err := leads(t.Context(), e.Env, e.Scraper, true); err != nil {
		t.Errorf("the second replica: %v", err)
	}
	for _, r := range requests(t, e, from, isWrite) {
		if r.Object.Resource != "leases" {
			t.Errorf("written after the first replica went on: %s %s", r.Verb, r.URI)
		}
	}
	events := &corev1.EventList{}
	if err := e.Admin.List(t.Context(), events, crclient.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Reason == "BackstopRestored" {
			t.Errorf("an event says: %s", event.Message)
		}
	}
	if err := first.Gate.Kill(); err != nil {
		t.Fatal(err)
	}
}

// leads compares the metric of a replica, whether it leads.
func leads(ctx context.Context, e *harness.Env, token string, want bool) error {
	_, body, err := e.Scrape(ctx, token)
	if err != nil {
		return err
	}
	if got := strings.Contains(body, "\nopgate_loop_leading 1\n"); got != want {
		return fmt.Errorf("the metric says that it leads: %t, want %t", got, want)
	}
	return nil
}

// validating returns the admission policy that refuses.
func validating(t *testing.T, e *harness.LoopEnv) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"))
	if err := e.Admin.Get(t.Context(), crclient.ObjectKey{Name: backstop.Name}, u); err != nil {
		t.Fatal(err)
	}
	return u
}
