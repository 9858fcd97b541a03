package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/dependency"
)

func TestEvent(t *testing.T) {
	about := &storedPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", UID: "u",
		ResourceVersion: "7"}}
	at := metav1.NewTime(start)
	want := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app.18867b02fbaa8000"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "policy.open-cluster-management.io/v1", Kind: "Policy",
			Namespace: "shop", Name: "app", UID: "u", ResourceVersion: "7"},
		Reason: "PolicyTemplateSync", Action: "PolicyTemplateSync", Message: "x: Pending; because",
		Type:   "Warning",
		Source: corev1.EventSource{Component: "opgate", Host: "pod"}, ReportingController: "opgate",
		ReportingInstance: "pod",
		FirstTimestamp:    at, LastTimestamp: at, Count: 1,
	}
	got := eventOf(about, dependency.Event{Warning: true, Message: "x: Pending; because"}, start, "pod")
	want.Name = got.Name // contains the time
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := eventOf(about, dependency.Event{}, start, "pod"); got.Type != corev1.EventTypeNormal {
		t.Errorf("type %q", got.Type)
	}
	if eventOf(about, dependency.Event{}, start, "pod").Name == eventOf(about, dependency.Event{}, start.Add(1),
		"pod").Name {
		t.Error("two events have one name")
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: name} }
	in := func(state dependency.State) *storedPolicy {
		return &storedPolicy{Object: &policyv1.Policy{}, Read: &dependency.Policy{State: state}}
	}
	expect := func(what string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				name := family.GetName()
				if labels := metric.GetLabel(); len(labels) > 0 {
					name = labels[0].GetValue()
				}
				if v := metric.GetGauge().GetValue(); v != 0 {
					got[name] = v
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	m.changed(key("a"), in(dependency.Compliant))
	expect("no replica leads", map[string]float64{})
	m.started(func() int { return 3 })
	m.changed(key("a"), in(dependency.Compliant))
	m.changed(key("b"), in(dependency.Pending))
	m.changed(key("c"), in(""))
	m.changed(key("d"), &storedPolicy{Read: &dependency.Policy{Disabled: true, State: dependency.Compliant}})
	m.changed(key("e"), &storedPolicy{})
	expect("first", map[string]float64{"Compliant": 1, "Pending": 1, "Unknown": 2, "Disabled": 1,
		"opgate_ordering_watches": 3})
	m.changed(key("b"), in(dependency.Compliant))
	m.changed(key("a"), nil)
	m.changed(key("e"), nil)
	expect("then", map[string]float64{"Compliant": 1, "Unknown": 1, "Disabled": 1, "opgate_ordering_watches": 3})
	m.stopped()
	m.changed(key("b"), in(dependency.Pending)) // a worker that has not returned yet
	expect("in the end", map[string]float64{})
}
