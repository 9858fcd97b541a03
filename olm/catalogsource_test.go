package olm

import (
	"strings"
	"testing"
)

// TestO68ServedImage: only a catalog of type grpc without an address is read from its image.
func TestO68ServedImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a1b2c3d", 8)
	image := "registry.example/catalog@" + digest
	for name, c := range map[string]struct {
		spec             CatalogSourceSpec
		registry, digest string
	}{
		"an image":            {CatalogSourceSpec{SourceType: "grpc", Image: image}, "registry.example", digest},
		"an address":          {CatalogSourceSpec{SourceType: "grpc", Address: "catalog.example:50051"}, "", ""},
		"both":                {CatalogSourceSpec{SourceType: "grpc", Address: "c:1", Image: image}, "", ""},
		"a ConfigMap":         {CatalogSourceSpec{SourceType: "configmap", ConfigMap: "c", Image: image}, "", ""},
		"an internal catalog": {CatalogSourceSpec{SourceType: "internal", ConfigMap: "c", Image: image}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.spec.Registry(); got != c.registry {
				t.Errorf("the registry is %q, want %q", got, c.registry)
			}
			if got := c.spec.ImageDigest(); got != c.digest {
				t.Errorf("the digest is %q, want %q", got, c.digest)
			}
		})
	}
}
