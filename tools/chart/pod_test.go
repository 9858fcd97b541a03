package chart_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func labelSet(l map[string]string) labels.Set { return l }

// TestPodDefaults checks the defaults that keep the webhooks available during upgrades and disruptions.
func TestPodDefaults(t *testing.T) {
	deployment, pod := deploymentOf(t, defaults), podOf(t, defaults)
	same(t, "replicas", *deployment.Spec.Replicas, 2)
	same(t, "node selector", pod.NodeSelector, map[string]string{"kubernetes.io/os": "linux"})
	rolling := deployment.Spec.Strategy.RollingUpdate
	if deployment.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType ||
		rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() != 1 {
		t.Errorf("strategy is %+v", deployment.Spec.Strategy)
	}
	for _, constraint := range pod.TopologySpreadConstraints {
		same(t, "spread over "+constraint.TopologyKey, constraint.WhenUnsatisfiable, corev1.ScheduleAnyway)
		same(t, "pods that are spread", constraint.LabelSelector, deployment.Spec.Selector)
	}
	// What is in a selector can never change again.
	same(t, "selector", deployment.Spec.Selector.MatchLabels,
		map[string]string{"app.kubernetes.io/name": "opgate", "app.kubernetes.io/instance": "opgate"})
	for name, service := range of[*corev1.Service](defaults) {
		same(t, "selector of "+name, service.Spec.Selector, deployment.Spec.Selector.MatchLabels)
		if service.Spec.PublishNotReadyAddresses {
			t.Errorf("%s sends requests to pods that are not ready", name)
		}
		port := service.Spec.Ports[0]
		if !strings.Contains(name, port.TargetPort.String()) {
			t.Errorf("%s sends requests to port %s", name, port.TargetPort.String())
		}
	}
}

// TestOpenShift renders for a cluster that assigns a range of user IDs to each namespace, and refuses pods that set
// others.
func TestOpenShift(t *testing.T) {
	context := podOf(t, mustRender(t, "", "--api-versions", "security.openshift.io/v1")).SecurityContext
	if context.RunAsUser != nil || context.RunAsGroup != nil || !*context.RunAsNonRoot {
		t.Errorf("security context is %+v, want runAsNonRoot without a user and a group", context)
	}
	same(t, "user elsewhere", podOf(t, defaults).SecurityContext.RunAsUser, new(int64(65532)))
}
