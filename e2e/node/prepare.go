package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
)

// tokenLifetime is that of a pod's token, which is not renewed here.
const tokenLifetime = 7 * 24 * time.Hour

// prepare sets up all that the container needs, and returns the command to run.
func (p *pod) prepare(ctx context.Context, object *corev1.Pod) (cluster.Program, error) {
	if err := checkSupported(object); err != nil {
		return cluster.Program{}, because("CreateContainerConfigError", err)
	}
	container := object.Spec.Containers[0]
	program, ok := p.node.program(container.Image)
	if !ok {
		return cluster.Program{}, because("ErrImagePull", fmt.Errorf("no program stands for image %s", container.Image))
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return cluster.Program{}, err
	}
	if err := p.writeVolumes(ctx, object); err != nil {
		return cluster.Program{}, err
	}
	if err := p.join(ctx, &container); err != nil {
		return cluster.Program{}, err
	}
	if err := p.logIn(ctx, object); err != nil {
		return cluster.Program{}, err
	}
	values, err := p.environment(ctx, object)
	if err != nil {
		return cluster.Program{}, because("CreateContainerConfigError", err)
	}

	// A program of that name in the directory of the pod is recognized as one of this cluster's, whatever its arguments
	// are.
	path := filepath.Join(p.dir, filepath.Base(program.Path))
	target, err := filepath.Abs(program.Path)
	if err != nil {
		return cluster.Program{}, err
	}
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, os.ErrExist) {
		return cluster.Program{}, err
	}

	paths := p.translator(&container)
	var args []string
	if len(container.Command) > 1 {
		args = slices.Clone(container.Command[1:])
	}
	args = append(args, container.Args...)
	for i := range args {
		args[i] = paths(expand(args[i], values))
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + p.dir, "HOSTNAME=" + object.Name,
		"KUBECONFIG=" + p.kubeconfig}
	for _, variable := range container.Env {
		env = append(env, variable.Name+"="+paths(values[variable.Name]))
	}
	replaced := Container{Pod: object, Addresses: p.namedAddresses(), Kubeconfig: p.kubeconfig}
	if program.Args != nil {
		args = append(args, program.Args(replaced)...)
	}
	if program.Env != nil {
		env = append(env, program.Env(replaced)...)
	}
	return cluster.Program{Name: p.String(), Path: path, Args: args, Env: env, Log: p.log}, nil
}

// checkSupported returns an error that names what this node does not support, instead of ignoring it.
func checkSupported(object *corev1.Pod) error {
	spec := object.Spec
	container := spec.Containers[0]
	var unsupported []string
	check := func(what string, used bool) {
		if used {
			unsupported = append(unsupported, what)
		}
	}
	check("more than one container", len(spec.Containers) > 1)
	check("initContainers", len(spec.InitContainers) > 0)
	check("hostNetwork", spec.HostNetwork)
	check("readinessGates", len(spec.ReadinessGates) > 0)
	check("envFrom", len(container.EnvFrom) > 0)
	if lifecycle := container.Lifecycle; lifecycle != nil {
		check("lifecycle.postStart", lifecycle.PostStart != nil)
		check("lifecycle.preStop other than sleep", lifecycle.PreStop != nil && lifecycle.PreStop.Sleep == nil)
		check("lifecycle.stopSignal", lifecycle.StopSignal != nil)
	}
	for _, mount := range container.VolumeMounts {
		check("subPath", mount.SubPath != "" || mount.SubPathExpr != "")
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		check("probes other than httpGet and tcpSocket", probe != nil && probe.HTTPGet == nil && probe.TCPSocket == nil)
	}
	if len(unsupported) > 0 {
		return fmt.Errorf("this node does not know %s", strings.Join(unsupported, ", "))
	}
	return nil
}

// join assigns an IP address to the pod, and an address on this machine to each of its ports. Both stay as long as the
// pod.
func (p *pod) join(ctx context.Context, container *corev1.Container) error {
	p.mu.Lock()
	joined := p.ip != ""
	p.mu.Unlock()
	if joined {
		return nil
	}
	free, err := p.node.cluster.Addresses(ctx, len(container.Ports))
	if err != nil {
		return err
	}
	ip := p.node.nextIP()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ip, p.addresses = ip, map[int32]string{}
	for i, port := range container.Ports {
		p.addresses[port.ContainerPort] = free[i]
	}
	return nil
}

// logIn writes a kubeconfig with a token for the pod's service account, as soon as that exists, unless the pod opts
// out.
func (p *pod) logIn(ctx context.Context, object *corev1.Pod) error {
	if p.kubeconfig != "" {
		return nil
	}
	name := object.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	accounts := p.node.client.CoreV1().ServiceAccounts(object.Namespace)
	account, err := accounts.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := account.AutomountServiceAccountToken
	if object.Spec.AutomountServiceAccountToken != nil {
		wanted = object.Spec.AutomountServiceAccountToken
	}
	if wanted != nil && !*wanted {
		return nil
	}
	seconds := int64(tokenLifetime.Seconds())
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}
	// No admission plugin sets the default here, and a pod that names no service account gets no token that is bound to
	// it.
	if object.Spec.ServiceAccountName != "" {
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: object.Name,
			UID: object.UID}
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	config, err := p.node.cluster.RESTConfig(cluster.Admin)
	if err != nil {
		return err
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = request.Status.Token
	path := filepath.Join(p.dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(path, config); err != nil {
		return err
	}
	p.kubeconfig = path
	return nil
}

// translator returns a function that replaces the paths where the container has its volumes with those where they are
// on this machine.
func (p *pod) translator(container *corev1.Container) func(string) string {
	dirs := map[string]string{}
	for _, mount := range container.VolumeMounts {
		dirs[strings.TrimRight(mount.MountPath, "/")] = p.volumeDir(mount.Name)
	}
	return func(text string) string {
		return pathPattern.ReplaceAllStringFunc(text, func(path string) string {
			// The nearest above: one volume may lie in another.
			for top := path; len(top) > 1; top = filepath.Dir(top) {
				if dir, ok := dirs[top]; ok {
					return dir + strings.TrimPrefix(path, top)
				}
			}
			return path
		})
	}
}

// pathPattern finds absolute paths, and what looks like them.
var pathPattern = regexp.MustCompile(`/[\w./-]*\w`)
