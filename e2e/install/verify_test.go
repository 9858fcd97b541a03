package install

import (
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// wantVerified wants "helm test" to have found that the gate works, and to have left only the pod, which has no rights
// any more.
func (s *Site) wantVerified(t *testing.T) {
	t.Helper()
	harness.WantTexts(t, s.Admin(t, "logs", "--namespace", cluster.OpgateNamespace, "opgate-test"), "the gate works",
		`admission webhook "operatorpolicies.opgate.io" denied the request`, "opgate-verify", "newer than 1",
		"(operatorpolicy/field)")
	for _, of := range []string{"role,rolebinding --namespace default",
		"serviceaccount,networkpolicy --namespace " + cluster.OpgateNamespace} {
		for _, name := range strings.Fields(
			s.Admin(t, append([]string{"get", "-o", "jsonpath={.items[*].metadata.name}"}, strings.Fields(of)...)...)) {
			if name == "opgate-test" {
				t.Errorf("the test has left an object among %s", of)
			}
		}
	}
	// It was a dry run.
	_, err := s.Clients[cluster.Admin].Resource(harness.OperatorPolicies).Namespace(metav1.NamespaceDefault).Get(
		t.Context(), "opgate-verify", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("get the policy of the test: %v", err)
	}
}

// wantUnverified wants `opgate-server verify` to fail, and to say why.
func (s *Site) wantUnverified(t *testing.T, says string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), s.Binary, "verify", "--kubeconfig", s.Kubeconfig(), "--timeout",
		"0s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), says) {
		t.Errorf("opgate-server verify: %v, it printed\n%s\nwant\n%s", err, out, says)
	}
}
