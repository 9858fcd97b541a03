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
			values: "rbac: {aggregateRoles: {view: false, edit: true, admin: true}}",
			check: func(t *testing.T, o objects) {
				for role, want := range map[string]bool{"view": false, "edit": true, "admin": true} {
					same(t, role, aggregated(t, o, role), want)
				}
			},
		},
		{
			name:   "no ClusterRole reads constraints by default",
			values: "rbac: {constraintReader: {everybody: false}}",
			check: func(t *testing.T, o objects) {
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-constraint-reader")
				same(t, "role to bind", one[*rbacv1.ClusterRole](t, o, "opgate-constraint-reader"),
					one[*rbacv1.ClusterRole](t, defaults, "opgate-constraint-reader"))
			},
		},
		{
			name:   "annotations of the ServiceAccount",
			values: `serviceAccount: {annotations: {example.com/role: "7"}}`,
			check: func(t *testing.T, o objects) {
				same(t, "annotations", one[*corev1.ServiceAccount](t, o, "opgate").Annotations,
					map[string]string{"example.com/role": "7"})
			},
		},
		{
			name:   "another ServiceAccount",
			values: "serviceAccount: {name: gate}",
			check: func(t *testing.T, o objects) {
				gone[*corev1.ServiceAccount](t, o, "opgate")
				one[*corev1.ServiceAccount](t, o, "gate")
				checkAccount(t, o, "gate")
			},
		},
		{
			name:   "a ServiceAccount that exists",
			values: "serviceAccount: {create: false, name: provided}",
			check: func(t *testing.T, o objects) {
				gone[*corev1.ServiceAccount](t, o, "provided")
				gone[*corev1.ServiceAccount](t, o, "opgate")
				one[*corev1.ServiceAccount](t, o, "opgate-lookups")
				checkAccount(t, o, "provided")
			},
		},
		{
			name:   "type and annotations of the Service",
			values: "service: {type: NodePort, annotations: {example.com/mesh: none}}",
			check: func(t *testing.T, o objects) {
				service := one[*corev1.Service](t, o, "opgate-webhook")
				same(t, "type", service.Spec.Type, corev1.ServiceTypeNodePort)
				same(t, "annotations", service.Annotations, map[string]string{"example.com/mesh": "none"})
			},
		},
		{
			name:   "disruption budget in percent",
			values: "podDisruptionBudget: {maxUnavailable: 50%}",
			check: func(t *testing.T, o objects) {
				same(t, "maxUnavailable", *one[*policyv1.PodDisruptionBudget](t, o, "opgate").Spec.MaxUnavailable,
					intstr.FromString("50%"))
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
				same(t, "peers", out.To,
					[]networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}})
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
			name:   "quota for the priority class of the pods",
			values: "{resourceQuota: {create: true, pods: 7}, priorityClassName: system-node-critical}",
			check: func(t *testing.T, o objects) {
				spec := one[*corev1.ResourceQuota](t, o, "opgate").Spec
				same(t, "pods", spec.Hard.Pods().String(), "7")
				same(t, "scopes", spec.ScopeSelector.MatchExpressions, []corev1.ScopedResourceSelectorRequirement{{
					ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
					Values: []string{"system-node-critical"},
				}})
			},
		},
		{
			name:   "no quota",
			values: "resourceQuota: {create: false}",
			check:  func(t *testing.T, o objects) { gone[*corev1.ResourceQuota](t, o, "opgate") },
		},
		{
			name:   "no quota for a class that no cluster limits",
			values: "priorityClassName: platform",
			check:  func(t *testing.T, o objects) { gone[*corev1.ResourceQuota](t, o, "opgate") },
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
				same(t, "component", one[*corev1.Service](t, o, "opgate-metrics").Labels["app.kubernetes.io/component"],
					"metrics")
			},
		},
		{
			name: "common annotations are everywhere, and change none that the chart sets",
			values: "{commonAnnotations: {example.com/owner: platform, helm.sh/resource-policy: none, " +
				"example.com/role: none}, serviceAccount: {annotations: {example.com/role: '7'}}, certificates: {mode: cert-manager}, " +
				"metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}}",
			check: func(t *testing.T, o objects) {
				for key, object := range o {
					same(t, key, object.GetAnnotations()["example.com/owner"], "platform")
				}
				same(t, "annotation of the ServiceAccount",
					one[*corev1.ServiceAccount](t, o, "opgate").Annotations["example.com/role"], "7")
				same(t, "annotation of the test", one[*corev1.Pod](t, o, "opgate-test").Annotations["helm.sh/hook"],
					"test")
				same(t, "annotation of a definition",
					definitionsOf(t, o)[policyDefinition].Annotations["helm.sh/resource-policy"], "keep")
				if template := deploymentOf(t, o).Spec.Template; template.Annotations != nil {
					t.Errorf("pods have annotations %v: they would be replaced when these change", template.Annotations)
				}
			},
		},
	}
}

// aggregated reports whether a role is aggregated to the role of Kubernetes with the same name.
func aggregated(t *testing.T, o objects, role string) bool {
	t.Helper()
	return one[*rbacv1.ClusterRole](t, o, "opgate-"+role).Labels["rbac.authorization.k8s.io/aggregate-to-"+role] ==
		"true"
}

func portsOf(ports []networkingv1.NetworkPolicyPort) string {
	text := ""
	for _, p := range ports {
		text += fmt.Sprintf("%s/%s", p.Port, *p.Protocol)
	}
	return text
}

// checkAccount checks that the pods run as a ServiceAccount, and that it has what opgate has by default.
func checkAccount(t *testing.T, o objects, name string) {
	t.Helper()
	same(t, "account of the pods", podOf(t, o).ServiceAccountName, name)
	bound := 0
	for key, binding := range of[*rbacv1.ClusterRoleBinding](o) {
		for i, subject := range binding.Subjects {
			if before := one[*rbacv1.ClusterRoleBinding](t, defaults, key).Subjects[i].Name; before == "opgate" {
				same(t, "subject of "+key, subject.Name, name)
				bound++
			}
		}
	}
	for key, binding := range of[*rbacv1.RoleBinding](o) {
		for _, subject := range binding.Subjects {
			if subject.Name == "opgate" {
				t.Errorf("RoleBinding %s is for opgate", key)
			}
		}
	}
	if bound < 3 {
		t.Errorf("%s has only %d roles", name, bound)
	}
}
