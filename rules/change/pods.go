package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/opgate/opgate/internal/text"
)

// podsOf has the kinds of bundle objects with pods, and where the pod is in them.
var podsOf = map[string]func(raw []byte) (*corev1.PodSpec, error){
	"/Pod":             readPod[struct{ Spec corev1.PodSpec }](func(o *struct{ Spec corev1.PodSpec }) *corev1.PodSpec { return &o.Spec }),
	"apps/Deployment":  readPod(templateOf),
	"apps/DaemonSet":   readPod(templateOf),
	"apps/StatefulSet": readPod(templateOf),
	"apps/ReplicaSet":  readPod(templateOf),
	"batch/Job":        readPod(templateOf),
	"batch/CronJob": readPod(func(o *struct {
		Spec struct{ JobTemplate templated }
	}) *corev1.PodSpec {
		return templateOf(&o.Spec.JobTemplate)
	}),
}

// templated is what the kinds with a pod template have in common.
type templated struct {
	Spec struct{ Template corev1.PodTemplateSpec }
}

func templateOf(o *templated) *corev1.PodSpec { return &o.Spec.Template.Spec }

func readPod[T any](pod func(*T) *corev1.PodSpec) func([]byte) (*corev1.PodSpec, error) {
	return func(raw []byte) (*corev1.PodSpec, error) {
		var object T
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		return pod(&object), nil
	}
}

// pods returns all pods that a bundle runs.
func (c *Contents) pods() ([]*corev1.PodSpec, error) {
	var found []*corev1.PodSpec
	deployments := c.spec.InstallStrategy.StrategySpec.DeploymentSpecs
	for i := range deployments {
		found = append(found, &deployments[i].Spec.Template.Spec)
	}
	for i := range c.objects {
		o := &c.objects[i]
		read := podsOf[o.group()+"/"+o.Kind]
		if read == nil {
			continue
		}
		pod, err := read(o.raw)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", o, err)
		}
		found = append(found, pod)
	}
	return found, nil
}

// comparePods adds the settings that no installed pod has: which of the pods has them does not matter.
func comparePods(s *Set, from, to *Contents) error {
	before, err := from.podSettings()
	if err != nil {
		return fmt.Errorf("what is installed cannot be read: %w", err)
	}
	after, err := to.podSettings()
	if err != nil {
		return err
	}
	for _, setting := range sortedKeys(after) {
		if _, known := before[setting]; !known {
			s.add(PodSecurity, after[setting], "%s", setting)
		}
	}
	return nil
}

// settings are the texts of settings of pods, with their risk.
type settings map[string]Risk

func (s settings) set(condition bool, risk Risk, setting string) {
	if condition {
		s[setting] = max(s[setting], risk)
	}
}

func (c *Contents) podSettings() (settings, error) {
	pods, err := c.pods()
	if err != nil {
		return nil, err
	}
	s := settings{}
	for _, pod := range pods {
		s.addPod(pod)
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

func (s settings) addPod(pod *corev1.PodSpec) {
	s.set(pod.HostNetwork, Risky, "hostNetwork")
	s.set(pod.HostPID, Risky, "hostPID")
	s.set(pod.HostIPC, Risky, "hostIPC")
	for i := range pod.Volumes {
		if path := pod.Volumes[i].HostPath; path != nil {
			s.set(true, Risky, "hostPath "+text.Name(path.Path))
		}
	}
	shared := pod.SecurityContext
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	s.set(unconfined(shared.SeccompProfile), Risky, "seccompProfile Unconfined")
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			s.addContainer(&list[i], shared)
		}
	}
}

func (s settings) addContainer(c *corev1.Container, shared *corev1.PodSecurityContext) {
	own := c.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	s.set(own.Privileged != nil && *own.Privileged, Risky, "privileged container")
	s.set(own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation, Notable, "allowPrivilegeEscalation is not false")
	s.set(unconfined(own.SeccompProfile), Risky, "seccompProfile Unconfined")
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
	s.set(user != nil && *user == 0, Notable, "runAsUser 0")
	s.set((nonRoot == nil || !*nonRoot) && (user == nil || *user == 0), Notable, "runAsNonRoot is not true")
}

func unconfined(p *corev1.SeccompProfile) bool {
	return p != nil && p.Type == corev1.SeccompProfileTypeUnconfined
}

// strongCapabilities are those with which a process can leave its container or change the node.
var strongCapabilities = []string{"ALL", "BPF", "DAC_READ_SEARCH", "NET_ADMIN", "PERFMON", "SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}

func (s settings) addCapability(name string) {
	name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	risk := Notable
	if slices.Contains(strongCapabilities, name) {
		risk = Risky
	}
	s.set(true, risk, "capability "+text.Name(name))
}

// addConstraints adds what SecurityContextConstraints, which OpenShift checks pods by, allow to the pods of their users.
func (s settings) addConstraints(o *object) error {
	var allowed map[string]json.RawMessage
	if err := json.Unmarshal(o.raw, &allowed); err != nil {
		return fmt.Errorf("%s cannot be read: %w", o, err)
	}
	for field, value := range allowed {
		if strings.HasPrefix(field, "allow") && string(value) != "false" && string(value) != "null" && string(value) != "[]" {
			s.set(true, Risky, fmt.Sprintf("%s: %s", o, text.Truncate(field+" "+string(canonical(value)), maxText)))
		}
	}
	return nil
}
