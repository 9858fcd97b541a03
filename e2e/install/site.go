// Package install installs Opgate as users do, and has what tests of that share. Its tests install, upgrade and remove
// it, by helm and kubectl, and are about its certificates.
package install

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/node"
)

const (
	publicRegistry = "ghcr.io"
	// Repository is where the chart has the image from.
	Repository = node.OpgateImage
	// helmTimeout is longer than a command may take in any case.
	helmTimeout = "24h"
)

// Quick makes a release do in seconds what may take minutes, on a machine that may be busy.
func Quick() string {
	return "certificates.selfManaged.caOverlap=2s,drain.delay=1s,drain.timeout=1s," + shared()
}

// Hasten makes manifests with the chart's default values do in seconds what may take minutes, as Quick.
func Hasten(t *testing.T, manifests string) string {
	t.Helper()
	for shipped, quick := range map[string]string{
		"--drain-timeout=100s": "--drain-timeout=1s",
		"--max-staleness=10s":  "--max-staleness=" + cluster.MaxStaleness().String(),
	} {
		if !strings.Contains(manifests, shipped) {
			t.Fatalf("the manifests have no %s", shipped)
		}
		manifests = strings.ReplaceAll(manifests, shipped, quick)
	}
	return manifests
}

// shared is for a machine that many processes share, on which a watch may end late. Requests that may not fail would.
func shared() string { return "policy.maxStaleness=" + seconds(cluster.MaxStaleness()) }

// seconds is a duration as values of the chart say it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0fs", d.Round(time.Second).Seconds()) }

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Site is a cluster that Opgate is installed on as users do, by helm or kubectl, with the permissions that come with
// it. Its pods are processes of this machine, which the API server reaches by way of a Service.
type Site struct {
	*harness.Env
	// Node runs the pods.
	Node *node.Node
	// Binary is Opgate's.
	Binary string
}

// Start starts a cluster with a node that has the image of an Opgate that is built from this checkout.
func Start(t *testing.T) *Site {
	t.Helper()
	return start(t, cluster.Options{}, nil)
}

