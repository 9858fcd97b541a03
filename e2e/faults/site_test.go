package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
	"github.com/opgate/opgate/e2e/internal/apiproxy"
	"github.com/opgate/opgate/e2e/node"
	"github.com/opgate/opgate/e2e/olm"
)

// operatorImage is that of the operators that OLM installs.
const operatorImage = "registry.invalid/etcd-operator"

// site is an installation with OLM, in which each replica reaches the API server by way of a proxy of its own.
type site struct {
	*install.Site
	olm *olm.OLM
	// permanent is a namespace whose policy allows one version. A plan for a later one waits there all the time.
	// reference is the status of that policy.
	permanent string
	reference string
	// goroutines and memory are those of the replicas before the first fault, at most, and bound those of later.
	goroutines, memory float64
	// done counts schedules.
	done int

	mu      sync.Mutex
	proxies map[string]*apiproxy.Proxy // by pod
}

func start(t *testing.T) *site {
	t.Helper()
	e := harness.StartUnchecked(t, cluster.Options{Bare: true, Node: true, Audit: true, Log: os.Stderr})
	s := &site{Site: &install.Site{Env: e}, proxies: map[string]*apiproxy.Proxy{}}
	t.Cleanup(func() {
		if t.Failed() {
			s.Logs(t)
		}
		for _, proxy := range s.proxies {
			if err := proxy.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	var err error
	if s.Binary, err = s.Programs().Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	s.Node, err = node.Start(t.Context(), s.Cluster, node.Options{Log: os.Stderr, Images: map[string]node.Program{
		install.Repository: s.proxied(t.Context(), node.Opgate(s.Binary)),
		operatorImage:      {Path: sleep, Args: func(node.Container) []string { return []string{"infinity"} }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s.olm, err = olm.Start(t.Context(), s.Cluster, olm.Options{Node: true, Log: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.olm.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.RunHelm(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--wait", "--set", quick())
	s.prepare(t)
	return s
}

// quick is as elsewhere, but for how long watches may show no progress: that is the chart's.
func quick() string { return install.Quick() + ",policy.maxStaleness=10s" }

// proxied makes a program reach the API server by way of a proxy.
func (s *site) proxied(ctx context.Context, program node.Program) node.Program {
	direct := program.Args
	program.Args = func(c node.Container) []string {
		path, err := s.proxy(ctx, c)
		if err != nil {
			s.Fail(err)
			return direct(c)
		}
		c.Kubeconfig = path
		return direct(c)
	}
	return program
}

// proxy returns the path of a kubeconfig that leads to the proxy of a pod, which is started the first time.
func (s *site) proxy(ctx context.Context, c node.Container) (string, error) {
	user, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return "", err
	}
	path := c.Kubeconfig + ".proxied"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxies[c.Pod.Name] == nil {
		addresses, err := s.Addresses(ctx, 1)
		if err != nil {
			return "", err
		}
		proxy, err := apiproxy.Start(context.WithoutCancel(ctx), addresses[0], user)
		if err != nil {
			return "", err
		}
		s.proxies[c.Pod.Name] = proxy
	}
	return path, cluster.WriteKubeconfig(path, s.proxies[c.Pod.Name].Config(user))
}

// proxyOf returns the proxy of a pod.
func (s *site) proxyOf(pod node.Pod) *apiproxy.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[pod.Name]
}

// prepare prepares the permanent namespace, and records what is usual.
func (s *site) prepare(t *testing.T) {
	t.Helper()
	s.permanent = s.NewNamespace(t)
	harness.Eventually(t, "a policy is stored", func(ctx context.Context) error {
		_, err := s.Create(ctx, policy(s.permanent))
		return err
	})
	t.Cleanup(func() {
		if s.reference == "" {
			s.show(t, s.permanent)
		}
	})
	e := &harness.OLMEnv{Env: s.Env, OLM: s.olm}
	e.WaitForCSV(t, s.permanent, harness.Etcd2)
	e.WaitForPlan(t, s.permanent, harness.Etcd4)
	e.Eventually(t, "the status settles", func(ctx context.Context) error {
		status, err := s.status(ctx, s.permanent)
		if err == nil && !strings.Contains(status, harness.Etcd4) {
			err = errors.New(status)
		}
		s.reference = status
		return err
	})
	for _, pod := range s.Node.Pods(cluster.OpgateNamespace) {
		values, err := scrape(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		s.goroutines = max(s.goroutines, values["go_goroutines"])
		s.memory = max(s.memory, values["process_resident_memory_bytes"])
	}
	t.Logf("%.0f goroutines and %.0f MiB at most; the status of a policy is\n%s", s.goroutines, s.memory/(1<<20),
		s.reference)
}

// show logs what OLM and Opgate have in a namespace.
func (s *site) show(t *testing.T, namespace string) {
	for _, kind := range []string{"Subscription", "InstallPlan", "ClusterServiceVersion"} {
		list, err := s.Clients[cluster.Admin].Of(harness.Named(kind, namespace, "")).List(
			context.WithoutCancel(t.Context()), metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, u := range list.Items {
			status := u.Object["status"].(map[string]any)
			t.Logf("%s %s since %s: %s %v %v %v", kind, u.GetName(), u.GetCreationTimestamp().Format(time.TimeOnly),
				harness.Normal(u.Object["spec"])[:min(300, len(harness.Normal(u.Object["spec"])))],
				status["phase"], status["installPlanRef"], status["conditions"])
		}
	}
	text, err := s.status(context.WithoutCancel(t.Context()), namespace)
	t.Log(text, err)
}

// policy is the one for a namespace: a version that is not the last one of its channel.
func policy(namespace string) *unstructured.Unstructured {
	return harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
}

// status returns the status of the policy for a namespace, without names that differ from namespace to namespace. The
// summary lists the other conditions in the order in which they came. InstallPlanPending is OLM's own, which it writes
// when it resolves once more.
func (s *site) status(ctx context.Context, namespace string) (string, error) {
	p := policy(namespace)
	stored, err := s.Clients[cluster.Admin].Of(p).Get(ctx, p.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if observed, _, _ := unstructured.NestedInt64(stored.Object, "status",
		"observedGeneration"); observed != stored.GetGeneration() {
		return "", errors.New("the policy was not evaluated yet")
	}
	compliant, _, _ := unstructured.NestedString(stored.Object, "status", "compliant")
	lines := []string{compliant}
	conditions, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	for _, c := range conditions {
		condition := c.(map[string]any)
		switch condition["type"] {
		case "InstallPlanPending":
			continue
		case "Compliant":
			delete(condition, "message")
		}
		lines = append(lines, fmt.Sprintf("%v=%v %v: %v", condition["type"], condition["status"], condition["reason"],
			condition["message"]))
	}
	slices.Sort(lines)
	text := strings.ReplaceAll(strings.Join(lines, "\n"), namespace, "NAMESPACE")
	return planName.ReplaceAllString(text, "install-PLAN"), nil
}
