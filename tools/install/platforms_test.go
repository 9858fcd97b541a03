package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
	"github.com/opgate/opgate/tools/chart"
)

// TestPlatforms installs Opgate as on platforms that treat releases in ways of their own. The API server limits the
// priority class of the pods, as on GKE, in all tests of this package. Its cluster is its own: all of the release is
// deleted, object by object.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	s := site{install.Start(t)}
	t.Run("GKE: pods need a quota for their class", func(t *testing.T) {
		s.RunHelm(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--set",
			install.Quick()+",resourceQuota.create=false")
		harness.Eventually(t, "pods are refused", func(context.Context) error {
			if got := s.Admin(t, "get", "replicasets", "-n", cluster.OpgateNamespace, "-o",
				"jsonpath={.items[*].status.conditions[*].message}"); !strings.Contains(got, "insufficient quota") {
				return fmt.Errorf("conditions are %q", got)
			}
			return nil
		})
		s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "resourceQuota.create=true",
			"--wait")
	})
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	t.Run("AKS: a selector that goes by a label is reported", func(t *testing.T) { s.rewriteSelector(t) })
	t.Run("Argo CD deletes what has no owner and nothing stays locked", func(t *testing.T) { s.argo(t, namespace) })
}

// rewriteSelector exempts namespaces by a label, as AKS does, and applies the release again.
func (s site) rewriteSelector(t *testing.T) {
	const label = "control-plane"
	selectors := func() string {
		return s.Admin(t, "get", "validatingwebhookconfiguration", "opgate", "-o",
			"jsonpath={.webhooks[*].namespaceSelector.matchExpressions[*].key}")
	}
	s.Admin(t, "patch", "validatingwebhookconfiguration", "opgate", "--type=json", "--patch",
		`[{"op":"add","path":"/webhooks/0/namespaceSelector/matchExpressions/-","value":{"key":"`+label+
			`","operator":"DoesNotExist"}}]`)
	harness.Eventually(t, "a pod reports it", func(ctx context.Context) error {
		for _, pod := range s.Pods(t) {
			_, metrics, err := harness.GetURL(ctx, "http://"+pod.Addresses["metrics"]+"/metrics")
			if err != nil {
				return err
			}
			if strings.Contains(metrics, `opgate_webhook_selector_changed{object="validatingwebhookconfiguration"} 1`) {
				return nil
			}
		}
		return errors.New("no metric has it")
	})
	if !strings.Contains(selectors(), label) {
		t.Error("the selector has been overwritten, which the controller that wrote it would undo")
	}
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--force-conflicts", "--wait")
	if got := selectors(); strings.Contains(got, label) {
		t.Errorf("selectors go by %s after the release was applied", got)
	}
}

// argo goes over to the values of the Application in docs/install.md, and deletes the release as Argo CD does: every
// object without owner references, but for those that are to be kept. The namespace stays.
func (s site) argo(t *testing.T, namespace string) {
	owners := func() string {
		return s.Admin(t, "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "opgate", "-o",
			"jsonpath={.items[*].metadata.ownerReferences[*].kind}")
	}
	harness.Eventually(t, "the namespace owns both", func(context.Context) error {
		if got := owners(); got != "Namespace Namespace" {
			return fmt.Errorf("owners are %q", got)
		}
		return nil
	})
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	documented, err := chart.Documented(checkout, "Application", "source", "helm", "valuesObject")
	if err != nil {
		t.Fatal(err)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, documented, 0o600); err != nil {
		t.Fatal(err)
	}
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--values", values, "--set", install.Quick(), "--wait")
	harness.Eventually(t, "neither has an owner", func(context.Context) error {
		if got := owners(); got != "" {
			return fmt.Errorf("owners are %q", got)
		}
		return nil
	})
	s.WantGate(t, namespace)

	documents, err := chart.Split(s.Manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		object := []string{d.Kind + "." + group(d.APIVersion), d.Name, "-n",
			harness.Object("%s", d.Text).GetNamespace()}
		kept := s.Admin(t, append([]string{"get", "-o",
			`jsonpath={.metadata.ownerReferences}{.metadata.annotations.helm\.sh/resource-policy}`}, object...)...)
		if kept == "" {
			s.Admin(t, append([]string{"delete", "--wait=false"}, object...)...)
		}
	}
	s.WantUngated(t, namespace)
	s.Admin(t, "get", "namespace", cluster.OpgateNamespace)
	harness.Kubectl(t, s.Cluster, cluster.Admin,
		harness.AsJSON(t, harness.Subscription(namespace, "after", harness.ForeignCatalog, "Automatic")), "create",
		"-f", "-")
}

// group returns version and group as kubectl takes them behind a kind: v1.apps, and v1. for the core group.
func group(apiVersion string) string {
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		return version + "." + group
	}
	return apiVersion + "."
}
