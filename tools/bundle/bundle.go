// Package bundle makes a bundle of Opgate for OLM, in format registry+v1, and a file-based catalog with it, from the
// Helm chart.
package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/chart"
)

const (
	// Package is the name of the package, and begins the names of ClusterServiceVersions.
	Package = "opgate"
	// Namespace is where the bundle has to be installed: it is not judged, so it must hold nothing else.
	Namespace = "opgate-system"
	// Channel is the only channel.
	Channel = "candidate"
)

// Options configure Generate. The zero value is useful.
type Options struct {
	// Version is that of the bundle, such as "0.1.0". Default: the chart's.
	Version string
	// Replaces is the version that this one replaces. Default: none.
	Replaces string
	// Image is Opgate's image, best by digest. Default: the chart's, with Version as its tag.
	Image string
	// OLMIdentity is the account that OLM runs as. Default: chart.OLM. On OpenShift it is another one.
	OLMIdentity string
	// FIPS140 is the Go Cryptographic Module that the image was built with, as GOFIPS140 names it. Default: off.
	FIPS140 string
}

// Bundle is a bundle of one version.
type Bundle struct {
	// Version and Replaces are as in Options, without a default.
	Version, Replaces string
	// Manifests are the objects by file name, the ClusterServiceVersion among them.
	Manifests map[string][]byte
	// Annotations are the file metadata/annotations.yaml.
	Annotations []byte
}

// Name returns the name of the ClusterServiceVersion of a version.
func Name(version string) string { return Package + ".v" + version }

// Generate makes a bundle from the chart of a checkout, which helm renders.
func Generate(ctx context.Context, helm string, checkout repo.Checkout, o Options) (*Bundle, error) {
	o.OLMIdentity = cmp.Or(o.OLMIdentity, chart.OLM)
	documents, err := chart.Render(ctx, helm, checkout.Chart(), Namespace,
		"--skip-tests",
		"--set", "olm.identity="+o.OLMIdentity,
		"--set", "olm.catalogNamespaces={*}", // a bundle has no Roles in other namespaces
		"--set", "webhooks.ownedByNamespace=false", // a ClusterRole that OLM deletes owns them, see package register
		// users and groups of the pod are left to the cluster and to the image
		"--api-versions", "security.openshift.io/v1")
	if err != nil {
		return nil, err
	}
	parts, err := divide(documents)
	if err != nil {
		return nil, fmt.Errorf("make the bundle: %w", err)
	}
	if o.Version == "" {
		o.Version = strings.TrimPrefix(parts.deployment.Labels[versionLabel], "v")
	}
	parts.release(o.Version)
	csv, err := parts.clusterServiceVersion(o)
	if err != nil {
		return nil, fmt.Errorf("make the ClusterServiceVersion: %w", err)
	}
	registration, err := parts.registration(o.Version)
	if err != nil {
		return nil, fmt.Errorf("make ConfigMap %s: %w", registrationName(o.Version), err)
	}
	b := &Bundle{Version: o.Version, Replaces: o.Replaces, Manifests: map[string][]byte{}, Annotations: annotations()}
	for _, object := range append(parts.manifests(o.Version), csv, registration) {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		b.Manifests[fileName(object)] = text
	}
	return b, nil
}

// fileName is where an object is in the bundle.
func fileName(object *unstructured.Unstructured) string {
	if object.GetKind() == "ClusterServiceVersion" {
		return Package + ".clusterserviceversion.yaml"
	}
	return strings.ToLower(object.GetKind()) + "-" + object.GetName() + ".yaml"
}

// annotations are the metadata of the bundle.
func annotations() []byte {
	return []byte(`annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: ` + Package + `
  operators.operatorframework.io.bundle.channels.v1: ` + Channel + `
  operators.operatorframework.io.bundle.channel.default.v1: ` + Channel + `
  com.redhat.openshift.versions: v4.17
`)
}

// dockerfile builds the image of the bundle.
const dockerfile = `FROM scratch
LABEL operators.operatorframework.io.bundle.mediatype.v1=registry+v1
LABEL operators.operatorframework.io.bundle.manifests.v1=manifests/
LABEL operators.operatorframework.io.bundle.metadata.v1=metadata/
LABEL operators.operatorframework.io.bundle.package.v1=` + Package + `
LABEL operators.operatorframework.io.bundle.channels.v1=` + Channel + `
LABEL operators.operatorframework.io.bundle.channel.default.v1=` + Channel + `
COPY manifests /manifests/
COPY metadata /metadata/
`

// Write writes the bundle to a directory, which it replaces: manifests, metadata and a Dockerfile for the image.
func (b *Bundle) Write(directory string) error {
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	files := map[string][]byte{"bundle.Dockerfile": []byte(dockerfile), "metadata/annotations.yaml": b.Annotations}
	for name, text := range b.Manifests {
		files["manifests/"+name] = text
	}
	for name, text := range files {
		path := filepath.Join(directory, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, text, 0o644)); err != nil { //nolint:gosec // made to be published
			return err
		}
	}
	return nil
}
