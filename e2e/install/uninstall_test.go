package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// uninstalls installs a release where the namespace of one was deleted, and takes it away again.
func (s *Site) uninstalls(t *testing.T) {
	s.install(t, "replicas=1")
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.uninstall(t)
	s.WantUngated(t, namespace)
	s.wantPolicies(t, namespace)
}

// TestUninstall takes releases away in orders in which people go about it; TestInstall has those of the manual.
// Afterwards the API takes everything again, without further ado, and the next release can be installed. What begins it
// is what an admin types first; the rest follows. Its cluster is its own, since definitions come and go.
func TestUninstall(t *testing.T) {
	t.Parallel()
	s := Start(t)
	namespace := s.NewNamespace(t)
	t.Run("ordering off and on", func(t *testing.T) { s.switchOrdering(t) })
	for _, order := range []struct {
		name  string
		steps func(t *testing.T)
	}{
		{
			name: "the webhook configurations first",
			steps: func(t *testing.T) {
				s.Admin(t, "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "opgate")
				s.wantHeld(t, namespace)
				s.uninstall(t)
			},
		},
		{
			name: "the definition first",
			steps: func(t *testing.T) {
				s.Admin(t, "delete", "customresourcedefinition", registrations[harness.DefinitionResource])
				s.uninstall(t)
			},
		},
		{
			name: "the permissions first",
			steps: func(t *testing.T) {
				s.Admin(t, "delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/name=opgate")
				s.Admin(t, "delete", "serviceaccount", "-n", cluster.OpgateNamespace, "opgate")
				s.uninstall(t)
			},
		},
		{
			name: "the pods first",
			steps: func(t *testing.T) {
				s.Admin(t, "delete", "deployment", "-n", cluster.OpgateNamespace, "opgate", "--cascade=foreground")
				harness.Eventually(t, "no replica answers", func(ctx context.Context) error {
					err := s.Attempt(ctx, tries(namespace)[0])
					if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
						return fmt.Errorf("got %w", err)
					}
					return nil
				})
				s.uninstall(t)
			},
		},
	} {
		t.Run(order.name, func(t *testing.T) {
			s.install(t, "replicas=1")
			s.writePolicy(t, namespace)
			s.WantGate(t, namespace)
			order.steps(t)
			s.WantUngated(t, namespace)
			s.wantPolicies(t, namespace)
			s.Admin(t, "get", "customresourcedefinition", "constraints.operators.coreos.com") // and what it defines
		})
	}
	t.Run("a definition that was there before", func(t *testing.T) { s.takeOver(t) })
}

func (s *Site) uninstall(t *testing.T) { s.RunHelm(t, "uninstall", "opgate", "--wait") }

// takeOver installs a release where another controller has left its definition of OperatorPolicy, with v1beta1 alone
// and a policy in it, as docs/install.md describes.
func (s *Site) takeOver(t *testing.T) {
	data, err := os.ReadFile("../../manifests/crd/policy.open-cluster-management.io_operatorpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &definition); err != nil {
		t.Fatal(err)
	}
	definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name != harness.Earlier })
	definition.Spec.Versions[0].Storage = true
	if data, err = yaml.Marshal(definition); err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, s.Cluster, cluster.Admin, string(data), "create", "-f", "-")
	s.Admin(t, "wait", "--for=condition=Established", "customresourcedefinition", definition.Name)
	namespace := s.NewNamespace(t)
	stored := harness.OperatorPolicy(namespace)
	stored.SetAPIVersion("policy.open-cluster-management.io/" + harness.Earlier)
	harness.Eventually(t, "the policy is stored", func(ctx context.Context) error {
		result, err := s.Kubectl(ctx, cluster.Admin, harness.AsJSON(t, stored), "create", "-f", "-")
		if err == nil && result.ExitCode != 0 {
			err = errors.New(result.Stderr)
		}
		return err
	})
	for _, step := range ShellSteps(t, "../../docs/install.md", "--take-ownership --force-conflicts") {
		s.Shell(t, strings.TrimSpace(step)+" --set "+Quick())
	}
	s.Admin(t, "rollout", "status", "deployment", "-n", cluster.OpgateNamespace, "opgate")
	s.WantGate(t, namespace)
	if got := s.Admin(t, "get", "operatorpolicies.v1beta2.policy.open-cluster-management.io", "-n",
		cluster.PolicyNamespace, namespace, "-o", "jsonpath={.spec.versions}"); !strings.Contains(got,
		harness.AllowedCSV) {
		t.Errorf("the policy has versions %s", got)
	}
}

// overlay builds one of the overlays, with Hasten.
func (s *Site) overlay(t *testing.T, name string) string {
	t.Helper()
	return Hasten(t, s.Admin(t, "kustomize", filepath.Join("..", "..", "manifests", "overlays", name)))
}

func (s *Site) writePolicy(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, "the policy is stored", func(ctx context.Context) error {
		_, err := s.Create(ctx, harness.OperatorPolicy(namespace))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// wantPolicies wants that policies, where their definition was kept, can still be read and written, as they are stored,
// and in both versions after the command that docs/install.md has for it.
func (s *Site) wantPolicies(t *testing.T, namespace string) {
	t.Helper()
	_, err := s.Clients[cluster.Admin].Resource(harness.DefinitionResource).Get(t.Context(),
		registrations[harness.DefinitionResource], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Admin(t, "annotate", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace, "--overwrite",
		"test/removed="+t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	for _, step := range ShellSteps(t, "../../docs/install.md", "strategy") {
		s.Shell(t, step)
	}
	harness.Eventually(t, "policies can be written in v1beta1", func(ctx context.Context) error {
		result, err := s.Kubectl(ctx, cluster.Admin, "", "annotate",
			"operatorpolicies.v1beta1.policy.open-cluster-management.io", "-n", cluster.PolicyNamespace, namespace,
			"--overwrite", "test/earlier=yes")
		if err == nil && result.ExitCode != 0 {
			err = errors.New(result.Stderr)
		}
		return err
	})
	s.Admin(t, "delete", "customresourcedefinition", registrations[harness.DefinitionResource])
}
