package node

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Program is what runs in place of an image.
type Program struct {
	// Path is the executable. It takes the place of the first element of a container's command; the others and the
	// arguments stay.
	Path string
	// Args returns arguments that are put after those of the container, to make a program listen where it can be
	// reached here. Default: none.
	Args func(Container) []string
	// Env returns variables for the same purpose, such as "NAME=value". Default: none.
	Env func(Container) []string
}

// Container describes the container that a Program replaces.
type Container struct {
	// Pod is the pod. It must not be changed.
	Pod *corev1.Pod
	// Addresses is where to listen, by names of ports. The ports that the container declares cannot be used: other pods
	// declare the same.
	Addresses map[string]string
	// Kubeconfig is a file with the credentials of the pod's service account. KUBECONFIG holds its path. Empty if
	// the pod has no token.
	Kubeconfig string
}

// OpgateImage is where the chart has Opgate's image from, without a tag.
const OpgateImage = "ghcr.io/opgate/opgate"

// Opgate is the program that runs in place of Opgate's image. Commands other than serve listen nowhere.
func Opgate(path string) Program {
	return Program{Path: path, Args: func(c Container) []string {
		if args := c.Pod.Spec.Containers[0].Args; len(args) == 0 || args[0] != "serve" {
			return nil
		}
		return []string{
			"--kubeconfig", c.Kubeconfig,
			"--webhook-bind-address", c.Addresses["webhook"],
			"--health-probe-bind-address", c.Addresses["health"],
			"--metrics-bind-address", c.Addresses["metrics"],
		}
	}}
}

// program finds the program for an image.
func (n *Node) program(image string) (Program, bool) {
	if program, ok := n.images[image]; ok {
		return program, true
	}
	name, _, _ := strings.Cut(image, "@")
	if program, ok := n.images[name]; ok {
		return program, true
	}
	// A colon before the last slash is that of a registry's port.
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	program, ok := n.images[name]
	return program, ok
}
