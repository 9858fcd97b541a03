package gate

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestBackstopSupported: on any version of Kubernetes, Opgate finds out what the API server serves of the backstop,
// writes that and no more, and reports it; what is served refuses by itself.
func TestBackstopSupported(t *testing.T) {
	t.Parallel()
	s := &backstopSite{LoopEnv: &harness.LoopEnv{Env: harness.Vacant(t)}}
	s.Connect(t)
	s.start(t, "enforce")
	s.namespace = s.NewNamespace(t)
	s.policy = s.Put(t, harness.OperatorPolicy(s.namespace))
	s.Put(t, harness.InstallPlan(s.namespace, "forbidden", harness.ForbiddenVersion))

	served := harness.Kubectl(t, s.Cluster, cluster.Admin, "", "get", "--raw", "/apis/admissionregistration.k8s.io/v1")
	supported := map[string]string{"validatingadmissionpolicies": "0", "mutatingadmissionpolicies": "0"}
	for resource := range supported {
		if strings.Contains(served, `"`+resource+`"`) {
			supported[resource] = "1"
		}
	}
	t.Logf("the API server serves %v", supported)
	s.wantMetrics(t,
		`opgate_backstop_supported{feature="validatingadmissionpolicy"} `+supported["validatingadmissionpolicies"],
		`opgate_backstop_supported{feature="mutatingadmissionpolicy"} `+supported["mutatingadmissionpolicies"])
	if supported["validatingadmissionpolicies"] == "0" {
		return // before Kubernetes 1.30: the webhooks alone hold
	}
	s.wantMetrics(t, `opgate_backstop_active{state="enforced"} 1`)
	for _, object := range backstopObjects {
		_, err := s.findBackstopObject(t.Context(), object)
		resource := strings.ReplaceAll(strings.Split(object, "/")[0], "policybindings", "policies")
		if got := err == nil; got != (supported[resource] == "1") {
			t.Errorf("%s is there: %t (%v), want it where the API server serves it: %v", object, got, err, supported)
		}
	}
	// Until the policy is in the objects: they are there before it is.
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	s.abandon(t)
	harness.Eventually(t, "the API server refuses by itself", s.approvable(s.namespace, "forbidden", false))
}
