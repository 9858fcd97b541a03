package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// templates are the kinds of bundle objects with pods, and where the pod is in them.
var templates = map[string][]string{
	"/Pod":                   {},
	"/PodTemplate":           {"template"},
	"/ReplicationController": {"spec", "template"},
	"apps/Deployment":        {"spec", "template"},
	"apps/DaemonSet":         {"spec", "template"},
	"apps/StatefulSet":       {"spec", "template"},
	"apps/ReplicaSet":        {"spec", "template"},
	"batch/Job":              {"spec", "template"},
	"batch/CronJob":          {"spec", "jobTemplate", "spec", "template"},
}

// template is a pod that a bundle runs.
type template struct {
	corev1.PodTemplateSpec
	raw []byte
}

// setPods sets the pods that a bundle runs.
func (c *Contents) setPods() error {
	deployments := c.spec.InstallStrategy.StrategySpec.DeploymentSpecs
	for i := range deployments {
		raw, err := json.Marshal(&deployments[i].Spec.Template)
		if err != nil {
			return fmt.Errorf("the pods of Deployment %s cannot be read: %w", text.Name(deployments[i].Name), err)
		}
		c.pods = append(c.pods, template{deployments[i].Spec.Template, raw})
	}
	for i := range c.objects {
		o := &c.objects[i]
		path, ok := templates[o.group()+"/"+o.Kind]
		if !ok {
			continue
		}
		t := template{raw: o.raw}
		for _, field := range path {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(t.raw, &object); err != nil {
				return fmt.Errorf("%s cannot be read: %w", o, err)
			}
			if t.raw = object[field]; t.raw == nil {
				return fmt.Errorf("%s has no pod template", o)
			}
		}
		if err := json.Unmarshal(t.raw, &t.PodTemplateSpec); err != nil {
			return fmt.Errorf("%s cannot be read: %w", o, err)
		}
		c.pods = append(c.pods, t)
	}
	return nil
}

// accountsOf returns the ServiceAccount that a pod runs as, and what the deprecated field names.
func accountsOf(pod *corev1.PodSpec) []string {
	accounts := slices.DeleteFunc([]string{pod.ServiceAccountName, pod.DeprecatedServiceAccount},
		func(name string) bool { return name == "" })
	if len(accounts) == 0 {
		return []string{"default"}
	}
	return accounts
}

// comparePods adds the settings that no installed pod has: which of the pods has them does not matter.
func comparePods(s *Set, from, to *Contents) error {
	before, after, err := both(from, to, (*Contents).podSettings)
	if err != nil {
		return err
	}
	for _, setting := range sortedKeys(after) {
		if _, known := before[setting]; !known {
			s.add(PodSecurity, after[setting], "%s", setting)
		}
	}
	was, is, err := both(from, to, (*Contents).podFields)
	for _, path := range is.changed(was) {
		s.add(PodSecurity, podRisk(path), "%s", is.describe(path, was))
	}
	return err
}

// podRisk returns Risky for fields that reach the node or its other pods.
func podRisk(path string) Risk {
	prefixes := []string{"pod.spec.nodeName", "pod.spec.containers[].volumeDevices",
		"pod.spec.containers[].securityContext.windowsOptions", "pod.spec.securityContext.sysctls",
		"pod.spec.securityContext.windowsOptions"}
	return riskIf(slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) }))
}

// settings are the texts of settings of pods, with their risk.
type settings map[string]Risk

func (s settings) set(condition bool, risk Risk, setting string) {
	if condition {
		s[setting] = max(s[setting], risk)
	}
}

