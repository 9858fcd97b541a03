package image

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// DefaultBase is what images of releases stand on: certificates of public authorities, time zones and a user, no
	// shell.
	DefaultBase = "gcr.io/distroless/static:nonroot"
	// Scratch is the base that is empty. Opgate needs nothing else: it talks to the API server alone, and trusts the CA
	// that the kubelet mounts.
	Scratch = "scratch"
)

// Base is what binaries are put on.
type Base struct {
	// name and digest are of the index or image that was pulled; an empty name is Scratch.
	name   string
	digest v1.Hash
	image  func(v1.Platform) (v1.Image, error)
}

// FindBase pulls what is needed of the base image that ref names, or makes an empty one for Scratch. There is no way
// from one to the other but to ask: a release must not lose its base because a registry was away.
func FindBase(ctx context.Context, ref string, log io.Writer) (Base, error) {
	if ref == Scratch {
		logf(log, "base is scratch, as asked for: the image will hold the binary and nothing else")
		return Base{image: scratchImage}, nil
	}
	tag, err := name.ParseReference(ref)
	if err != nil {
		return Base{}, fmt.Errorf("base image: %w", err)
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	found, err := remote.Head(tag, opts...)
	if err != nil {
		return Base{}, fmt.Errorf(
			"pull base image %s: %w; where it cannot be pulled, name a copy of it with BASE=, or have an image "+
				"of the binary alone with BASE=scratch", ref, err)
	}
	// From here on by digest: the tag may move while we work.
	pinned := tag.Context().Digest(found.Digest.String())
	logf(log, "base is %s@%s", ref, found.Digest)
	return Base{name: ref, digest: found.Digest, image: func(platform v1.Platform) (v1.Image, error) {
		img, err := remote.Image(pinned, append(opts, remote.WithPlatform(platform))...)
		if err != nil {
			return nil, fmt.Errorf("pull base image %s: %w", pinned, err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("pull base image %s: %w", pinned, err)
		}
		// An image that is not part of an index is returned whatever platform was asked for.
		if config.OS != platform.OS || config.Architecture != platform.Architecture {
			return nil, fmt.Errorf("base image %s is for %s/%s only", pinned, config.OS, config.Architecture)
		}
		return img, nil
	}}, nil
}

// Pulled returns the name of the base and the digest that it had, "" for Scratch.
func (b Base) Pulled() (name string, digest v1.Hash) { return b.name, b.digest }

// annotations name the base, as the OCI image specification wants it.
func (b Base) annotations() map[string]string {
	if b.name == "" {
		return nil
	}
	return map[string]string{
		"org.opencontainers.image.base.name":   b.name,
		"org.opencontainers.image.base.digest": b.digest.String(),
	}
}

// scratchImage is an image without layers.
func scratchImage(v1.Platform) (v1.Image, error) {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
}
