package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// restorePeriod is how often the add-on restores its definition.
const restorePeriod = 2 * time.Second

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// addon is another program that owns the definition of OperatorPolicy and restores it.
type addon struct {
	definitions dynamic.ResourceInterface
	restored    atomic.Int64

	mu      sync.Mutex
	content *unstructured.Unstructured // nil removes it
}

// startAddon installs the definition and restores it until the test ends. Each restoration is a write that changes
// something, and one of five changes the schema, so that the API server ends all watches and serves the resource anew.
func (s *Site) startAddon(t *testing.T) *addon {
	t.Helper()
	a := &addon{definitions: s.Clients[cluster.Admin].Resource(definitionResource)}
	a.own(t, func(*unstructured.Unstructured) {})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	running.Go(func() {
		every := time.NewTicker(restorePeriod)
		defer every.Stop()
		for {
			if err := a.restore(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				t.Errorf("restore the definition: %v", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
		}
	})
	a.wait(t)
	return a
}

// own makes the add-on's definition another one.
func (a *addon) own(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	text, err := os.ReadFile("testdata/operatorpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	change(u)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.content = u
}

// remove makes the add-on delete its definition.
func (a *addon) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.content = nil
}

func (a *addon) restore(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := harness.OperatorPolicies.Resource + "." + harness.OperatorPolicies.Group
	live, err := a.definitions.Get(ctx, name, metav1.GetOptions{})
	defer a.restored.Add(1)
	switch {
	case a.content == nil && apierrors.IsNotFound(err):
		return nil
	case a.content == nil:
		return a.definitions.Delete(ctx, name, metav1.DeleteOptions{})
	case apierrors.IsNotFound(err):
		_, err = a.definitions.Create(ctx, a.content, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	next := a.content.DeepCopy()
	next.SetResourceVersion(live.GetResourceVersion())
	versions, _, _ := unstructured.NestedSlice(next.Object, "spec", "versions")
	next.SetAnnotations(map[string]string{"example.com/restored": fmt.Sprint(a.restored.Load())})
	_ = unstructured.SetNestedField(versions[0].(map[string]any),
		fmt.Sprintf("restored %d times", a.restored.Load()/5*5), "schema", "openAPIV3Schema", "description")
	_ = unstructured.SetNestedSlice(next.Object, versions, "spec", "versions")
	_, err = a.definitions.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// wait waits until the definition has been restored three times more.
func (a *addon) wait(t *testing.T) {
	t.Helper()
	enough := a.restored.Load() + 3
	harness.Eventually(t, "the definition is restored", func(context.Context) error {
		if n := a.restored.Load(); n < enough {
			return fmt.Errorf("%d times, want %d", n, enough)
		}
		return nil
	})
}

// TestACM installs Opgate beside a program that owns the definition of OperatorPolicy as v1beta1 and restores it every
// few seconds, with the values of docs/migration/acm.md.
func TestACM(t *testing.T) {
	t.Parallel()
	s := Start(t)
	a := s.startAddon(t)
	s.install(t, "crds.operatorPolicy=external", "ordering.enabled=false")
	namespace := s.NewNamespace(t)
	policy := harness.OperatorPolicy(namespace)
	policy.SetAPIVersion("policy.open-cluster-management.io/v1beta1")
	apply := func(t *testing.T) {
		t.Helper()
		harness.Eventually(t, "a policy is stored", func(ctx context.Context) error {
			result, err := s.Kubectl(ctx, cluster.Admin, harness.AsJSON(t, policy), "apply", "-f", "-")
			if err != nil || result.ExitCode != 0 {
				return fmt.Errorf("%s (%w)", result.Stderr, err)
			}
			return nil
		})
	}
	apply(t)
	const lacks = "spec.versionRange are "
	const v1beta1Lacks, v1beta2Lacks = lacks +
		"read from annotation opgate.io/conversion; complianceType mayhave is not available", lacks + "not available"

	t.Run("it judges by v1beta1", func(t *testing.T) {
		s.WantGate(t, namespace)
		plan, err := s.Create(t.Context(), harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // while the definition is restored
			a.wait(t)
			harness.WantRefused(t, s.Cluster, cluster.Admin, "",
				[]string{"patch", "installplan", "-n", namespace, plan.GetName(), "--type=merge", "--patch",
					`{"spec":{"approved":true}}`},
				// by the gate, or by the API server once it has the table
				"(bundle/version)", "OperatorPolicy policies/"+namespace)
		}
	})
	t.Run("it says what is not available", func(t *testing.T) { s.wantVersion(t, "v1beta1", v1beta1Lacks) })
	t.Run("status of another program does no harm", func(t *testing.T) {
		s.Admin(t, "patch", "operatorpolicies.v1beta1.policy.open-cluster-management.io", "-n", cluster.PolicyNamespace,
			namespace, "--subresource=status", "--type=merge",
			"--patch", `{"status":{"compliant":"NonCompliant","relatedObjects":[{"object":{"kind":3},"properties":{"uid":[]}}]}}`)
		s.WantGate(t, namespace)
	})
	t.Run("a version that appears is followed, and one that goes", func(t *testing.T) {
		a.own(t, func(u *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			second := unstructured.Unstructured{Object: versions[0].(map[string]any)}
			next := second.DeepCopy().Object
			next["name"], next["storage"] = "v1beta2", false
			if err := unstructured.SetNestedSlice(u.Object, append(versions, next), "spec", "versions"); err != nil {
				t.Error(err)
			}
		})
		s.wantVersion(t, "v1beta2", v1beta2Lacks)
		s.WantGate(t, namespace)
		a.own(t, func(*unstructured.Unstructured) {})
		s.wantVersion(t, "v1beta1", v1beta1Lacks)
		s.WantGate(t, namespace)
	})
	t.Run("without a definition there are no policies", func(t *testing.T) {
		a.remove()
		s.wantVersion(t, "none", "there are no policies")
		foreign := Try{User: cluster.Tenant, Object: harness.Subscription(namespace, "foreign", harness.ForeignCatalog,
			"Manual")}
		harness.Eventually(t, "nothing is governed", func(ctx context.Context) error { return s.Attempt(ctx, foreign) })
		a.own(t, func(*unstructured.Unstructured) {})
		s.wantVersion(t, "v1beta1", v1beta1Lacks)
		apply(t)
		s.WantGate(t, namespace)
	})
	s.wantNoWrites(t)
	s.WantNothingForbidden(t)
	if restarts := s.Admin(t, "get", "pods", "-n", cluster.OpgateNamespace, "-o",
		"jsonpath={.items[*].status.containerStatuses[*].restartCount}"); strings.Trim(restarts, "0 ") != "" {
		t.Errorf("containers restarted %s times", restarts)
	}
}

// wantVersion wants every pod to be ready, to read policies in a version, and to say what that means.
func (s *Site) wantVersion(t *testing.T, version, says string) {
	t.Helper()
	sample := fmt.Sprintf("opgate_operatorpolicy_version_info{version=%q} 1\n", version)
	harness.Eventually(t, "policies are read in "+version, func(ctx context.Context) error {
		pods := s.Pods(t)
		if len(pods) == 0 {
			return errors.New("there are no pods")
		}
		for _, pod := range pods {
			for address, want := range map[string]string{pod.Addresses["metrics"] + "/metrics": sample,
				pod.Addresses["health"] + "/readyz": says} {
				code, body, err := harness.GetURL(ctx, "http://"+address)
				if err != nil || code != 200 || !strings.Contains(body, want) {
					return fmt.Errorf("%s: %d without %q (%w)", address, code, want, err)
				}
			}
		}
		return nil
	})
}

// wantNoWrites wants Opgate to have written neither definitions nor policies.
func (s *Site) wantNoWrites(t *testing.T) {
	t.Helper()
	requests, err := s.OpgateRequests(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, r := range requests {
		if r.Object.Resource != definitionResource.Resource && r.Object.Resource != harness.OperatorPolicies.Resource {
			continue
		}
		read[r.Object.Resource] = true
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			t.Errorf("opgate did %s %s", r.Verb, r.URI)
		}
	}
	if len(read) != 2 {
		t.Errorf("opgate read %v", read)
	}
}
