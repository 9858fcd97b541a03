package install

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/e2e/internal/tail"
	"github.com/opgate/opgate/e2e/node"
)

const (
	publicRegistry = "ghcr.io"
	repository     = publicRegistry + "/opgate/opgate"
	// quick makes a release do in seconds what may take minutes.
	quick = "certificates.selfManaged.caOverlap=2s,drain.delay=1s,drain.timeout=1s"
	// helmTimeout bounds an installation, an upgrade and a removal each; they take seconds.
	helmTimeout = "10m"
)

// patiently has pods end as they do by default: those that wait less for the API server to know, and to let go of its connections,
// may end one that is in use. How long controllers, the node and the API server take to know of a pod that ends, and of a CA, depends on
// the machine.
func patiently() string {
	return fmt.Sprintf("drain.delay=%s,drain.timeout=100s,certificates.selfManaged.caOverlap=%s", seconds(speed.Scale(5*time.Second)), seconds(speed.Scale(2*time.Second)))
}

// seconds is a duration as values of the chart say it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0fs", d.Round(time.Second).Seconds()) }

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// site is a cluster that Opgate is installed on as users do, by helm or kubectl, with the permissions that come with it. Its pods
// are processes of this machine, which the API server reaches by way of a Service.
type site struct {
	*harness.Env
	node   *node.Node
	binary string // of Opgate
}

func startSite(t *testing.T) *site {
	t.Helper()
	e := harness.StartUnchecked(t, cluster.Options{Bare: true, Node: true, Audit: true, Log: os.Stderr})
	s := &site{Env: e}
	t.Cleanup(func() {
		if t.Failed() {
			s.logs(t)
		}
	})
	var err error
	if s.binary, err = s.BuildOpgate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.node, err = node.Start(t.Context(), s.Cluster, node.Options{
		Images: map[string]node.Program{repository: node.Opgate(s.binary)},
		Log:    os.Stderr,
	}); err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, s.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	return s
}

// logs shows how the logs of the pods end.
func (s *site) logs(t *testing.T) {
	for _, pod := range s.node.Pods(cluster.OpgateNamespace) {
		t.Logf("pod %s logged at last:\n%s", pod.Name, tail.File(pod.Log, 10))
	}
}

