package chart_test

import (
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMonitorsSelect wants a ServiceMonitor to select the Service of metrics alone, and a PodMonitor the pods.
func TestMonitorsSelect(t *testing.T) {
	selects := func(selector metav1.LabelSelector, labels map[string]string) bool {
		t.Helper()
		s, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			t.Fatal(err)
		}
		return s.Matches(labelSet(labels))
	}
	o := mustRender(t, "metrics: {serviceMonitor: {enabled: true}}")
	for name, service := range of[*corev1.Service](o) {
		same(t, "whether it scrapes "+name, selects(one[*serviceMonitor](t, o, "opgate").Spec.Selector, service.Labels),
			name == "opgate-metrics")
	}
	o = mustRender(t, "metrics: {podMonitor: {enabled: true}}")
	same(t, "whether it scrapes the pods", selects(one[*podMonitor](t, o, "opgate").Spec.Selector,
		deploymentOf(t, o).Spec.Template.Labels), true)
}

// TestAlertsAndDashboard wants those of the chart's files, but for what values change.
func TestAlertsAndDashboard(t *testing.T) {
	o := mustRender(t, "metrics: {prometheusRule: {enabled: true, ruleLabels: {team: platform, severity: page}, disabled: [OpgateOverrideUsed]}}")
	want := alertsFile(t)
	delete(want, "OpgateOverrideUsed")
	for name, alert := range want {
		alert.Labels = maps.Clone(alert.Labels)
		alert.Labels["team"], alert.Labels["severity"] = "platform", "page"
		want[name] = alert
	}
	same(t, "alerts", one[*prometheusRule](t, o, "opgate").alerts(), want)

	o = mustRender(t, "{metrics: {prometheusRule: {enabled: true}, dashboard: {enabled: true}}, policy: {backgroundLoop: {enabled: false}}}")
	want = alertsFile(t)
	delete(want, "OpgateNoLeader")
	same(t, "alerts without the loop", one[*prometheusRule](t, o, "opgate").alerts(), want)
	text := one[*corev1.ConfigMap](t, o, "opgate-dashboard").Data["opgate.json"]
	same(t, "dashboard", text, string(chartFile(t, "dashboard.json")))
	if !json.Valid([]byte(text)) {
		t.Error("the dashboard is not JSON")
	}
}
