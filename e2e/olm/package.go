package olm

import (
	"encoding/json"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Channel is the only channel of a package by default.
const Channel = "stable"

// Package is an operator that a catalog offers.
type Package struct {
	// Name is that of the package.
	Name string
	// CSV begins the names of its ClusterServiceVersions: "etcdoperator" those of etcdoperator.v0.9.2.
	CSV string
	// Versions are such as "0.9.2", oldest first.
	Versions []string
	// Channels are the versions in each channel, oldest first; each replaces the one before it there.
	// Default: Channel, with all Versions.
	Channels map[string][]string
	// Edges are what versions follow, by channel and version, for channels in which they do not replace the one before
	// them. Default: they do.
	Edges map[string]map[string]Edges
	// DefaultChannel is one of Channels. Default: Channel.
	DefaultChannel string
	// Requires is the package of another operator that this one needs, in any version. Default: none.
	Requires string
	// Images is whether bundles are images, as nearly all are, or are inlined in the catalog itself.
	Images bool
	// Owns is the kind of its own resources, such as "Cassandra". Its definition is called such as
	// cassandras.cassandra.example.com, after the kind and the package. Default: it has none.
	Owns string
	// Properties are further properties of its bundles, such as a certificate, or an olm.constraint that the resolver
	// evaluates. Default: none.
	Properties []Property
	// MinKubeVersion is the oldest Kubernetes that it supports. Default: any.
	MinKubeVersion string
	// ClusterPermissions are the permissions that it requests on the whole cluster. Default: none.
	ClusterPermissions []rbacv1.PolicyRule
	// Permissions are those that they request in the namespaces of the OperatorGroup. Default: none.
	Permissions []rbacv1.PolicyRule
	// Webhooks are those that it registers. Default: none.
	Webhooks []operatorsv1alpha1.WebhookDescription
	// APIVersions are those of the kind that it owns, the last one is stored. Default: v1.
	APIVersions []string
	// Objects are further objects of its bundles, by file name. Default: none.
	Objects map[string]any
	// Release changes the contents of one version. Default: all versions have the same.
	Release func(version string, p *Package)
	// Deprecated are the deprecations in the catalog. Default: none.
	Deprecated Deprecations
	// Account is the ServiceAccount of the operator's pods. Default: that of the namespace, "default".
	Account string
	// Bundles are the manifests of versions whose bundles were made elsewhere, by version and file name, in YAML.
	// Default: none.
	Bundles map[string]map[string][]byte
}

// Edges are the versions that one may be installed after.
type Edges struct {
	Replaces  string
	Skips     []string
	SkipRange string
}

// Property is one of a bundle. Value is what becomes its JSON.
type Property struct {
	Type  string
	Value any
}

// Deprecations are messages to users of what is deprecated.
type Deprecations struct {
	// Package is about all of the package, "" if that is not deprecated.
	Package string
	// Channels and Versions are about these.
	Channels, Versions map[string]string
}

// csvName is how the ClusterServiceVersion of a version is called, such as "etcdoperator.v0.9.2".
func (p Package) csvName(version string) string { return p.CSV + ".v" + version }

// channels are the versions by channel, with the default.
func (p Package) channels() map[string][]string {
	if p.Channels == nil {
		return map[string][]string{Channel: p.Versions}
	}
	return p.Channels
}

func (p Package) defaultChannel() string {
	if p.DefaultChannel == "" {
		return Channel
	}
	return p.DefaultChannel
}

// apiVersions are those of the kind that it owns.
func (p Package) apiVersions() []string {
	if p.APIVersions == nil {
		return []string{"v1"}
	}
	return p.APIVersions
}

// release returns the package as one of its versions has it.
func (p Package) release(version string) Package {
	if p.Release != nil {
		p.Release(version, &p)
	}
	return p
}

// group is that of the kind that it owns.
func (p Package) group() string { return p.Name + ".example.com" }

// plural is the resource of the kind that it owns.
func (p Package) plural() string { return strings.ToLower(p.Owns) + "s" }

// manifests are the objects of a version, by file name. OLM itself fills in which version it replaces.
func (p Package) manifests(release string) map[string][]byte {
	if made := p.Bundles[release]; made != nil {
		return made
	}
	p = p.release(release)
	manifests := map[string][]byte{"clusterserviceversion.json": mustEncode(p.clusterServiceVersion(release))}
	if p.Owns != "" {
		manifests["customresourcedefinition.json"] = mustEncode(p.definition())
	}
	for name, object := range p.Objects {
		manifests[name] = mustEncode(object)
	}
	return manifests
}

// clusterServiceVersion is an operator of one Deployment, or that of a bundle which was made elsewhere.
func (p Package) clusterServiceVersion(release string) *operatorsv1alpha1.ClusterServiceVersion {
	for _, manifest := range p.Bundles[release] {
		csv := &operatorsv1alpha1.ClusterServiceVersion{}
		if err := yaml.Unmarshal(manifest, csv); err == nil && csv.Kind == operatorsv1alpha1.ClusterServiceVersionKind {
			return csv
		}
	}
	csv := &operatorsv1alpha1.ClusterServiceVersion{
		TypeMeta: metav1.TypeMeta{
			APIVersion: operatorsv1alpha1.ClusterServiceVersionAPIVersion,
			Kind:       operatorsv1alpha1.ClusterServiceVersionKind,
		},
		ObjectMeta: metav1.ObjectMeta{Name: p.csvName(release)},
		Spec: operatorsv1alpha1.ClusterServiceVersionSpec{
			DisplayName:    strings.ToUpper(p.Name[:1]) + p.Name[1:],
			Version:        version.OperatorVersion{Version: semver.MustParse(release)},
			MinKubeVersion: p.MinKubeVersion,
			InstallModes:   installModes(),

			WebhookDefinitions: p.Webhooks,
			InstallStrategy: operatorsv1alpha1.NamedInstallStrategy{
				StrategyName: operatorsv1alpha1.InstallStrategyNameDeployment,
				StrategySpec: operatorsv1alpha1.StrategyDetailsDeployment{
					DeploymentSpecs: []operatorsv1alpha1.StrategyDeploymentSpec{p.deployment(release)},
				},
			},
		},
	}
	strategy := &csv.Spec.InstallStrategy.StrategySpec
	if len(p.ClusterPermissions) > 0 {
		strategy.ClusterPermissions = []operatorsv1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: p.serviceAccount(), Rules: p.ClusterPermissions}}
	}
	if len(p.Permissions) > 0 {
		strategy.Permissions = []operatorsv1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: p.serviceAccount(), Rules: p.Permissions}}
	}
	if p.Owns != "" {
		for _, version := range p.apiVersions() {
			csv.Spec.CustomResourceDefinitions.Owned = append(csv.Spec.CustomResourceDefinitions.Owned,
				operatorsv1alpha1.CRDDescription{
					Name: p.plural() + "." + p.group(), Version: version, Kind: p.Owns, DisplayName: p.Owns,
				})
		}
	}
	return csv
}