// podSettings returns what the pods of a bundle may do.
func (c *Contents) podSettings() (settings, error) {
	s := settings{}
	for i := range c.pods {
		s.addPod(&c.pods[i].Spec)
	}
	for i := range c.objects {
		if o := &c.objects[i]; o.is("security.openshift.io", "SecurityContextConstraints") {
			if err := s.addConstraints(o); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// podFields returns the other fields of the pods of a bundle, and those of its Deployments.
func (c *Contents) podFields() (fields, error) {
	f := fields{}
	for i := range c.pods {
		if err := f.readJSON("pod", c.pods[i].raw); err != nil {
			return nil, err
		}
	}
	if len(c.pods) > 0 {
		f.readMap(annotationPath, c.annotations)
	}
	for _, deployment := range c.spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		deployment.Spec.Template = corev1.PodTemplateSpec{}
		if err := f.readTyped("deployment", &deployment); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// readMap reads labels or annotations. Annotations of a ClusterServiceVersion are those of its pods, to which OLM
// copies them: they address webhooks that admit pods.
func (f fields) readMap(path string, values map[string]string) {
	object := make(map[string]any, len(values))
	for key, value := range values {
		object[key] = value
	}
	f.read(path, object)
}

func (s settings) addPod(pod *corev1.PodSpec) {
	s.set(pod.HostNetwork, Risky, "hostNetwork")
	s.set(pod.HostPID, Risky, "hostPID")
	s.set(pod.HostIPC, Risky, "hostIPC")
	s.set(pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken, Notable,
		"automountServiceAccountToken is not false")
	s.set(pod.HostUsers == nil || *pod.HostUsers, Notable, "hostUsers is not false")
	s.addVolumes(pod)
	shared := pod.SecurityContext
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	s.set(unconfined(shared.SeccompProfile), Risky, "seccompProfile Unconfined")
	s.addUser(shared.RunAsUser)
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			s.addContainer(&list[i], shared)
		}
	}
}

// addVolumes adds the paths, Secrets, ConfigMaps and tokens that a pod mounts.
func (s settings) addVolumes(pod *corev1.PodSpec) {
	secret := func(name string) { s.set(name != "", Notable, "mounts Secret "+text.Name(name)) }
	configMap := func(name string) { s.set(name != "", Notable, "mounts ConfigMap "+text.Name(name)) }
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.HostPath != nil {
			s.set(true, Risky, "hostPath "+text.Name(v.HostPath.Path))
			s.set(written(pod, v.Name), Risky, "writes to hostPath "+text.Name(v.HostPath.Path))
		}
		if v.Secret != nil {
			secret(v.Secret.SecretName)
		}
		if v.ConfigMap != nil {
			configMap(v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				secret(source.Secret.Name)
			}
			if source.ConfigMap != nil {
				configMap(source.ConfigMap.Name)
			}
			if token := source.ServiceAccountToken; token != nil {
				s.set(true, Notable, "mounts a token of its ServiceAccount for audience "+text.Name(token.Audience))
			}
			if bundle := source.ClusterTrustBundle; bundle != nil {
				s.set(true, Notable, "mounts ClusterTrustBundle "+shownJSON(bundle))
			}
			if certificate := source.PodCertificate; certificate != nil {
				s.set(true, Notable, "mounts a certificate "+shownJSON(certificate))
			}
		}
	}
}

// written reports whether a container may write to a volume.
func written(pod *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly })
	})
}

// addReferences adds the Secrets and ConfigMaps that a container reads.
func (s settings) addReferences(c *corev1.Container) {
	secret := func(name string) { s.set(true, Notable, "reads Secret "+text.Name(name)) }
	configMap := func(name string) { s.set(true, Notable, "reads ConfigMap "+text.Name(name)) }
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].SecretRef; ref != nil {
			secret(ref.Name)
		}
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			configMap(ref.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.SecretKeyRef != nil {
			secret(from.SecretKeyRef.Name)
		}
		if from.ConfigMapKeyRef != nil {
			configMap(from.ConfigMapKeyRef.Name)
		}
	}
}

// shownJSON returns a value as JSON for a text.
func shownJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // built from decoded JSON
	}
	return text.Escape(string(raw))
}

