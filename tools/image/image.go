// Package image builds Opgate's container image without a container engine, and states what is in it. The Dockerfile
// builds the same image with one; a test keeps the two together.
package image

import (
	"fmt"
	"io"
	"maps"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// Name is where releases are published.
	Name = "ghcr.io/opgate/opgate"
	// User is who the binary runs as: "nonroot" of distroless, as numbers, so that a kubelet can tell that it is not
	// root.
	User = "65532:65532"
	// Server is the program in the image.
	Server = "opgate-server"
	// Path is the path of its binary.
	Path = "/" + Server
)

// Metadata is what an image states about itself.
type Metadata struct {
	// Version is what "opgate-server version" prints.
	Version string
	// Revision is the commit. Default: not said.
	Revision string
	// Created is the time of the commit, not that of the build: the same commit makes the same image.
	Created time.Time
}

// annotations are the Metadata under the names of the OCI image specification.
func (m Metadata) annotations() map[string]string {
	all := map[string]string{
		"org.opencontainers.image.title":       "opgate",
		"org.opencontainers.image.description": "An admission gate for operators installed by the Operator Lifecycle Manager",
		"org.opencontainers.image.source":      "https://github.com/opgate/opgate",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     m.Version,
		"org.opencontainers.image.created":     m.Created.UTC().Format(time.RFC3339),
	}
	if m.Revision != "" {
		all["org.opencontainers.image.revision"] = m.Revision
	}
	return all
}

// Assemble puts each binary on the base for its platform, and all of them into one index.
func Assemble(base Base, binaries []Binary, meta Metadata) (v1.ImageIndex, error) {
	annotations := meta.annotations()
	maps.Copy(annotations, base.annotations())
	adds := make([]mutate.IndexAddendum, len(binaries))
	for i, binary := range binaries {
		img, err := assembleOne(base, binary, meta, annotations)
		if err != nil {
			return nil, fmt.Errorf("assemble the image for %s: %w", binary.Platform, err)
		}
		adds[i] = mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &binary.Platform}}
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), adds...)
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

func assembleOne(base Base, binary Binary, meta Metadata, annotations map[string]string) (v1.Image, error) {
	img, err := base.image(binary.Platform)
	if err != nil {
		return nil, err
	}
	layer, err := binary.layer(img)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: meta.Created.UTC()}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: created, CreatedBy: "COPY opgate " + Path},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = binary.Platform.OS, binary.Platform.Architecture,
		binary.Platform.Variant
	config.Created = created
	config.Config.User = User
	config.Config.Entrypoint = []string{Path}
	config.Config.Cmd = []string{"serve"}
	if config.Config.WorkingDir == "" {
		config.Config.WorkingDir = "/"
	}
	// What a base states about itself, such as its own version, must not be taken for what this image states.
	config.Config.Labels = meta.annotations()
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, annotations).(v1.Image), nil
}

// logf writes a line for people.
func logf(log io.Writer, format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
