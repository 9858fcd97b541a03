package gate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/olm"
)

// pluginReader is a user whose requests are in the audit log.
const pluginReader = "plugin-reader"

// TestPluginRights runs the plugin as a user without rights, then with those of ClusterRole opgate-reader, over 2,000
// plans.
func TestPluginRights(t *testing.T) {
	e := harness.Shared(t)
	config, err := e.Credentials(pluginReader)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	got := opgate(t, e, kubeconfig, 2, "pending", "-A")
	harness.WantTexts(t, got.Stderr, "may not list", "installplans.operators.coreos.com",
		"operatorpolicies.policy.open-cluster-management.io", "ClusterRole opgate-reader")
	if got.Stdout != "" {
		t.Errorf("it prints %q as well", got.Stdout)
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", pluginReader,
		"--clusterrole=opgate-reader", "--user="+pluginReader)
	t.Cleanup(func() {
		// only tidies up
		_, _ = e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "clusterrolebinding",
			pluginReader)
	})
	// the authorizer follows bindings by a watch
	harness.Eventually(t, "have the rights", func(ctx context.Context) error {
		got, err := e.RunPlugin(ctx, kubeconfig, cluster.Command{Args: []string{"opgate", "pending", "-A"}})
		if err == nil && got.ExitCode != 0 {
			err = errors.New(got.Stderr)
		}
		return err
	})

	// What plans change needs another role; without it a policy that judges by that holds. So does the approval.
	reviewed, plan := planOfSample(t, e, "bundle-contents-hold")
	got = opgate(t, e, kubeconfig, 0, "pending", "-n", reviewed)
	harness.WantTexts(t, got.Stderr, "warning: contents of some InstallPlans not read", "may not get configmaps",
		"ClusterRole opgate-contents")
	harness.WantTexts(t, got.Stdout, "Hold", "bundle/contents")
	got = opgate(t, e, kubeconfig, 1, "approve", reviewed+"/"+plan)
	harness.WantTexts(t, got.Stderr, `cannot patch resource "installplans"`, "granted by ClusterRole opgate-approver")

	const many = 600
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	makePlans(t, e, namespace, many)
	before := readerLists(t, e)
	started := time.Now()
	plans := pendingJSON(t, e, kubeconfig, "-A")
	t.Logf("%d plans were judged in %s", len(plans), time.Since(started))
	if len(plans) < many {
		t.Errorf("%d plans are listed, want at least %d", len(plans), many)
	}
	harness.Eventually(t, "see the requests in the audit log", func(context.Context) error {
		lists := readerLists(t, e)
		if lists["installplans"] == before["installplans"] {
			return errors.New("no list of installplans")
		}
		for resource, n := range lists {
			if n -= before[resource]; n > 1 {
				t.Errorf("%s are listed %d times", resource, n)
			}
		}
		return nil
	})
}

// TestPluginWithoutRights: a tenant who may not read policies sees the answer of the API server.
func TestPluginWithoutRights(t *testing.T) {
	e := harness.Shared(t)
	config, err := e.Credentials(string(cluster.Tenant))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	for name, version := range map[string]string{"good": harness.AllowedVersion, "bad": harness.ForbiddenVersion} {
		e.Put(t, harness.InstallPlan(namespace, name, version))
	}
	e.Sync(t)

	got := opgate(t, e, kubeconfig, 2, "why", "installplan", namespace+"/bad")
	harness.WantTexts(t, got.Stderr, "may not list", "ClusterRole opgate-reader", "approve "+namespace+"/bad --dry-run")
	got = opgate(t, e, kubeconfig, 1, "approve", namespace+"/bad", "--dry-run")
	harness.WantTexts(t, got.Stderr, "bundle/version", "0.9.4")
	got = opgate(t, e, kubeconfig, 0, "approve", namespace+"/good", "--dry-run")
	harness.WantTexts(t, got.Stdout, "approved (dry run)")
	for _, name := range []string{"good", "bad"} {
		harness.WantField(t, e.Get(t, harness.InstallPlans, namespace, name), "false", "spec", "approved")
	}
	opgate(t, e, kubeconfig, 2, "pending", "-A")
}

// readerLists counts the lists of pluginReader, each once however many pages it has.
func readerLists(t *testing.T, e *harness.Env) map[string]int {
	t.Helper()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]int{}
	for _, event := range events {
		if event.User.Username != pluginReader || event.Verb != "list" {
			continue
		}
		uri, err := url.Parse(event.RequestURI)
		if err != nil {
			t.Fatal(err)
		}
		if uri.Query().Get("limit") == "" {
			t.Errorf("%s has no limit", event.RequestURI)
		}
		if uri.Query().Get("continue") == "" {
			lists[event.ObjectRef.Resource]++
		}
	}
	return lists
}

// makePlans makes plans that wait for approval.
func makePlans(t *testing.T, e *harness.Env, namespace string, count int) {
	t.Helper()
	plans := e.Clients[cluster.OLM].Resource(olm.InstallPlanGVK.GroupVersion().WithResource("installplans")).Namespace(
		namespace)
	t.Cleanup(func() {
		if err := plans.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{},
			metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	names := make(chan string)
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			for name := range names {
				plan := harness.InstallPlan(namespace, name, harness.ForbiddenVersion)
				stored, err := plans.Create(t.Context(), plan, metav1.CreateOptions{})
				if err == nil {
					stored.Object["status"] = plan.Object["status"]
					_, err = plans.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprintf("many-%04d", i)
	}
	close(names)
	running.Wait()
}
