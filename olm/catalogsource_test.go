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
		"of another host":     {CatalogSourceSpec{Image: "index.docker.io/catalog@" + digest}, "docker.io", digest},
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

// TestO69ForgedService: a catalog whose status names another Service than that of its pods is not read from its image.
func TestO69ForgedService(t *testing.T) {
	const spec = `"metadata":{"namespace":"olm","name":"vendor.hub"},"spec":{"sourceType":"grpc","image":"registry.example/c:1"}`
	for name, c := range map[string]struct{ status, served string }{
		"none yet": {`{}`, "registry.example/c:1"},
		"that of its pods": {`{"registryService":{"protocol":"grpc","serviceName":"vendor-hub","serviceNamespace":"olm","port":"50051"}}`,
			"registry.example/c:1"},
		"another one":       {`{"registryService":{"serviceName":"evil","serviceNamespace":"olm","port":"50051"}}`, ""},
		"another namespace": {`{"registryService":{"serviceName":"vendor-hub","serviceNamespace":"shop","port":"50051"}}`, ""},
		"another port":      {`{"registryService":{"serviceName":"vendor-hub","serviceNamespace":"olm","port":"50052"}}`, ""},
		"an address before": {`{"registryService":{"protocol":"grpc"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := Decode[CatalogSource]([]byte(`{` + spec + `,"status":` + c.status + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := source.ServedImage(); got != c.served {
				t.Errorf("it is served from %q, want %q", got, c.served)
			}
		})
	}
}
