package chart_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// monitoringCases are values for Prometheus and Grafana.
func monitoringCases() []valueCase {
	const endpoint = `
    namespace: monitoring
    labels: {release: prometheus}
    annotations: {example.com/owner: platform}
    jobLabel: app.kubernetes.io/name
    interval: 15s
    scrapeTimeout: 5s
    honorLabels: true
    relabelings: [{action: labeldrop, regex: pod_ip}]
    metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: go_.*}]`
	return []valueCase{
		{
			name:   "service monitor",
			values: "metrics: {serviceMonitor: {enabled: true}}",
			check: func(t *testing.T, o objects) {
				monitor := one[*serviceMonitor](t, o, "opgate")
				same(t, "namespace", monitor.Namespace, namespace)
				same(t, "namespaces", monitor.Spec.NamespaceSelector.MatchNames, []string{namespace})
				same(t, "endpoints", monitor.Spec.Endpoints, []monitorEndpoint{{Port: "metrics"}})
				for name, service := range of[*corev1.Service](o) {
					selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
					if err != nil {
						t.Fatal(err)
					}
					same(t, "whether it scrapes "+name, selector.Matches(labelSet(service.Labels)),
						name == "opgate-metrics")
				}
				same(t, "port", one[*corev1.Service](t, o, "opgate-metrics").Spec.Ports[0].Name, "metrics")
			},
		},
		{
			name:   "service monitor with all that it can have",
			values: "metrics:\n  secure: true\n  serviceMonitor:\n    enabled: true\n    tlsConfig: {insecureSkipVerify: true}" + endpoint,
			check: func(t *testing.T, o objects) {
				monitor := one[*serviceMonitor](t, o, "opgate")
				same(t, "job label", monitor.Spec.JobLabel, "app.kubernetes.io/name")
				checkMonitor(t, monitor, monitor.Spec.NamespaceSelector)
				checkEndpoint(t, monitor.Spec.Endpoints)
				same(t, "token", monitor.Spec.Endpoints[0].Token, "/var/run/secrets/kubernetes.io/serviceaccount/token")
			},
		},
		{
			name: "service monitor for OpenShift's monitoring of user workloads",
			values: "metrics: {secure: true, service: {annotations: {a: b}}, serviceMonitor: {enabled: true, authorization: {credentials: {name: token, key: value}}, " +
				"tlsConfig: {ca: {configMap: {name: openshift-service-ca.crt, key: service-ca.crt}}, serverName: opgate-webhook.opgate-system.svc}}}",
			check: func(t *testing.T, o objects) {
				endpoint := one[*serviceMonitor](t, o, "opgate").Spec.Endpoints[0]
				same(t, "token file", endpoint.Token, "")
				same(t, "token", endpoint.Authorization["credentials"],
					any(map[string]any{"name": "token", "key": "value"}))
				same(t, "annotations of the Service", one[*corev1.Service](t, o, "opgate-metrics").Annotations,
					map[string]string{"a": "b"})
			},
		},
		{
			name:   "pod monitor",
			values: "metrics: {podMonitor: {enabled: true}}",
			check: func(t *testing.T, o objects) {
				monitor := one[*podMonitor](t, o, "opgate")
				gone[*serviceMonitor](t, o, "opgate")
				same(t, "namespaces", monitor.Spec.NamespaceSelector.MatchNames, []string{namespace})
				same(t, "endpoints", monitor.Spec.Endpoints, []monitorEndpoint{{Port: "metrics"}})
				selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
				if err != nil {
					t.Fatal(err)
				}
				same(t, "whether it scrapes the pods",
					selector.Matches(labelSet(deploymentOf(t, o).Spec.Template.Labels)), true)
				if !slices.ContainsFunc(container(t, o).Ports,
					func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
					t.Errorf("the container has no port metrics: %v", container(t, o).Ports)
				}
			},
		},
		{
			name: "pod monitor with all that it can have",
			values: "metrics:\n  secure: true\n  podMonitor:\n    enabled: true\n    tlsConfig: {insecureSkipVerify: true}\n" +
				"    authorization: {credentials: {name: token, key: value}}" + endpoint,
			check: func(t *testing.T, o objects) {
				monitor := one[*podMonitor](t, o, "opgate")
				same(t, "job label", monitor.Spec.JobLabel, "app.kubernetes.io/name")
				checkMonitor(t, monitor, monitor.Spec.NamespaceSelector)
				checkEndpoint(t, monitor.Spec.Endpoints)
				same(t, "token", monitor.Spec.Endpoints[0].Authorization["credentials"],
					any(map[string]any{"name": "token", "key": "value"}))
			},
		},
		{
			name: "alerts",
			values: "metrics: {prometheusRule: {enabled: true, namespace: monitoring, labels: {release: prometheus}, annotations: {example.com/owner: platform}, " +
				"ruleLabels: {team: platform, severity: page}, disabled: [OpgateOverrideUsed]}}",
			check: func(t *testing.T, o objects) {
				rule := one[*prometheusRule](t, o, "opgate")
				checkObject(t, rule)
				want := alertsFile(t)
				delete(want, "OpgateOverrideUsed")
				for name, alert := range want {
					labels := maps.Clone(alert.Labels)
					labels["team"], labels["severity"] = "platform", "page"
					alert.Labels = labels
					want[name] = alert
				}
				same(t, "alerts", rule.alerts(), want)
			},
		},
		{
			name:   "alerts without the background loop",
			values: "{metrics: {prometheusRule: {enabled: true}}, policy: {backgroundLoop: {enabled: false}}}",
			check: func(t *testing.T, o objects) {
				want := alertsFile(t)
				delete(want, "OpgateNoLeader")
				same(t, "alerts", one[*prometheusRule](t, o, "opgate").alerts(), want)
			},
		},
		{
			name:   "dashboard",
			values: "metrics: {dashboard: {enabled: true}}",
			check: func(t *testing.T, o objects) {
				object := one[*corev1.ConfigMap](t, o, "opgate-dashboard")
				same(t, "label of the sidecar", object.Labels["grafana_dashboard"], "1")
				same(t, "folder", object.Annotations, map[string]string{"grafana_folder": "Opgate"})
				same(t, "text", object.Data["opgate.json"], string(chartFile(t, "dashboard.json")))
				if !json.Valid([]byte(object.Data["opgate.json"])) {
					t.Error("the dashboard is not JSON")
				}
			},
		},
		{
			name: "dashboard elsewhere",
			values: "metrics: {dashboard: {enabled: true, namespace: monitoring, labels: {release: prometheus, grafana_dashboard: null}, " +
				"annotations: {example.com/owner: platform, grafana_folder: null}}}",
			check: func(t *testing.T, o objects) {
				object := one[*corev1.ConfigMap](t, o, "opgate-dashboard")
				checkObject(t, object)
				if _, labelled := object.Labels["grafana_dashboard"]; labelled {
					t.Errorf("labels are %v", object.Labels)
				}
			},
		},
	}
}