// start starts a cluster with a node that has other images, too.
func start(t *testing.T, opts cluster.Options, images map[string]node.Program) *Site {
	t.Helper()
	opts.Bare, opts.Node, opts.Audit, opts.Log = true, true, true, os.Stderr
	e := harness.StartUnchecked(t, opts)
	s := &Site{Env: e}
	t.Cleanup(func() {
		if t.Failed() {
			s.Logs(t)
		}
	})
	var err error
	if s.Binary, err = s.Programs().Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := map[string]node.Program{Repository: node.Opgate(s.Binary)}
	maps.Copy(all, images)
	if s.Node, err = node.Start(t.Context(), s.Cluster, node.Options{Images: all, Log: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, s.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	return s
}

// Logs shows how the logs of the pods end.
func (s *Site) Logs(t *testing.T) {
	for _, pod := range s.Node.Pods(cluster.OpgateNamespace) {
		t.Logf("pod %s logged at last:\n%s", pod.Name, tail.File(pod.Log, 10))
	}
}

// Pods are those that are to stay. Others may still be there, for the API server to let go of them.
func (s *Site) Pods(t *testing.T) []node.Pod {
	t.Helper()
	stored, err := s.Clients[cluster.Admin].Resource(podResource).Namespace(cluster.OpgateNamespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	staying := map[string]bool{}
	for _, pod := range stored.Items {
		staying[pod.GetName()] = pod.GetDeletionTimestamp() == nil
	}
	return slices.DeleteFunc(s.Node.Pods(cluster.OpgateNamespace),
		func(pod node.Pod) bool { return !staying[pod.Name] })
}

// unknownOwner is why the API server refuses an owner reference for up to half a minute after the definition of the
// owner's kind was installed: admission plugin OwnerReferencesPermissionEnforcement reads kinds that often. It is no
// lack of a right.
const unknownOwner = "cannot find RESTMapping"

// WantNothingForbidden wants that the permissions of the release are enough for all that it did.
func (s *Site) WantNothingForbidden(t *testing.T) {
	t.Helper()
	requests, err := s.OpgateRequests(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	harness.RecordRights(requests)
	for _, r := range requests {
		if r.Response.Code == http.StatusForbidden && !strings.Contains(r.Response.Message, unknownOwner) {
			t.Errorf("%s: opgate may not %s %s: %s", r.Received.Format(time.RFC3339Nano), r.Verb, r.URI,
				r.Response.Message)
		}
	}
}

// RunHelm runs helm, wants it to succeed and returns what it printed.
func (s *Site) RunHelm(t *testing.T, args ...string) string {
	t.Helper()
	return succeed(t, s.Helm, args)
}

func succeed(
	t *testing.T, helm func(ctx context.Context, args ...string) (cluster.Result, error), args []string,
) string {
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

// Admin runs kubectl as the admin.
func (s *Site) Admin(t *testing.T, args ...string) string {
	t.Helper()
	return harness.Kubectl(t, s.Cluster, cluster.Admin, "", args...)
}

// Try is something to write, and what is wanted of it.
type Try struct {
	User    cluster.User
	Object  *unstructured.Unstructured
	Refused string // "" if it is to be written
}

// tries are one write that the gate allows and one that it refuses.
func tries(namespace string) []Try {
	return []Try{
		{User: cluster.Tenant, Object: harness.Subscription(namespace, "good", harness.GoodCatalog, "Manual")},
		{
			User:    cluster.Tenant,
			Object:  harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual"),
			Refused: "(subscription/catalog)",
		},
	}
}

// Attempt makes a write without effect.
func (s *Site) Attempt(ctx context.Context, t Try) error {
	_, err := s.refusal(ctx, t)
	return err
}

// refusal makes a write without effect, and returns the text of the gate's refusal, "" for one that is to be written.
func (s *Site) refusal(ctx context.Context, t Try) (string, error) {
	body, err := t.Object.MarshalJSON()
	if err != nil {
		return "", err
	}
	got, err := s.Clients[t.User].Send(ctx, harness.Request{
		Method:      http.MethodPost,
		Path:        harness.PathOf(harness.Resources[t.Object.GetKind()], t.Object.GetNamespace(), "", ""),
		Query:       url.Values{"dryRun": {"All"}},
		ContentType: "application/json",
		Body:        body,
	})
	switch {
	case err != nil:
		return "", err
	case t.Refused != "" && got.OK():
		return "", fmt.Errorf(harness.Final+"%s %s was admitted", t.Object.GetKind(), t.Object.GetName())
	case t.Refused == "" && !got.OK(), t.Refused != "" && !strings.Contains(got.Refused, t.Refused):
		return "", fmt.Errorf("%s %s: got %s", t.Object.GetKind(), t.Object.GetName(), got)
	}
	return got.Refused, nil
}

// WantGate wants the gate to judge, from now on, in a namespace that a policy governs.
func (s *Site) WantGate(t *testing.T, namespace string) {
	t.Helper()
	for _, try := range tries(namespace) {
		harness.Eventually(t, "the gate judges", func(ctx context.Context) error { return s.Attempt(ctx, try) })
	}
}

// WantUngated wants what the gate would refuse to be taken, soon.
func (s *Site) WantUngated(t *testing.T, namespace string) {
	t.Helper()
	for _, object := range []*unstructured.Unstructured{
		harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual"),
		harness.InstallPlan(namespace, "another", harness.ForbiddenVersion),
	} {
		harness.Eventually(t, "the API is writable", func(ctx context.Context) error {
			return s.Attempt(ctx, Try{User: cluster.Admin, Object: object})
		})
	}
	harness.Eventually(t, "the objects of the backstop are deleted", func(context.Context) error {
		if left := s.Admin(t, "get",
			"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings",
			"opgate-backstop", "opgate-unpacked", "opgate-deletion", "opgate-evidence", "--ignore-not-found", "-o", "name"); left != "" {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
}

// Govern stores a policy for a new namespace of the tenant's.
func (s *Site) Govern(t *testing.T) (namespace string) {
	t.Helper()
	namespace = s.NewNamespace(t)
	harness.Eventually(t, "a policy is stored", func(ctx context.Context) error {
		_, err := s.Create(ctx, harness.OperatorPolicy(namespace))
		return err
	})
	return namespace
}

// Manifest returns the objects of the release, in YAML.
func (s *Site) Manifest(t *testing.T) string {
	t.Helper()
	result, err := s.Helm(t.Context(), "get", "manifest", "opgate", "--namespace", cluster.OpgateNamespace)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("helm get manifest: %v: %s", err, result.Stderr)
	}
	return result.Stdout
}

// ShellSteps are the commands in a document, as people copy them, that hold a text.
func ShellSteps(t *testing.T, path, text string) []string {
	t.Helper()
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for i, part := range strings.Split(string(document), "```") {
		if step, ok := strings.CutPrefix(part, "shell\n"); i%2 == 1 && ok && strings.Contains(step, text) {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s has no command with %q", path, text)
	}
	return steps
}

// Shell runs what people copy from a document, as the admin, in the root of the checkout.
func (s *Site) Shell(t *testing.T, step string) string {
	t.Helper()
	helm, err := assets.FindHelm(t.Context(), assets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", step)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "HOME="+s.Dir(),
		"PATH="+filepath.Dir(s.Assets().Kubectl())+":"+filepath.Dir(helm)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", step, err, out)
	}
	return string(out)
}

// DocumentedBlock returns the block of YAML in docs/install.md that has some text.
func DocumentedBlock(t *testing.T, text string) string {
	t.Helper()
	document, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(document), -1) {
		if strings.Contains(block[1], text) {
			return block[1]
		}
	}
	t.Fatalf("docs/install.md has no YAML with %q", text)
	return ""
}
