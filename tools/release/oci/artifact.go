// Package oci makes artifacts, which are what registries store besides images, and OCI layouts, and pushes them.
package oci

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Empty is the type of a configuration that states nothing.
const Empty = types.MediaType("application/vnd.oci.empty.v1+json")

// Artifact is one file in the form of an image.
type Artifact struct {
	// Type is the type of the artifact. Default: that of the configuration.
	Type string
	// Config is the type of the configuration, which is an empty object. Default: Empty.
	Config types.MediaType
	// Data is the file, and DataType its type.
	Data     []byte
	DataType types.MediaType
	// Subject is what the artifact is about. Default: it is about none.
	Subject     *v1.Descriptor
	Annotations map[string]string
}

// Image returns the artifact as the image that it is stored as.
func (a Artifact) Image() (v1.Image, error) {
	if a.Config == "" {
		a.Config = Empty
	}
	core := &artifact{config: []byte("{}"), layer: static.NewLayer(a.Data, a.DataType)}
	layer, err := partial.Descriptor(core.layer)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(core.config))
	if err != nil {
		return nil, err
	}
	manifest := v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  a.Type,
		Config:        v1.Descriptor{MediaType: a.Config, Digest: digest, Size: size},
		Layers:        []v1.Descriptor{*layer},
		Annotations:   a.Annotations,
	}
	if a.Subject != nil {
		manifest.Subject = &v1.Descriptor{MediaType: a.Subject.MediaType, Digest: a.Subject.Digest,
			Size: a.Subject.Size}
	}
	if core.manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(core)
}

// artifact implements partial.CompressedImageCore.
type artifact struct {
	manifest, config []byte
	layer            v1.Layer
}

func (a *artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

func (a *artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	got, err := a.layer.Digest()
	if err != nil {
		return nil, err
	}
	if got != digest {
		return nil, fmt.Errorf("the artifact has no layer %s", digest)
	}
	return a.layer, nil
}