// pods are those that are to stay. Others may still be there, for the API server to let go of them.
func (s *site) pods(t *testing.T) []node.Pod {
	t.Helper()
	stored, err := s.Clients[cluster.Admin].Resource(podResource).Namespace(cluster.OpgateNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	staying := map[string]bool{}
	for _, pod := range stored.Items {
		staying[pod.GetName()] = pod.GetDeletionTimestamp() == nil
	}
	return slices.DeleteFunc(s.node.Pods(cluster.OpgateNamespace), func(pod node.Pod) bool { return !staying[pod.Name] })
}

// wantNothingForbidden wants that the permissions of the release are enough for all that it did.
func (s *site) wantNothingForbidden(t *testing.T) {
	t.Helper()
	requests, err := s.OpgateRequests(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	harness.RecordRights(requests)
	for _, r := range requests {
		if r.Response.Code == http.StatusForbidden {
			t.Errorf("opgate may not %s %s", r.Verb, r.URI)
		}
	}
}

// helm runs helm, wants it to succeed and returns what it printed.
func (s *site) helm(t *testing.T, args ...string) string {
	t.Helper()
	return succeed(t, s.Helm, args)
}

// helm3 is helm with Helm 3.
func (s *site) helm3(t *testing.T, args ...string) string {
	t.Helper()
	return succeed(t, s.Helm3, args)
}

func succeed(t *testing.T, helm func(ctx context.Context, args ...string) (cluster.Result, error), args []string) string {
	t.Helper()
	result, err := helm(t.Context(), append(args, "--namespace", cluster.OpgateNamespace, "--timeout", helmTimeout)...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("helm %s: exit code %d\n%s%s", strings.Join(args, " "), result.ExitCode, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// install installs a release and waits until it is ready, as helm sees it.
func (s *site) install(t *testing.T, set ...string) {
	t.Helper()
	s.helm(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--wait", "--set", strings.Join(append([]string{quick}, set...), ","))
}

// admin runs kubectl as the admin.
func (s *site) admin(t *testing.T, args ...string) string {
	t.Helper()
	return harness.Kubectl(t, s.Cluster, cluster.Admin, "", args...)
}

// try is something to write, and what is wanted of it.
type try struct {
	user    cluster.User
	object  *unstructured.Unstructured
	refused string // "" if it is to be written
}

// tries are one write that the gate allows and one that it refuses.
func tries(namespace string) []try {
	return []try{
		{user: cluster.Tenant, object: harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual")},
		{
			user:    cluster.Tenant,
			object:  harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual"),
			refused: "(subscription/catalog)",
		},
	}
}

// attempt makes a write without effect.
func (s *site) attempt(ctx context.Context, t try) error {
	body, err := t.object.MarshalJSON()
	if err != nil {
		return err
	}
	got, err := s.Clients[t.user].Send(ctx, harness.Request{
		Method:      http.MethodPost,
		Path:        harness.PathOf(harness.Resources[t.object.GetKind()], t.object.GetNamespace(), "", ""),
		Query:       url.Values{"dryRun": {"All"}},
		ContentType: "application/json",
		Body:        body,
	})
	switch {
	case err != nil:
		return err
	case t.refused == "" && !got.OK(), t.refused != "" && !strings.Contains(got.Refused, t.refused):
		return fmt.Errorf("%s %s: got %s", t.object.GetKind(), t.object.GetName(), got)
	}
	return nil
}

// wantGate wants the gate to judge, from now on, in a namespace that a policy governs.
func (s *site) wantGate(t *testing.T, namespace string) {
	t.Helper()
	for _, try := range tries(namespace) {
		harness.Eventually(t, "the gate judges", func(ctx context.Context) error { return s.attempt(ctx, try) })
	}
}

// wantUngated wants what the gate would refuse to be taken, soon.
func (s *site) wantUngated(t *testing.T, namespace string) {
	t.Helper()
	for _, object := range []*unstructured.Unstructured{
		harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual"), harness.InstallPlan(namespace, "another", harness.ForbiddenVersion),
	} {
		harness.Eventually(t, "the API is writable", func(ctx context.Context) error {
			return s.attempt(ctx, try{user: cluster.Admin, object: object})
		})
	}
	harness.Eventually(t, "the objects of the backstop are deleted", func(context.Context) error {
		if left := s.admin(t, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings",
			"opgate-backstop", "opgate-unpacked", "--ignore-not-found", "-o", "name"); left != "" {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
}

// wantHeld wants the API server to refuse by itself, soon, what needs no webhook to judge, and to admit the rest.
func (s *site) wantHeld(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, "the webhooks are not called", func(ctx context.Context) error {
		return s.attempt(ctx, try{user: cluster.Admin, object: harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")})
	})
	s.wantBackstop(t, namespace)
}

// wantBackstop wants the API server to refuse by itself, soon: it does so before it calls validating webhooks. The leader writes
// the policies for it, which may be some time after the first pod is ready.
func (s *site) wantBackstop(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, "the API server refuses by itself", func(ctx context.Context) error {
		err := s.attempt(ctx, try{user: cluster.Admin, object: harness.InstallPlan(namespace, "another", harness.ForbiddenVersion)})
		if err == nil || !strings.Contains(err.Error(), "held by the API server") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// govern stores a policy for a new namespace of the tenant's.
func (s *site) govern(t *testing.T) (namespace string) {
	t.Helper()
	namespace = s.NewNamespace(t)
	harness.Eventually(t, "a policy is stored", func(ctx context.Context) error {
		_, err := s.Create(ctx, harness.OperatorPolicy(namespace))
		return err
	})
	return namespace
}

// caBundles are all of those that the API server calls Opgate with.
func (s *site) caBundles(t *testing.T) [][]byte {
	t.Helper()
	var all [][]byte
	for resource, name := range registrations {
		u, err := s.Clients[cluster.Admin].Resource(resource).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bundles(u)...)
	}
	return all
}