// checkObject checks what the cases set of each object.
func checkObject(t *testing.T, o metav1.Object) {
	t.Helper()
	same(t, "namespace", o.GetNamespace(), "monitoring")
	same(t, "label", o.GetLabels()["release"], "prometheus")
	same(t, "annotations", o.GetAnnotations(), map[string]string{"example.com/owner": "platform"})
}

func checkMonitor(t *testing.T, o metav1.Object, namespaces namespaceSelector) {
	t.Helper()
	checkObject(t, o)
	same(t, "namespaces", namespaces.MatchNames, []string{namespace})
}

func checkEndpoint(t *testing.T, endpoints []monitorEndpoint) {
	t.Helper()
	same(t, "endpoints", len(endpoints), 1)
	got := endpoints[0]
	same(t, "scheme", got.Scheme, "https")
	same(t, "interval", got.Interval, "15s")
	same(t, "timeout", got.ScrapeTimeout, "5s")
	same(t, "honorLabels", got.HonorLabels, true)
	same(t, "relabelings", got.Relabelings, []map[string]any{{"action": "labeldrop", "regex": "pod_ip"}})
	same(t, "relabelings of metrics", got.MetricRelabelings,
		[]map[string]any{{"action": "drop", "sourceLabels": []any{"__name__"}, "regex": "go_.*"}})
	same(t, "TLS", got.TLS, &monitorTLS{Insecure: true})
}

// TestMonitorsRefused sets values with which Prometheus would scrape twice, or not at all.
func TestMonitorsRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"twice": {"metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}", "would scrape every pod twice"},
		"a PodMonitor without token": {"metrics: {secure: true, podMonitor: {enabled: true}}",
			"metrics.podMonitor.authorization is required with metrics.secure"},
		"a CA that is elsewhere": {"metrics: {secure: true, serviceMonitor: {enabled: true, namespace: monitoring}}",
			"metrics.serviceMonitor.tlsConfig is required with metrics.secure and metrics.serviceMonitor.namespace"},
		"a CA that is elsewhere, for pods": {
			"metrics: {secure: true, podMonitor: {enabled: true, namespace: monitoring, authorization: {credentials: {name: a, key: b}}}}",
			"metrics.podMonitor.tlsConfig is required with metrics.secure and metrics.podMonitor.namespace"},
		"an alert that does not exist": {"metrics: {prometheusRule: {enabled: true, disabled: [OpgateUp]}}",
			"metrics.prometheusRule.disabled: there is no alert OpgateUp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := render(t.Context(), test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v\nwant it to say %s", err, test.want)
			}
		})
	}
}
