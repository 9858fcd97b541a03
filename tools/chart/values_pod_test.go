package chart_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func labelSet(l map[string]string) labels.Set { return l }

// podCases are values about the Deployment and its pods.
func podCases() []valueCase {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	return []valueCase{
		{name: "replicas", values: "replicas: 3", check: func(t *testing.T, o objects) {
			same(t, "replicas", *deploymentOf(t, o).Spec.Replicas, 3)
		}},
		{name: "image by tag", values: "image: {registry: registry.example:5000/mirror, repository: tools/opgate, tag: v9}", check: func(t *testing.T, o objects) {
			checkImage(t, o, "registry.example:5000/mirror/tools/opgate:v9")
		}},
		{name: "image of a registry that is not named",
			values: "image: {registry: '', repository: registry.example/opgate, tag: v9}",
			check: func(t *testing.T, o objects) {
				checkImage(t, o, "registry.example/opgate:v9")
			}},
		{name: "image from the mirror of all charts",
			values: "{global: {imageRegistry: mirror.example}, image: {registry: registry.example, tag: v9}}",
			check:  func(t *testing.T, o objects) { checkImage(t, o, "mirror.example/opgate/opgate:v9") }},
		{name: "image by digest, whatever the tag", values: "image: {tag: v9, digest: '" + digest + "'}",
			check: func(t *testing.T, o objects) {
				checkImage(t, o, "ghcr.io/opgate/opgate@"+digest)
			}},
		{name: "image from a private registry", values: "{image: {pullPolicy: Always}, imagePullSecrets: [one, two]}",
			check: func(t *testing.T, o objects) {
				same(t, "pull policy", container(t, o).ImagePullPolicy, corev1.PullAlways)
				same(t, "pull secrets", podOf(t, o).ImagePullSecrets,
					[]corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}})
			}},
		{name: "pull secrets in either spelling, and those of all charts",
			values: "{imagePullSecrets: [one, {name: two}], global: {imagePullSecrets: [{name: one}, three]}}",
			check: func(t *testing.T, o objects) {
				want := []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}, {Name: "three"}}
				same(t, "pull secrets", podOf(t, o).ImagePullSecrets, want)
				same(t, "pull secrets of the test", one[*corev1.Pod](t, o, "opgate-test").Spec.ImagePullSecrets, want)
			}},
		{name: "further arguments come last", values: "extraArgs: [--log-level=error, '--client-cn=a: b']",
			check: func(t *testing.T, o objects) {
				args := container(t, o).Args
				same(t, "arguments", args[len(args)-2:], []string{"--log-level=error", "--client-cn=a: b"})
			}},
		{name: "further variables",
			values: "extraEnv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]",
			check: func(t *testing.T, o objects) {
				env := container(t, o).Env
				same(t, "variables", env[len(env)-2:], []corev1.EnvVar{
					{Name: "HTTPS_PROXY", Value: "http://proxy:3128"},
					{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
				})
				same(t, "variables of the chart", env[:len(env)-2], container(t, defaults).Env)
			}},
		{name: "time to stop", values: "drain: {delay: 10s, timeout: 30s}", check: func(t *testing.T, o objects) {
			same(t, "grace period", *podOf(t, o).TerminationGracePeriodSeconds, 65) // 20 s of it for requests under way
		}},
		{name: "ports", values: "ports: {webhook: 10250, metrics: 10251, health: 10252}",
			check: func(t *testing.T, o objects) {
				same(t, "ports", container(t, o).Ports, []corev1.ContainerPort{
					{Name: "webhook", ContainerPort: 10250, Protocol: corev1.ProtocolTCP},
					{Name: "metrics", ContainerPort: 10251, Protocol: corev1.ProtocolTCP},
					{Name: "health", ContainerPort: 10252, Protocol: corev1.ProtocolTCP},
				})
				flags := flagsOf(t, o)
				same(t, "addresses", []string{flags["webhook-bind-address"][0], flags["metrics-bind-address"][0],
					flags["health-probe-bind-address"][0]},
					[]string{":10250", ":10251", ":10252"})
			}},
		{name: "network of the node", values: "hostNetwork: true", check: func(t *testing.T, o objects) {
			pod := podOf(t, o)
			if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
				t.Errorf("hostNetwork is %t, dnsPolicy %s", pod.HostNetwork, pod.DNSPolicy)
			}
			// With a pod more than before, a cluster of as many nodes as pods could never roll out.
			if rolling := deploymentOf(t, o).Spec.Strategy.RollingUpdate; rolling.MaxSurge.IntValue() != 0 {
				t.Errorf("rolling update is %v", rolling)
			}
		}},
		{name: "labels and annotations of pods", values: `
podLabels: {mesh: "false", app.kubernetes.io/instance: other}
podAnnotations: {example.com/scrape: "true"}`, check: func(t *testing.T, o objects) {
			template := deploymentOf(t, o).Spec.Template
			same(t, "label", template.Labels["mesh"], "false")
			same(t, "label that pods are found by", template.Labels["app.kubernetes.io/instance"], "opgate")
			same(t, "annotations", template.Annotations, map[string]string{"example.com/scrape": "true"})
			if _, ok := deploymentOf(t, o).Labels["mesh"]; ok {
				t.Error("the Deployment has the label of pods")
			}
		}},
		{name: "resources", values: "resources: {limits: {memory: 2Gi}}", check: func(t *testing.T, o objects) {
			got := container(t, o).Resources
			same(t, "limit", got.Limits.Memory().String(), "2Gi")
			same(t, "request that was not changed", got.Requests.Memory().String(), "128Mi")
			same(t, "limit that Go gets", memoryLimitOf(t, o), "limits.memory")
		}},
		{name: "no limit of memory", values: "resources: {limits: {memory: null}}",
			check: func(t *testing.T, o objects) {
				// Without a limit the downward API would return all memory of the node.
				same(t, "limit that Go gets", memoryLimitOf(t, o), "")
			}},
		{name: "security contexts", values: `
podSecurityContext: {runAsUser: 1000, fsGroup: 1000}
securityContext: {privileged: false}`, check: func(t *testing.T, o objects) {
			same(t, "user", *podOf(t, o).SecurityContext.RunAsUser, 1000)
			same(t, "group of files", *podOf(t, o).SecurityContext.FSGroup, 1000)
			same(t, "privileged", container(t, o).SecurityContext.Privileged, new(false))
		}},
		{name: "priority", values: "priorityClassName: mine", check: func(t *testing.T, o objects) {
			same(t, "priority class", podOf(t, o).PriorityClassName, "mine")
		}},
		{name: "further volumes and containers", values: `
extraVolumes: [{name: cache, emptyDir: {}}]
extraVolumeMounts: [{name: cache, mountPath: /cache}]
extraContainers: [{name: proxy, image: registry.example/proxy}]`, check: func(t *testing.T, o objects) {
			pod := podOf(t, o)
			same(t, "volumes", pod.Volumes,
				[]corev1.Volume{{Name: "cache",
					VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}})
			same(t, "mounts", pod.Containers[0].VolumeMounts,
				[]corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}})
			same(t, "containers", []string{pod.Containers[0].Name, pod.Containers[1].Name}, []string{"opgate", "proxy"})
		}},
		{name: "probes", values: "{livenessProbe: {initialDelaySeconds: 7}, readinessProbe: {periodSeconds: 5}}",
			check: func(t *testing.T, o objects) {
				c := container(t, o)
				same(t, "delay", c.LivenessProbe.InitialDelaySeconds, 7)
				same(t, "endpoint", c.LivenessProbe.HTTPGet.Path, "/healthz")
				same(t, "period", c.ReadinessProbe.PeriodSeconds, 5)
				same(t, "failures that were not changed", c.ReadinessProbe.FailureThreshold, 2)
				same(t, "endpoint", c.ReadinessProbe.HTTPGet.Path, "/readyz")
			}},
		{name: "strategy", values: "strategy: {type: Recreate}", check: func(t *testing.T, o objects) {
			same(t, "strategy", deploymentOf(t, o).Spec.Strategy,
				appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType})
		}},
		{name: "more time to stop", values: "terminationGracePeriodSeconds: 300", check: func(t *testing.T, o objects) {
			same(t, "grace period", *podOf(t, o).TerminationGracePeriodSeconds, 300)
		}},
		{name: "DNS", values: "{dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.1]}}",
			check: func(t *testing.T, o objects) {
				same(t, "policy", podOf(t, o).DNSPolicy, corev1.DNSNone)
				same(t, "servers", podOf(t, o).DNSConfig.Nameservers, []string{"192.0.2.1"})
			}},
		{name: "where pods run", values: `
nodeSelector: {pool: infra}
tolerations: [{key: infra, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}
topologySpreadConstraints:
  - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}`, check: func(t *testing.T, o objects) {
			pod := podOf(t, o)
			same(t, "node selector", pod.NodeSelector, map[string]string{"kubernetes.io/os": "linux", "pool": "infra"})
			same(t, "node selector of the test", one[*corev1.Pod](t, o, "opgate-test").Spec.NodeSelector,
				pod.NodeSelector)
			same(t, "tolerations", pod.Tolerations,
				[]corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}})
			same(t, "preferred nodes", len(pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution),
				1)
			same(t, "spread", len(pod.TopologySpreadConstraints), 2)
			same(t, "pods that are spread", pod.TopologySpreadConstraints[0].LabelSelector,
				deploymentOf(t, o).Spec.Selector)
			same(t, "pods that are spread", pod.TopologySpreadConstraints[1].LabelSelector.MatchLabels,
				map[string]string{"a": "b"})
		}},
	}
}

// checkImage checks that the server and the test run an image.
func checkImage(t *testing.T, o objects, want string) {
	t.Helper()
	same(t, "image", container(t, o).Image, want)
	same(t, "image of the test", one[*corev1.Pod](t, o, "opgate-test").Spec.Containers[0].Image, want)
}

// memoryLimitOf is the resource that OPGATE_MEMORY_LIMIT comes from, "" where it is not set.
func memoryLimitOf(t *testing.T, o objects) string {
	t.Helper()
	for _, variable := range container(t, o).Env {
		if variable.Name == "OPGATE_MEMORY_LIMIT" {
			return variable.ValueFrom.ResourceFieldRef.Resource
		}
	}
	return ""
}

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
