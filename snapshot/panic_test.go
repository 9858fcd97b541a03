package snapshot

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// TestPanicsWhileReading makes the decoder panic on a stored policy: the policy holds what it governs, and the process
// continues.
func TestPanicsWhileReading(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder := panics.NewRecorder(registry, logr.Discard())
	kind := *OperatorPolicies
	kind.decode = func([]byte) (any, error) { panic("decoding failed") }
	recovering := Reader{Recover: recorder.Run}
	ns := snapshotOf(recovering.Read(&kind,
		[]byte(`{"metadata":{"name":"etcd","namespace":"policies"},"spec":{"subscription":{"name":"etcd","namespace":"shop"}}}`))).Namespace("shop")
	for _, p := range ns.Policies() {
		v := rules.JudgeSubscription(rules.SubscriptionInput{Namespace: ns, Mode: rules.DenyApproval,
			New: &olm.Subscription{Metadata: olm.ObjectMeta{Name: "etcd", Namespace: "shop"},
				Spec: olm.SubscriptionSpec{Package: p.Package}}})
		if v.Decision == verdict.Allow || !strings.Contains(v.Refusal(), "opgate failed while it read the object") {
			t.Errorf("%s: %s", v.Decision, v.Refusal())
		}
	}
	if n := len(ns.Policies()); n != 1 {
		t.Errorf("%d policies, want the one that cannot be read", n)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("counted are %v (%v), want one panic", families, err)
	}
}
