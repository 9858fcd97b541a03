package loop

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	root = "../.."
	demo = root + "/tools/demo/"
)

// TestReadme types the commands of the README on a cluster like that of "make up": they print what the README shows,
// before and after the loop has acted on the policies.
func TestReadme(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	readme, hour := document(t, "README.md"), document(t, "docs/first-hour.md")
	// An API server that has just started may refuse the first watches for a while, so that a policy is seen late. One
	// that was acted on was seen.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "apply", "-f", demo+"policy.yaml")
	evaluated(t, e, "etcd")
	t.Run("a sample that is refused", func(t *testing.T) {
		command := regexp.MustCompile(`(?m)^kubectl --context admin apply .*$`).FindString(hour)
		want := block(t, hour, "namespace/policies configured\n")
		first := terminal(t, e.Cluster, command)
		if diff := cmp.Diff(want, first); diff != "" {
			t.Errorf("%s does not print what the README shows:\n%s", command, diff)
		}
		evaluated(t, e, "subscription-catalog-deny")
		again := terminal(t, e.Cluster, command)
		if diff := cmp.Diff(refusal(first), refusal(again)); diff != "" || refusal(again) == "" {
			t.Errorf("after the loop has acted %s prints something else:\n%s", command, diff)
		}
	})
	t.Run("a plan that is refused", func(t *testing.T) {
		for _, step := range []struct {
			user cluster.User
			args []string
		}{
			{user: cluster.OLM, args: []string{"create", "-f", demo + "installplan-0.9.4.yaml"}},
			{user: cluster.OLM, args: []string{"patch", "installplan", "install-etcd-0.9.4", "-n",
				cluster.ShopNamespace, "--subresource=status",
				"--type=merge", "--patch-file=" + demo + "installplan-0.9.4-status.yaml"}},
		} {
			harness.Kubectl(t, e.Cluster, step.user, "", step.args...)
		}
		e.Sync(t)
		command, want, _ := strings.Cut(strings.TrimPrefix(block(t, readme, "$ kubectl patch installplan"), "$ "), "\n")
		got := terminal(t, e.Cluster, command)
		// The README wraps what is one line on a terminal.
		if diff := cmp.Diff(strings.Fields(want), strings.Fields(got)); diff != "" {
			t.Errorf("%s does not print what the README shows:\n%s", command, diff)
		}
	})
	t.Run("break-glass", func(t *testing.T) {
		plan := func(file string) string {
			data, err := os.ReadFile(demo + file)
			if err != nil {
				t.Fatal(err)
			}
			return strings.ReplaceAll(string(data), "install-etcd-0.9.4", "install-x7")
		}
		harness.Kubectl(t, e.Cluster, cluster.OLM, plan("installplan-0.9.4.yaml"), "create", "-f", "-")
		harness.Kubectl(t, e.Cluster, cluster.OLM, "", "patch", "installplan", "install-x7", "-n",
			cluster.ShopNamespace, "--subresource=status",
			"--type=merge", "--patch", plan("installplan-0.9.4-status.yaml"))
		typed(t, e.Cluster, "docs/rules.md", "kubectl patch installplan install-x7 -n shop")
	})
	t.Run("rights", func(t *testing.T) {
		for _, first := range []string{
			"kubectl get deployments --all-namespaces",
			"kubectl create rolebinding policy-authors",
			"kubectl create clusterrolebinding constraint-authors",
			"kubectl create clusterrole operator-break-glass",
			"kubectl create clusterrolebinding prometheus-opgate",
		} {
			typed(t, e.Cluster, "docs/install.md", first)
		}
	})
	t.Run("the policy and the constraint", func(t *testing.T) {
		for _, object := range []string{block(t, readme, "apiVersion: policy.open-cluster-management.io/v1beta2"),
			block(t, document(t, "docs/constraints.md"), "apiVersion: operators.coreos.com/v1\n")} {
			harness.Kubectl(t, e.Cluster, cluster.Admin, object, "apply", "--dry-run=server", "-f", "-")
		}
	})
}

// document returns the text of a file in the checkout.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block returns the block of a document that begins with a text.
func block(t *testing.T, document, first string) string {
	t.Helper()
	for i, part := range strings.Split(document, "```") {
		if _, text, ok := strings.Cut(part, "\n"); i%2 == 1 && ok && strings.HasPrefix(text, first) {
			return text
		}
	}
	t.Fatalf("no block begins with %q", first)
	return ""
}

// refusal returns the line that states what is refused.
func refusal(output string) string {
	return regexp.MustCompile(`(?m)^Error from server.*$`).FindString(output)
}

// typed types the commands of the block of a document that begins with a text, as the admin. All must succeed.
func typed(t *testing.T, c *cluster.Cluster, name, first string) {
	t.Helper()
	step := block(t, document(t, name), first)
	if output := terminal(t, c, step+"echo done\n"); !strings.HasSuffix(output, "done\n") {
		t.Errorf("%s of %s:\n%s", step, name, output)
	}
}

// terminal runs commands in the root of the checkout, up to the first that fails, and returns what a terminal shows.
func terminal(t *testing.T, c *cluster.Cluster, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", commands)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+c.Dir(), "PATH="+searchPath(c))
	output, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output)
}

// searchPath has kubectl with its plugin, once that was used.
func searchPath(c *cluster.Cluster) string {
	return filepath.Dir(c.Assets().Kubectl()) + ":" + filepath.Join(c.Dir(), "plugins") + ":" + os.Getenv("PATH")
}

// evaluated waits until the loop has acted on a policy.
func evaluated(t *testing.T, e *harness.LoopEnv, name string) {
	t.Helper()
	harness.Eventually(t, "the loop acts on the policy", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "get", "operatorpolicy", name, "-n", cluster.PolicyNamespace,
			"-o", "jsonpath={.status.compliant}")
		if err == nil && result.Stdout == "" {
			err = errors.New("it has no status")
		}
		return err
	})
}
