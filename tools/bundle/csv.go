package bundle

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/tools/image"
)

const (
	home       = "https://github.com/opgate/opgate"
	repository = "ghcr.io/opgate/opgate"
	// minKubeVersion is that of the chart: matchConditions of webhooks are stable since 1.30.
	minKubeVersion = "1.30.0"
)

// description is what consoles show of the package.
//
//go:embed description.md
var description string

//go:embed icon.svg
var icon []byte

// clusterServiceVersion is the operator as OLM runs it. It owns no definitions: OLM would let any user who may edit a
// namespace write OperatorPolicies there, and these decide about any namespace.
func (p *parts) clusterServiceVersion(o Options) (*unstructured.Unstructured, error) {
	number, err := semver.Parse(o.Version)
	if err != nil {
		return nil, fmt.Errorf("version %q is no semantic version, such as 0.1.0: %w", o.Version, err)
	}
	if o.Image == "" {
		o.Image = repository + ":v" + o.Version
	}
	deployment := p.deployment.DeepCopy()
	containers := deployment.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		return nil, fmt.Errorf("the Deployment of the chart has %d containers, want 1", len(containers))
	}
	containers[0].Image = o.Image
	mount(&deployment.Spec.Template, o.Version)
	csv := &operatorsv1alpha1.ClusterServiceVersion{
		TypeMeta: metav1.TypeMeta{APIVersion: operatorsv1alpha1.ClusterServiceVersionAPIVersion,
			Kind: operatorsv1alpha1.ClusterServiceVersionKind},
		ObjectMeta: metav1.ObjectMeta{Name: Name(o.Version), Labels: csvLabels(), Annotations: csvAnnotations(o)},
		Spec: operatorsv1alpha1.ClusterServiceVersionSpec{
			DisplayName: "Opgate",
			Description: strings.TrimSpace(description) + validations[o.FIPS140],
			Keywords:    []string{"olm", "operators", "admission", "policy", "upgrades"},
			Maintainers: []operatorsv1alpha1.Maintainer{{Name: "The Opgate authors",
				Email: "maintainers@opgate.io"}},
			Provider: operatorsv1alpha1.AppLink{Name: "The Opgate authors", URL: home},
			Links: []operatorsv1alpha1.AppLink{{Name: "Source", URL: home},
				{Name: "Installing through OLM", URL: home + "/blob/main/docs/install.md#through-olm"}},
			Icon: []operatorsv1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon),
				MediaType: "image/svg+xml"}},
			Maturity:       "alpha",
			Version:        version.OperatorVersion{Version: number},
			MinKubeVersion: minKubeVersion,
			InstallModes: []operatorsv1alpha1.InstallMode{
				{Type: operatorsv1alpha1.InstallModeTypeOwnNamespace},
				{Type: operatorsv1alpha1.InstallModeTypeSingleNamespace},
				{Type: operatorsv1alpha1.InstallModeTypeMultiNamespace},
				{Type: operatorsv1alpha1.InstallModeTypeAllNamespaces, Supported: true},
			},
			RelatedImages: []operatorsv1alpha1.RelatedImage{{Name: "opgate", Image: o.Image}},
			InstallStrategy: operatorsv1alpha1.NamedInstallStrategy{
				StrategyName: operatorsv1alpha1.InstallStrategyNameDeployment,
				StrategySpec: operatorsv1alpha1.StrategyDetailsDeployment{
					DeploymentSpecs: []operatorsv1alpha1.StrategyDeploymentSpec{{Name: deployment.Name,
						Label: deployment.Labels, Spec: deployment.Spec}},
					// None for the namespace alone: in this install mode OLM would grant these on the whole cluster.
					// They are a Role.
					ClusterPermissions: []operatorsv1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: serviceAccount, Rules: append(p.permissions, p.registering()...)}},
				},
			},
		},
	}
	if o.Replaces != "" {
		csv.Spec.Replaces = Name(o.Replaces)
	}
	return convert(csv)
}

// csvLabels name the platforms of the image; without them consoles take it to be for linux/amd64 alone.
func csvLabels() map[string]string {
	labels := map[string]string{}
	for _, platform := range image.DefaultPlatforms() {
		system, architecture, _ := strings.Cut(platform, "/")
		labels["operatorframework.io/os."+system] = "supported"
		labels["operatorframework.io/arch."+architecture] = "supported"
	}
	return labels
}

// validations are, for each Go Cryptographic Module that has a certificate, what consoles show of it. Source: NIST's list of
// validated modules; lib/fips140/certified.txt of Go names the version.
var validations = map[string]string{"certified": certificate, "v1.0.0": certificate}

const certificate = "\n\nThe image is built with the Go Cryptographic Module v1.0.0, in FIPS 140-3 mode: certificate 5247 of the " +
	"Cryptographic Module Validation Program, active until 2031-04-26."

// csvAnnotations are what catalogs and consoles read.
func csvAnnotations(o Options) map[string]string {
	_, validated := validations[o.FIPS140]
	annotations := map[string]string{
		"alm-examples":   "[]", // OLM knows of no definitions
		"capabilities":   "Seamless Upgrades",
		"categories":     "Security",
		"containerImage": o.Image,
		"description":    "An admission gate for operators that OLM installs",
		"repository":     home,
		"support":        "The Opgate authors",
		"operatorframework.io/suggested-namespace":       Namespace,
		"features.operators.openshift.io/disconnected":   "true",
		"features.operators.openshift.io/fips-compliant": strconv.FormatBool(validated),
		// The pods talk to the API server only.
		"features.operators.openshift.io/proxy-aware":      "false",
		"features.operators.openshift.io/tls-profiles":     "false",
		"features.operators.openshift.io/token-auth-aws":   "false",
		"features.operators.openshift.io/token-auth-azure": "false",
		"features.operators.openshift.io/token-auth-gcp":   "false",
		"operatorframework.io/suggested-namespace-template": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + Namespace +
			`","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`,
	}
	return annotations
}
