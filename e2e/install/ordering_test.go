package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// switchOrdering installs a release that leaves Policies to others, as docs/install.md describes, and one after it that
// does not.
func (s *Site) switchOrdering(t *testing.T) {
	const definition = "policies.policy.open-cluster-management.io"
	namespace := s.NewNamespace(t)
	s.install(t, "replicas=1", "ordering.enabled=false")
	s.writePolicy(t, namespace)
	s.WantGate(t, namespace)
	harness.WantRefused(t, s.Cluster, cluster.Admin, "", []string{"get", "customresourcedefinition", definition},
		"not found")

	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "ordering.enabled=true", "--wait")
	s.WantGate(t, namespace)
	s.Admin(t, "get", "customresourcedefinition", definition)
	const itself = `
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: itself}
spec:
  dependencies: [{kind: Policy, name: itself, compliance: Compliant}]
  policy-templates: [{objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: any}}}]
`
	// The API server learns of the new webhooks a moment after they are there.
	harness.Eventually(t, "Policies are judged", func(ctx context.Context) error {
		result, err := s.Kubectl(ctx, cluster.Admin, itself, "create", "--dry-run=server", "--namespace="+namespace,
			"-f", "-")
		if err == nil && !strings.Contains(result.Stderr, `admission webhook "policies.opgate.io" denied the request`) {
			err = fmt.Errorf("it says %s%s", result.Stdout, result.Stderr)
		}
		return err
	})

	// What the definition holds stays when Policies are left to others again.
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "ordering.enabled=false", "--wait")
	s.WantGate(t, namespace)
	s.Admin(t, "get", "customresourcedefinition", definition)
	s.RunHelm(t, "uninstall", "opgate", "--wait")
}
