package oci

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// refName is the annotation of an entry of a layout that holds its tag.
const refName = "org.opencontainers.image.ref.name"

// Layout is an OCI image layout, in which a repository is kept as a directory: what has a tag, and what refers to it.
type Layout struct{ path layout.Path }

// NewLayout makes dir an empty layout.
func NewLayout(dir string) (Layout, error) {
	path, err := layout.Write(dir, empty.Index)
	return Layout{path}, err
}

// OpenLayout opens the layout in dir.
func OpenLayout(dir string) (Layout, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return Layout{}, fmt.Errorf("%s is not an OCI image layout: %w", dir, err)
	}
	return Layout{path}, nil
}

// Add stores an image, under a tag unless that is "".
func (l Layout) Add(img v1.Image, tag string) error {
	if tag == "" {
		return l.path.AppendImage(img)
	}
	return l.path.AppendImage(img, layout.WithAnnotations(map[string]string{refName: tag}))
}

// Find returns the entry with a tag.
func (l Layout) Find(tag string) (v1.Descriptor, error) {
	entries, err := l.entries()
	if err != nil {
		return v1.Descriptor{}, err
	}
	for _, entry := range entries {
		if entry.Annotations[refName] == tag {
			return entry, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%s holds no %s", filepath.Base(string(l.path)), tag)
}

// Main returns the one entry with a tag that is neither a signature of another, whose tags are made from its digest,
// nor has one of the other tags.
func (l Layout) Main(signature func(v1.Hash) string, others ...string) (v1.Descriptor, error) {
	entries, err := l.entries()
	if err != nil {
		return v1.Descriptor{}, err
	}
	for _, entry := range entries {
		others = append(others, signature(entry.Digest))
	}
	var found []v1.Descriptor
	for _, entry := range entries {
		if tag := entry.Annotations[refName]; tag != "" && !slices.Contains(others, tag) {
			found = append(found, entry)
		}
	}
	if len(found) != 1 {
		return v1.Descriptor{}, fmt.Errorf("%s holds %d artifacts with tags of versions, want 1", l.path, len(found))
	}
	return found[0], nil
}

func (l Layout) entries() ([]v1.Descriptor, error) {
	index, err := l.path.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return manifest.Manifests, nil
}

// Push uploads all entries to a repository: what has a tag first, since artifacts refer to that.
func (l Layout) Push(ctx context.Context, to name.Repository, opts ...remote.Option) error {
	entries, err := l.entries()
	if err != nil {
		return err
	}
	opts = append([]remote.Option{remote.WithContext(ctx)}, opts...)
	for _, tagged := range []bool{true, false} {
		for _, entry := range entries {
			tag := entry.Annotations[refName]
			if tagged != (tag != "") {
				continue
			}
			var ref name.Reference = to.Digest(entry.Digest.String())
			if tagged {
				ref = to.Tag(tag)
			}
			if err := l.push(entry, ref, opts); err != nil {
				return fmt.Errorf("push %s: %w", ref, err)
			}
		}
	}
	return nil
}

func (l Layout) push(entry v1.Descriptor, ref name.Reference, opts []remote.Option) error {
	index, err := l.path.ImageIndex()
	if err != nil {
		return err
	}
	if entry.MediaType.IsIndex() {
		child, err := index.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, child, opts...)
	}
	img, err := index.Image(entry.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, img, opts...)
}