func (s settings) addContainer(c *corev1.Container, shared *corev1.PodSecurityContext) {
	s.addReferences(c)
	own := c.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	s.set(own.Privileged != nil && *own.Privileged, Risky, "privileged container")
	s.set(own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation, Notable,
		"allowPrivilegeEscalation is not false")
	s.set(own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem, Notable,
		"readOnlyRootFilesystem is not true")
	s.set(unconfined(own.SeccompProfile), Risky, "seccompProfile Unconfined")
	s.set(own.SeccompProfile == nil && shared.SeccompProfile == nil, Notable, "seccompProfile is not set")
	s.set(own.Capabilities == nil || !slices.Contains(own.Capabilities.Drop, "ALL"), Notable,
		"capabilities ALL are not dropped")
	s.set(own.ProcMount != nil && *own.ProcMount == corev1.UnmaskedProcMount, Risky, "procMount Unmasked")
	if own.Capabilities != nil {
		for _, added := range own.Capabilities.Add {
			s.addCapability(string(added))
		}
	}
	for _, port := range c.Ports {
		s.set(port.HostPort != 0, Notable, fmt.Sprintf("hostPort %d", port.HostPort))
	}
	user, nonRoot := own.RunAsUser, own.RunAsNonRoot
	if user == nil {
		user = shared.RunAsUser
	}
	if nonRoot == nil {
		nonRoot = shared.RunAsNonRoot
	}
	s.addUser(user)
	s.set((nonRoot == nil || !*nonRoot) && (user == nil || *user == 0), Notable, "runAsNonRoot is not true")
}

func (s settings) addUser(user *int64) {
	if user != nil {
		s.set(true, Notable, fmt.Sprintf("runAsUser %d", *user))
	}
}

func unconfined(p *corev1.SeccompProfile) bool {
	return p != nil && p.Type == corev1.SeccompProfileTypeUnconfined
}

// strongCapabilities are those with which a process can leave its container or change the node.
var strongCapabilities = []string{"ALL", "BPF", "DAC_READ_SEARCH", "NET_ADMIN", "PERFMON", "SYS_ADMIN", "SYS_BOOT",
	"SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}

func (s settings) addCapability(name string) {
	name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	s.set(true, riskIf(slices.Contains(strongCapabilities, name)), "capability "+text.Name(name))
}

// addConstraints adds what SecurityContextConstraints, which OpenShift checks pods by, allow to the pods of their
// users.
func (s settings) addConstraints(o *object) error {
	var allowed map[string]json.RawMessage
	if err := json.Unmarshal(o.raw, &allowed); err != nil {
		return fmt.Errorf("%s cannot be read: %w", o, err)
	}
	for field, value := range allowed {
		if strings.HasPrefix(field, "allow") && string(value) != "false" && string(value) != "null" &&
			string(value) != "[]" {
			s.set(true, Risky, fmt.Sprintf("%s: %s", o, text.Truncate(field+" "+string(canonical(value)), maxText)))
		}
	}
	return nil
}

// compareImages adds the registries, with the first element of the path, from which no installed image comes. Hosts
// such as quay.io serve every publisher, so the host alone would say nothing about who publishes.
func compareImages(s *Set, from, to *Contents) error {
	for _, publisher := range sets.List(to.publishers().Difference(from.publishers())) {
		s.add(Images, Notable, "images from %s", text.Name(publisher))
	}
	return nil
}

// publishers returns the registries of all images that a bundle names.
func (c *Contents) publishers() sets.Set[string] {
	found := sets.New[string]()
	add := func(image string) {
		if image != "" {
			found.Insert(publisher(image))
		}
	}
	for i := range c.spec.RelatedImages {
		add(c.spec.RelatedImages[i].Image)
	}
	for i := range c.pods {
		for _, list := range [][]corev1.Container{c.pods[i].Spec.InitContainers, c.pods[i].Spec.Containers} {
			for i := range list {
				add(list[i].Image)
				for _, env := range list[i].Env {
					if strings.HasPrefix(env.Name, olm.RelatedImagePrefix) {
						add(env.Value)
					}
				}
			}
		}
	}
	return found
}

// publisher returns the host of an image and the first element of its path if another one follows: quay.io/coreos for
// quay.io/coreos/etcd:v3, registry.local for registry.local/etcd. Images without a host are those of docker.io.
func publisher(image string) string {
	image, _, _ = strings.Cut(image, "@")
	host, path := olm.CutRegistry(image)
	if first, _, more := strings.Cut(path, "/"); more {
		return host + "/" + first
	}
	return host
}
