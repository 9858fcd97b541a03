package admission

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/admission/olmidentity"
)

// TestCandidates writes a plan in the form of OLM's, by users that are not configured as OLM. The refusal names the
// setting to those who could be OLM, and to no others.
func TestCandidates(t *testing.T) {
	const administrator = "system:admin"
	s := named(t, "plan-create-by-hand")
	ofSubscription := s.Write.DeepCopy()
	ofSubscription.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "operators.coreos.com/v1alpha1", Kind: "Subscription", Name: "etcd", UID: "1"},
	})
	cases := map[string]struct {
		user      string
		byHand    bool
		elsewhere bool
		want      string
	}{
		"an administrator in OLM's form":         {user: administrator, want: "--olm-identity=" + administrator},
		"a plan without its owner":               {user: administrator, byHand: true},
		"attack: a tenant in OLM's form":         {user: "tenant"},
		"attack: a client that is no API server": {user: administrator, elsewhere: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := optionsOf(Options{Store: storeOf(t, s.Policies...), Authorizer: overrideBy{administrator}})
			o.Candidates = olmidentity.NewCandidates(o.OLM.Account(), prometheus.NewRegistry(), logr.Discard())
			if !c.elsewhere {
				o.Authenticated = byAPIServer
			}
			gate := New(o)
			plan := ofSubscription
			if c.byHand {
				plan = s.Write
			}
			got := send(t, gate, c.user, false, nil, plan)
			if got.allowed || !strings.Contains(got.message, "(plan/create)") {
				t.Errorf("allowed is %v, message %q", got.allowed, got.message)
			}
			reported := strings.Contains(got.message, "(gate/olm-identity)")
			if reported != (c.want != "") || !strings.Contains(got.message, c.want) {
				t.Errorf("the refusal is\n%s\nwant it to name %q", got.message, c.want)
			}
		})
	}
}
