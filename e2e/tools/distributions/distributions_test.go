package distributions

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	corev1 "k8s.io/api/core/v1"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util/config"

	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	kind "sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

const (
	document      = "../../../docs/backstop.md"
	configuration = "admission-configuration.yaml"
)

// TestKubeadm: kubeadm's API server has the flag, and the directory of its value.
func TestKubeadm(t *testing.T) {
	wantLoaded(t, documented(t, "ClusterConfiguration"))
}

// TestKind: kind passes kubeadm the same, and the directory is in the node.
func TestKind(t *testing.T) {
	var cluster kind.Cluster
	if err := yaml.UnmarshalStrict(documented(t, "Cluster"), &cluster); err != nil {
		t.Fatal(err)
	}
	if len(cluster.KubeadmConfigPatches) != 1 || len(cluster.Nodes) != 1 ||
		cluster.Nodes[0].Role != kind.ControlPlaneRole {
		t.Fatalf("the cluster is %+v", cluster)
	}
	dir := wantLoaded(t, []byte(cluster.KubeadmConfigPatches[0]))
	if !slices.ContainsFunc(cluster.Nodes[0].ExtraMounts,
		func(m kind.Mount) bool { return m.ContainerPath == dir && m.Readonly }) {
		t.Errorf("no mount has %s", dir)
	}
}

// TestTalos: the plugins that Talos configures read directories that the API server has, from files on the node.
func TestTalos(t *testing.T) {
	patch, err := configloader.NewFromBytes(documented(t, ""), configloader.WithAllowPatchDelete())
	if err != nil {
		t.Fatal(err)
	}
	server := patch.RawV1Alpha1().ClusterConfig.APIServerConfig
	volumes := server.ExtraVolumes()
	files, err := patch.Machine().Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		dir := ""
		for _, plugin := range server.AdmissionControl() {
			if plugin.Name() == name && plugin.Configuration()["kind"] == name+"Configuration" {
				dir, _ = plugin.Configuration()["staticManifestsDir"].(string)
			}
		}
		if dir == "" {
			t.Errorf("%s reads no directory", name)
			continue
		}
		mounted := false
		for _, v := range volumes {
			mounted = mounted || v.MountPath() == v.HostPath() && strings.HasPrefix(dir, v.MountPath()+"/") &&
				v.ReadOnly()
		}
		written := false
		for _, f := range files {
			written = written || filepath.Dir(f.Path()) == dir
		}
		if !mounted || !written {
			t.Errorf("%s of %s is mounted: %t, written: %t", dir, name, mounted, written)
		}
	}
}

// wantLoaded has kubeadm make the pod of an API server, whose flag must name a file in a directory that it mounts
// read-only from the node. It returns that directory.
func wantLoaded(t *testing.T, clusterConfiguration []byte) (dir string) {
	t.Helper()
	if err := kubeadmutil.ValidateConfig(clusterConfiguration, false, false); err != nil {
		t.Fatal(err)
	}
	node := []byte("\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 192.0.2.1}\n" +
		"nodeRegistration: {name: node, criSocket: unix:///run/containerd/containerd.sock}\n")
	version := []byte("\nkubernetesVersion: v1.37.2\n")
	config, err := kubeadmutil.BytesToInitConfiguration(slices.Concat(clusterConfiguration, version, node), true)
	if err != nil {
		t.Fatal(err)
	}
	pod := controlplane.GetStaticPodSpecs(&config.ClusterConfiguration, &config.LocalAPIEndpoint, nil)["kube-apiserver"]
	container := pod.Spec.Containers[0]
	const flag = "--admission-control-config-file="
	i := slices.IndexFunc(container.Command, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if i < 0 {
		t.Fatalf("the API server is run as %q", container.Command)
	}
	file := strings.TrimPrefix(container.Command[i], flag)
	dir = filepath.Dir(file)
	if filepath.Base(file) != configuration {
		t.Errorf("the flag names %s", file)
	}
	if !slices.ContainsFunc(container.VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == dir && m.ReadOnly }) {
		t.Errorf("%s is not mounted: %+v", dir, container.VolumeMounts)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes,
		func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == dir }) {
		t.Errorf("%s is not of the node: %+v", dir, pod.Spec.Volumes)
	}
	return dir
}

// documented returns the block of YAML in the document whose kind is the given one; "" for one without a kind.
func documented(t *testing.T, kind string) []byte {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range bytes.Split(text, []byte("```")) {
		block, ok := bytes.CutPrefix(block, []byte("yaml\n"))
		if i%2 == 0 || !ok {
			continue
		}
		var object struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(block, &object); err != nil {
			t.Fatalf("%s: %v", block, err)
		}
		if object.Kind == kind {
			return block
		}
	}
	t.Fatalf("%s has no block of kind %q", document, kind)
	return nil
}
