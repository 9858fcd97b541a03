package diff

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
)

const (
	// maxImage is the size in bytes, unpacked, above which an image is not read. The image of a bundle has nothing but
	// the bundle.
	maxImage = 2 * maxBundle
	// maxBundleFiles is the number of files of a bundle above which it is not read.
	maxBundleFiles = 2000
	// maxError is the length in bytes of what is printed of an error, which may quote a registry.
	maxError = 500
)

// bundleDirs are the folders of a bundle, in an image and elsewhere.
var bundleDirs = []string{"manifests", "metadata"}

// unpack writes the bundle at a source into a directory. The source is a directory with folders manifests and metadata,
// a directory with an OCI layout of one image, or a reference to an image in a registry, for which the user's
// credentials for container registries are used. Errors: it cannot be read, or has more than is read.
func unpack(ctx context.Context, source, dir string) error {
	into := &unpacked{dir: dir, left: maxBundle}
	info, err := os.Stat(source)
	switch {
	case err == nil && info.IsDir() && isLayout(source):
		image, err := layoutImage(source)
		if err != nil {
			return err
		}
		return into.image(image)
	case err == nil && info.IsDir():
		return into.directory(source)
	case err == nil:
		return errors.New("it is a file: name a directory with manifests and metadata, an OCI layout, or an image in a registry")
	}
	image, err := remoteImage(ctx, source)
	if err != nil {
		return errors.New(text.Truncate(text.Escape(err.Error()), maxError)) // it may quote what the registry answers
	}
	return into.image(image)
}

// isLayout reports whether a directory is an OCI layout.
func isLayout(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "oci-layout"))
	return err == nil && info.Mode().IsRegular()
}

// layoutImage returns the only image of an OCI layout.
func layoutImage(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	return onlyImage(index)
}

// remoteImage returns an image of a registry.
func remoteImage(ctx context.Context, reference string) (v1.Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("it is neither a directory nor a reference to an image: %w", err)
	}
	got, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, err
	}
	if !got.MediaType.IsIndex() {
		return got.Image()
	}
	index, err := got.ImageIndex()
	if err != nil {
		return nil, err
	}
	return onlyImage(index)
}

// onlyImage returns the image of an index. A bundle is the same for all platforms, so that the first image is that of
// each, and an index with several that differ is an error.
func onlyImage(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var images []v1.Descriptor
	for _, m := range manifest.Manifests {
		switch {
		case m.MediaType.IsIndex():
			nested, err := index.ImageIndex(m.Digest)
			if err != nil {
				return nil, err
			}
			return onlyImage(nested)
		case m.MediaType.IsImage() && (m.Platform == nil || m.Platform.OS != "unknown"): // else an attestation
			images = append(images, m)
		}
	}
	if len(images) == 0 {
		return nil, errors.New("the index has no image")
	}
	for _, m := range images[1:] {
		if m.Platform == nil || images[0].Platform == nil {
			return nil, fmt.Errorf("the index has %d images: name one by its digest", len(images))
		}
	}
	return index.Image(images[0].Digest)
}

// unpacked are the files of a bundle in a directory.
type unpacked struct {
	dir   string
	left  int64
	files int
}

// image writes the files of an image.
func (u *unpacked) image(image v1.Image) error {
	stream := mutate.Extract(image)
	defer stream.Close() //nolint:errcheck // nothing was written
	limited := &io.LimitedReader{R: stream, N: maxImage}
	files := tar.NewReader(limited)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) && limited.N > 0 {
			return u.complete()
		}
		if err == nil && header.Typeflag == tar.TypeReg {
			err = u.add(path.Clean(header.Name), files)
		} else if err == nil && inBundle(path.Clean(header.Name)) && header.Typeflag != tar.TypeDir {
			err = fmt.Errorf("%s is not a regular file", text.Name(header.Name))
		}
		switch {
		case limited.N <= 0:
			return fmt.Errorf("it has more than %d bytes: it is not the image of a bundle", maxImage)
		case err != nil:
			return fmt.Errorf("read the files of the image: %s", text.Truncate(text.Escape(err.Error()), maxError))
		}
	}
}

// directory copies the files of a directory.
func (u *unpacked) directory(source string) error {
	root, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written
	for _, folder := range bundleDirs {
		entries, err := fs.ReadDir(root.FS(), folder)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no folder %s: name a directory with manifests and metadata, an OCI layout, or an image in a registry", folder)
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			if err := u.copy(root, path.Join(folder, e.Name()), e.Type()); err != nil {
				return err
			}
		}
	}
	return u.complete()
}

// copy copies a file.
func (u *unpacked) copy(root *os.Root, name string, mode fs.FileMode) error {
	if !mode.IsRegular() { // reading a pipe would block, and a link may leave the directory
		return fmt.Errorf("%s is not a regular file", text.Name(name))
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	return u.add(name, file)
}

// inBundle reports whether a file is one of a bundle, of which those directly in its folders are read.
func inBundle(name string) bool {
	folder, file, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	return (folder == bundleDirs[0] || folder == bundleDirs[1]) && file != "" && !strings.Contains(file, "/")
}

// add writes a file, if it is one of a bundle.
func (u *unpacked) add(name string, from io.Reader) error {
	name = strings.TrimPrefix(name, "/")
	if !inBundle(name) {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(from, u.left+1))
	if err != nil {
		return err
	}
	u.files++
	if u.left -= int64(len(content)); u.left < 0 || u.files > maxBundleFiles {
		return fmt.Errorf("the bundle has more than %d bytes or %d files, and is not read", maxBundle, maxBundleFiles)
	}
	if err := yamlsize.CheckAliases(content, maxBundle); errors.Is(err, yamlsize.ErrTooLarge) {
		return fmt.Errorf("%s: %w", text.Name(name), err)
	}
	folder, file := path.Split(name)
	target := filepath.Join(u.dir, folder)
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, file), content, 0o600)
}

// complete reports an error if a folder of a bundle is missing.
func (u *unpacked) complete() error {
	for _, folder := range bundleDirs {
		if _, err := os.Stat(filepath.Join(u.dir, folder)); err != nil {
			return fmt.Errorf("it has no files in /%s: it is not a bundle", folder)
		}
	}
	return nil
}
