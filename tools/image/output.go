package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteLayout makes dir an OCI image layout with the index in it, in the place of an earlier one. Tools find the index
// by the version.
func WriteLayout(dir string, index v1.ImageIndex, version string) error {
	if err := replaceable(dir); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".image-*")
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	made, err := layout.Write(filepath.Join(temp, "image"), empty.Index)
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	err = made.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := os.Rename(string(made), dir); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// replaceable returns an error if dir holds something that is not an image layout, so that a typing error destroys
// nothing.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
		return fmt.Errorf("%s holds something else: name an OCI image layout, or a directory that is empty or not there", dir)
	}
	return nil
}

// WriteArchive writes the image for one platform as an archive that "docker load" and "kind load image-archive" read.
func WriteArchive(file string, index v1.ImageIndex, platform v1.Platform, tag name.Tag) error {
	img, err := ForPlatform(index, platform)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// ForPlatform is the image of an index for one platform.
func ForPlatform(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.Platform != nil && descriptor.Platform.Equals(platform) {
			return index.Image(descriptor.Digest)
		}
	}
	return nil, fmt.Errorf("there is no image for %s: build it for that platform too", platform)
}

// Push uploads the index, with the credentials of "docker login", and tags it.
func Push(ctx context.Context, index v1.ImageIndex, tag name.Tag) error {
	err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
