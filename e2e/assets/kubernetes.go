package assets

import "strings"

// kubernetesModule is the module that kube-apiserver and kubectl are built from.
const kubernetesModule = "k8s.io/kubernetes"

// kubernetes states how a control plane is built from its tool module.
func kubernetes(module, version string, opts Options) source {
	major, minor := majorMinor(version)
	// Without its version kube-apiserver reports v0.0.0-master, which kubectl and OLM cannot parse.
	const variable = "-X k8s.io/component-base/version."
	ldflags := strings.Join([]string{
		"-s", "-w",
		variable + "gitVersion=" + version,
		variable + "gitMajor=" + major,
		variable + "gitMinor=" + minor,
	}, " ")
	return source{
		title:   "Kubernetes",
		name:    "kubernetes",
		module:  module,
		version: version,
		programs: []program{
			{"kube-apiserver", kubernetesModule + "/cmd/kube-apiserver"},
			{"kubectl", kubernetesModule + "/cmd/kubectl"},
			{"etcd", "go.etcd.io/etcd/server/v3"},
		},
		flags: []string{"-trimpath", "-ldflags", ldflags},
		cache: opts.CacheDir,
		log:   opts.Log,
	}
}
