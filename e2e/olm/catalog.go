package olm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Channel is the only one of every package in the catalog.
const Channel = "stable"

// pkg is a package of the catalog. Each version replaces the one before.
type pkg struct {
	name     string
	csv      string // begins the names of its ClusterServiceVersions
	versions []string
	requires string // another package, "" for none
	images   bool   // whether bundles are images, as nearly all in the world are, or lie in the catalog itself
}

// packages are what the catalog offers.
var packages = []pkg{
	{name: "etcd", csv: "etcdoperator", versions: []string{"0.9.0", "0.9.2", "0.9.4"}},
	{name: "vault", csv: "vaultoperator", versions: []string{"1.0.0"}, requires: "etcd"},
	{name: "prometheus", csv: "prometheusoperator", versions: []string{"0.46.0", "0.47.0"}},
	{name: "redis", csv: "redisoperator", versions: []string{"1.0.0", "1.1.0"}, images: true},
	{name: "storefront", csv: "storefrontoperator", versions: []string{"2.0.0"}, requires: "redis", images: true},
}

// csvName is how the ClusterServiceVersion of a version is called, such as "etcdoperator.v0.9.2".
func (p pkg) csvName(version string) string { return p.csv + ".v" + version }

// bundleImage is the image of a version. There is no such image; see kubelet.
func (p pkg) bundleImage(version string) string {
	return "registry.invalid/" + p.name + "-bundle:v" + version
}

// bundleManifest is what is in an image, nil where there is none of that name.
func bundleManifest(image string) []byte {
	for _, p := range packages {
		replaces := ""
		for _, version := range p.versions {
			if p.bundleImage(version) == image {
				return mustEncode(p.clusterServiceVersion(version, replaces))
			}
			replaces = p.csvName(version)
		}
	}
	return nil
}

// Blobs of a file-based catalog.
type (
	packageBlob struct {
		Schema         string `json:"schema"`
		Name           string `json:"name"`
		DefaultChannel string `json:"defaultChannel"`
	}
	channelBlob struct {
		Schema  string         `json:"schema"`
		Package string         `json:"package"`
		Name    string         `json:"name"`
		Entries []channelEntry `json:"entries"`
	}
	channelEntry struct {
		Name     string `json:"name"`
		Replaces string `json:"replaces,omitempty"`
	}
	bundleBlob struct {
		Schema     string     `json:"schema"`
		Package    string     `json:"package"`
		Name       string     `json:"name"`
		Image      string     `json:"image"` // "" if its content is in the properties
		Properties []property `json:"properties"`
	}
	property struct {
		Type  string `json:"type"`
		Value any    `json:"value"`
	}
)

// writeCatalog writes the catalog that "opm serve" reads to dir.
func writeCatalog(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("write the catalog: %w", err)
	}
	file, err := os.Create(filepath.Join(dir, "catalog.json"))
	if err != nil {
		return fmt.Errorf("write the catalog: %w", err)
	}
	defer func() { _ = file.Close() }()
	encoder := json.NewEncoder(file)
	for _, p := range packages {
		for _, blob := range p.blobs() {
			if err := encoder.Encode(blob); err != nil {
				return fmt.Errorf("write the catalog: package %s: %w", p.name, err)
			}
		}
	}
	return file.Close()
}

func (p pkg) blobs() []any {
	channel := channelBlob{Schema: "olm.channel", Package: p.name, Name: Channel}
	blobs := []any{packageBlob{Schema: "olm.package", Name: p.name, DefaultChannel: Channel}}
	previous := ""
	for _, version := range p.versions {
		name := p.csvName(version)
		channel.Entries = append(channel.Entries, channelEntry{Name: name, Replaces: previous})
		properties := []property{
			{"olm.package", map[string]string{"packageName": p.name, "version": version}},
		}
		image := ""
		if p.images {
			image = p.bundleImage(version)
		} else {
			// Bytes are base64 in JSON, as the schema wants it.
			properties = append(properties, property{"olm.bundle.object", map[string][]byte{
				"data": mustEncode(p.clusterServiceVersion(version, previous)),
			}})
		}
		if p.requires != "" {
			properties = append(properties, property{"olm.package.required", map[string]string{
				"packageName": p.requires, "versionRange": ">=0.0.1",
			}})
		}
		blobs = append(blobs, bundleBlob{Schema: "olm.bundle", Package: p.name, Name: name, Image: image, Properties: properties})
		previous = name
	}
	return append(blobs, channel)
}

// clusterServiceVersion is an operator of one Deployment that may be installed in any way.
func (p pkg) clusterServiceVersion(release, replaces string) *operatorsv1alpha1.ClusterServiceVersion {
	deployment := p.name + "-operator"
	labels := map[string]string{"name": deployment}
	replicas := int32(1)
	csv := &operatorsv1alpha1.ClusterServiceVersion{
		TypeMeta: metav1.TypeMeta{
			APIVersion: operatorsv1alpha1.ClusterServiceVersionAPIVersion,
			Kind:       operatorsv1alpha1.ClusterServiceVersionKind,
		},
		ObjectMeta: metav1.ObjectMeta{Name: p.csvName(release)},
		Spec: operatorsv1alpha1.ClusterServiceVersionSpec{
			DisplayName: strings.ToUpper(p.name[:1]) + p.name[1:],
			Version:     version.OperatorVersion{Version: semver.MustParse(release)},
			Replaces:    replaces,
			InstallStrategy: operatorsv1alpha1.NamedInstallStrategy{
				StrategyName: operatorsv1alpha1.InstallStrategyNameDeployment,
				StrategySpec: operatorsv1alpha1.StrategyDetailsDeployment{
					DeploymentSpecs: []operatorsv1alpha1.StrategyDeploymentSpec{{
						Name: deployment,
						Spec: appsv1.DeploymentSpec{
							Replicas: &replicas,
							Selector: &metav1.LabelSelector{MatchLabels: labels},
							Template: corev1.PodTemplateSpec{
								ObjectMeta: metav1.ObjectMeta{Labels: labels},
								Spec: corev1.PodSpec{Containers: []corev1.Container{{
									Name: "operator", Image: "registry.invalid/" + deployment + ":v" + release,
								}}},
							},
						},
					}},
				},
			},
		},
	}
	for _, mode := range []operatorsv1alpha1.InstallModeType{
		operatorsv1alpha1.InstallModeTypeOwnNamespace, operatorsv1alpha1.InstallModeTypeSingleNamespace,
		operatorsv1alpha1.InstallModeTypeMultiNamespace, operatorsv1alpha1.InstallModeTypeAllNamespaces,
	} {
		csv.Spec.InstallModes = append(csv.Spec.InstallModes, operatorsv1alpha1.InstallMode{Type: mode, Supported: true})
	}
	return csv
}

// mustEncode is for objects of this file, all of which have an encoding.
func mustEncode(object any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return data
}