// serviceAccount is the one that its permissions are for.
func (p Package) serviceAccount() string { return p.Name + "-operator" }

// Image is the image of its operator's pods, without the tag.
func (p Package) Image() string { return "registry.invalid/" + p.Name + "-operator" }

func (p Package) deployment(release string) operatorsv1alpha1.StrategyDeploymentSpec {
	name := p.Name + "-operator"
	labels := map[string]string{"name": name}
	replicas := int32(1)
	return operatorsv1alpha1.StrategyDeploymentSpec{
		Name: name,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{ServiceAccountName: p.Account, Containers: []corev1.Container{{
					Name: "operator", Image: p.Image() + ":v" + release,
				}}},
			},
		},
	}
}

// installModes are all.
func installModes() (modes []operatorsv1alpha1.InstallMode) {
	for _, mode := range []operatorsv1alpha1.InstallModeType{
		operatorsv1alpha1.InstallModeTypeOwnNamespace, operatorsv1alpha1.InstallModeTypeSingleNamespace,
		operatorsv1alpha1.InstallModeTypeMultiNamespace, operatorsv1alpha1.InstallModeTypeAllNamespaces,
	} {
		modes = append(modes, operatorsv1alpha1.InstallMode{Type: mode, Supported: true})
	}
	return modes
}

// definition is that of the kind that it owns.
func (p Package) definition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	var versions []apiextensionsv1.CustomResourceDefinitionVersion
	for i, name := range p.apiVersions() {
		versions = append(versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: i == len(p.apiVersions())-1,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
			},
		})
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: p.plural() + "." + p.group()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: p.group(),
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: p.Owns, ListKind: p.Owns + "List", Plural: p.plural(), Singular: strings.ToLower(p.Owns),
			},
			Versions: versions,
		},
	}
}

// mustEncode is for objects of this package, all of which have an encoding.
func mustEncode(object any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return data
}
