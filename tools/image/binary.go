package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// FIPSOff is the value of GOFIPS140 that builds without FIPS 140-3 mode.
const FIPSOff = "off"

// Binary is a program that was built for a platform.
type Binary struct {
	Platform v1.Platform
	// File is its path on this machine. It ends with the name of the program.
	File string
}

// DefaultPlatforms are the platforms of the images of releases: those of OpenShift, IBM Power and IBM Z included.
func DefaultPlatforms() []string {
	return []string{"linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"}
}

// Platforms parses names such as "linux/arm64".
func Platforms(names []string) ([]v1.Platform, error) {
	platforms := make([]v1.Platform, len(names))
	for i, name := range names {
		platform, err := v1.ParsePlatform(name)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" || platform.String() != "linux/"+
			platform.Architecture {
			return nil, fmt.Errorf("platform %q is not of the form linux/amd64, linux/arm64", name)
		}
		platforms[i] = *platform
	}
	if len(platforms) == 0 {
		return nil, fmt.Errorf("no platform: name one, such as linux/amd64")
	}
	return platforms, nil
}

// BuildArgs are the arguments of the go command that builds a program for release. The result depends on the source,
// the version and the compiler alone. The commit is left to the labels: a build from a tree without .git, as in the
// Dockerfile, has to be the same.
func BuildArgs(version string) []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=" + version}
}

// Compile builds a program of the checkout at root for every platform, into a directory for each in dir. fips is the Go
// Cryptographic Module to build with, as GOFIPS140 of the go command names it.
func Compile(
	ctx context.Context, program, root, dir, version, fips string, platforms []v1.Platform, log io.Writer,
) ([]Binary, error) {
	if version == "" || strings.ContainsAny(version, " \t\n'\"") {
		return nil, fmt.Errorf("version %q: give one without spaces and quotes, such as v0.1.0", version)
	}
	binaries := make([]Binary, len(platforms))
	for i, platform := range platforms {
		file := filepath.Join(dir, platform.OS+"-"+platform.Architecture, program)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return nil, fmt.Errorf("compile %s for %s: %w", program, platform, err)
		}
		logf(log, "compiling %s for %s, the first time takes a minute or two", program, platform)
		watch := stopwatch.Start()
		cmd := gotool.Command(ctx, root, dir, append(BuildArgs(version), "-o", file, "./cmd/"+program)...)
		cmd.Env = append(cmd.Env,
			"CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
			// Go settings of the user must not change an image.
			"GOFLAGS=-buildvcs=false", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140="+fips)
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("compile %s for %s: %w; the compiler said:\n%s", program, platform, err, out)
		}
		logf(log, "compiled %s for %s %s in %s", program, platform, version, watch)
		binaries[i] = Binary{Platform: platform, File: file}
	}
	return binaries, nil
}

// layer is the binary as the one file of a layer, of the media type of base's layers. No user may write to the file,
// and it carries no time, so that the same binary is the same layer.
func (b Binary) layer(base v1.Image) (v1.Layer, error) {
	data, err := os.ReadFile(b.File)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(Path, "/"),
		Mode:     0o555,
		Size:     int64(len(data)),
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatUSTAR,
	})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}

	mediaType, err := base.MediaType()
	if err != nil {
		return nil, err
	}
	layerType := types.OCILayer
	if mediaType == types.DockerManifestSchema2 {
		layerType = types.DockerLayer
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(layerType), tarball.WithCompressedCaching)
}
