package chart_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// objectCases are values about objects besides the pod and the webhook configurations.
func objectCases() []valueCase {
	return []valueCase{
		{
			name:   "aggregated roles are what is asked for",
			values: "aggregateRoles: {view: false, edit: true, admin: true}",
			check: func(t *testing.T, o objects) {
				for role, want := range map[string]bool{"view": false, "edit": true, "admin": true} {
					same(t, role, aggregated(t, o, role), want)
				}
			},
		},
		{
			name:   "nobody reads constraints unasked",
			values: "constraintReader: {everybody: false}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-constraint-reader")
				same(t, "role to bind", one[*rbacv1.ClusterRole](t, o, "opgate-constraint-reader"), one[*rbacv1.ClusterRole](t, defaults, "opgate-constraint-reader"))
			},
		},
		{
			name:   "annotations of the ServiceAccount",
			values: `serviceAccount: {annotations: {example.com/role: "7"}}`,
			check: func(t *testing.T, o objects) {
				same(t, "annotations", one[*corev1.ServiceAccount](t, o, "opgate").Annotations, map[string]string{"example.com/role": "7"})
			},
		},
		{
			name:   "disruption budget in percent",
			values: "podDisruptionBudget: {maxUnavailable: 50%}",
			check: func(t *testing.T, o objects) {
				same(t, "maxUnavailable", *one[*policyv1.PodDisruptionBudget](t, o, "opgate").Spec.MaxUnavailable, intstr.FromString("50%"))
			},
		},
		{
			name:   "no disruption budget",
			values: "podDisruptionBudget: {enabled: false}",
			check:  func(t *testing.T, o objects) { gone[*policyv1.PodDisruptionBudget](t, o, "opgate") },
		},
		{
			name:   "no network policy",
			values: "networkPolicy: {enabled: false}",
			check:  func(t *testing.T, o objects) { gone[*networkingv1.NetworkPolicy](t, o, "opgate") },
		},
		{
			name: "network policy for one API server, and without metrics",
			values: `
networkPolicy:
  metricsFrom: []
  apiServer: {ports: [16443], to: [{ipBlock: {cidr: 192.0.2.0/24}}]}`,
			check: func(t *testing.T, o objects) {
				spec := one[*networkingv1.NetworkPolicy](t, o, "opgate").Spec
				same(t, "ways in", len(spec.Ingress), 1)
				same(t, "port", portsOf(spec.Ingress[0].Ports), "webhook/TCP")
				if len(spec.Ingress[0].From) > 0 {
					t.Errorf("reviews may only come from %v; the API server is no pod", spec.Ingress[0].From)
				}
				out := spec.Egress[len(spec.Egress)-1]
				same(t, "port", portsOf(out.Ports), "16443/TCP")
				same(t, "peers", out.To, []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}})
			},
		},
		{
			name:   "metrics for some",
			values: `networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}`,
			check: func(t *testing.T, o objects) {
				in := one[*networkingv1.NetworkPolicy](t, o, "opgate").Spec.Ingress[1]
				same(t, "port", portsOf(in.Ports), "metrics/TCP")
				same(t, "peers", in.From, []networkingv1.NetworkPolicyPeer{{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}},
				}})
			},
		},
		{
			name:   "service monitor",
			values: "serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}",
			check: func(t *testing.T, o objects) {
				monitor := one[*serviceMonitor](t, o, "opgate")
				same(t, "label", monitor.Labels["release"], "prometheus")
				same(t, "endpoints", len(monitor.Spec.Endpoints), 1)
				same(t, "interval", monitor.Spec.Endpoints[0].Interval, "15s")
				for name, service := range of[*corev1.Service](o) {
					selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
					if err != nil {
						t.Fatal(err)
					}
					same(t, "whether it scrapes "+name, selector.Matches(labelSet(service.Labels)), name == "opgate-metrics")
				}
				same(t, "port", one[*corev1.Service](t, o, "opgate-metrics").Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
			},
		},
		{
			name:   "common labels are everywhere, and change no selector",
			values: "commonLabels: {team: platform, app.kubernetes.io/name: mine}",
			check: func(t *testing.T, o objects) {
				for key, object := range o {
					same(t, key, object.GetLabels()["team"], "platform")
				}
				deployment := deploymentOf(t, o)
				same(t, "label of pods", deployment.Spec.Template.Labels["team"], "platform")
				same(t, "name of pods", deployment.Spec.Template.Labels["app.kubernetes.io/name"], "opgate")
				same(t, "selector", deployment.Spec.Selector, deploymentOf(t, defaults).Spec.Selector)
			},
		},
	}
}

// aggregated reports whether a role is aggregated to the role of Kubernetes with the same name.
func aggregated(t *testing.T, o objects, role string) bool {
	t.Helper()
	return one[*rbacv1.ClusterRole](t, o, "opgate-"+role).Labels["rbac.authorization.k8s.io/aggregate-to-"+role] == "true"
}

func portsOf(ports []networkingv1.NetworkPolicyPort) string {
	text := ""
	for _, p := range ports {
		text += fmt.Sprintf("%s/%s", p.Port, *p.Protocol)
	}
	return text
}
