package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/internal/kept"
)

const (
	// takes is how often TestLeaseLost takes the Lease from a leader while the other replica judges.
	takes = 3
	// outages are how often the API server of TestLeaseLost is stopped, each time for outage.
	outages = 3
	outage  = 15 * time.Second
	// issued is how soon a first installation has a CA.
	issued = 15 * time.Second
)

var leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// TestLeaseLost installs with the loop switched off: the replica that leads makes the CA. With the loop it takes the
// Lease from the leader, again and again, while 200 requests come in each second: none fails, and the replica ends
// without an error and is started again. Then one replica is all there is, and the API server is stopped for longer
// than the Lease lasts, three times.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.install(t, patiently(), "policy.backgroundLoop.enabled=false")
	s.wantIssued(t)
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "policy.backgroundLoop.enabled=true",
		"--wait")
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	for taken, unjudged := 0, 0; taken < takes; {
		var ended int
		failures := s.load(t, 8*loadRate, namespace, func() { ended = s.takeLease(t) })
		if ended == 1 {
			wantNone(t, failures)
			taken++
			continue
		}
		if unjudged++; unjudged > takes { // the other one has led since, and lost the Lease as well: none was left to judge
			t.Fatalf("%d times more than one replica ended, at last %d", unjudged, ended)
		}
	}
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "replicas=1", "--wait")
	s.WantGate(t, namespace)
	s.WantNothingForbidden(t) // an API server that starts forbids what it has not read the permissions for
	for i := range outages {
		if err := s.KillComponent(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		time.Sleep(outage)
		if err := s.StartComponent(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		s.WantGate(t, namespace)
		t.Logf("outage %d: judges %s after the API server is back", i+1, time.Since(back).Round(100*time.Millisecond))
	}
}

// wantIssued wants the CA to have been made soon after the pods were, before one of them can be ready.
func (s *Site) wantIssued(t *testing.T) {
	t.Helper()
	at := func(object ...string) time.Time {
		text, _, _ := strings.Cut(s.Admin(t, append(append([]string{"get"}, object...), "-n", cluster.OpgateNamespace,
			"--sort-by=.metadata.creationTimestamp", "-o", "jsonpath={.items[*].metadata.creationTimestamp}")...), " ")
		made, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	pods := at("pods", "-l", "app.kubernetes.io/name=opgate")
	took := at("secrets", "--field-selector=metadata.name="+caSecret).Sub(pods)
	t.Logf("the CA was made %s after the first pod", took)
	if took > speed.Scale(issued) {
		t.Errorf("want %s at most", issued)
	}
}

// takeLease makes another client the holder of the Lease for some seconds, and waits until the replica that led has
// ended and both are ready again behind the Service. It returns how many have ended: on a slow machine the other one may
// lose the Lease as well.
func (s *Site) takeLease(t *testing.T) (ended int) {
	t.Helper()
	opgate, err := s.InPlaceOfOpgate()
	if err != nil {
		t.Fatal(err)
	}
	s.wantLeader(t)
	before := s.processes(t)
	harness.Eventually(t, "the Lease has another holder", func(ctx context.Context) error {
		leases := opgate.Resource(leaseResource).Namespace(cluster.OpgateNamespace)
		_, err := leases.Patch(ctx, kept.Lease, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"holderIdentity":"thief","leaseDurationSeconds":4,"renewTime":%q}}`,
				time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{})
		return err
	})
	harness.Eventually(t, "the leader is started again", func(context.Context) error {
		now := s.processes(t)
		ended = len(slices.DeleteFunc(slices.Clone(before), func(pid int) bool { return slices.Contains(now, pid) }))
		if ended == 0 || slices.Contains(now, 0) {
			return fmt.Errorf("processes are %v, they were %v", now, before)
		}
		ready := strings.Fields(s.Admin(t, "get", "endpointslices", "-n", cluster.OpgateNamespace, "-l",
			"kubernetes.io/service-name=opgate-webhook", "-o",
			"jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].targetRef.name}"))
		if len(ready) != len(now) {
			return fmt.Errorf("the Service has %v", ready)
		}
		return nil
	})
	codes := s.Admin(t, "get", "pods", "-n", cluster.OpgateNamespace, "-o",
		"jsonpath={.items[*].status.containerStatuses[*].lastState.terminated.exitCode}")
	for _, code := range codes {
		if code != '0' && code != ' ' {
			t.Errorf("the exit codes are %q, want 0", codes)
			break
		}
	}
	return ended
}

// wantLeader waits until one of the pods that stay leads: those of another release are gone.
func (s *Site) wantLeader(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the pods of before are gone", func(context.Context) error {
		pods := strings.Fields(s.Admin(t, "get", "pods", "-n", cluster.OpgateNamespace, "-o", "name"))
		if len(pods) != len(s.Pods(t)) {
			return fmt.Errorf("there are %v", pods)
		}
		return nil
	})
	since := time.Now()
	harness.Eventually(t, "a replica leads", func(context.Context) error {
		holder, renewed, _ := strings.Cut(s.Admin(t, "get", "lease", "-n", cluster.OpgateNamespace, kept.Lease, "-o",
			"jsonpath={.spec.holderIdentity} {.spec.renewTime}"), " ")
		at, err := time.Parse(time.RFC3339, renewed)
		if err != nil || holder == "" || holder == "thief" || at.Before(since) {
			return fmt.Errorf("%q has renewed the Lease at %s", holder, renewed)
		}
		return nil
	})
}

// processes are those of the pods, 0 for one that has none.
func (s *Site) processes(t *testing.T) (pids []int) {
	for _, pod := range s.Pods(t) {
		pids = append(pids, pod.PID)
	}
	return pids
}
