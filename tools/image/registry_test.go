package image_test

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/opgate/opgate/tools/image"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// startRegistry serves a registry on this machine and returns its host:port.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// standIns are files in the place of binaries: how images are put together does not depend on what is in them.
func standIns(t *testing.T, platforms ...v1.Platform) []image.Binary {
	t.Helper()
	binaries := make([]image.Binary, len(platforms))
	for i, platform := range platforms {
		file := filepath.Join(t.TempDir(), "opgate")
		if err := os.WriteFile(file, []byte(platform.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		binaries[i] = image.Binary{Platform: platform, File: file}
	}
	return binaries
}

func parseTag(t *testing.T, s string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(s, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// baseImage is one layer that states about itself what images of distroless do.
func baseImage(t *testing.T, platform v1.Platform, mediaType types.MediaType) v1.Image {
	t.Helper()
	img, err := random.Image(512, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config.Env = []string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}
	config.Config.WorkingDir = "/home/nonroot"
	config.Config.Cmd = []string{"/bin/sh"}
	config.Config.Labels = map[string]string{"org.opencontainers.image.version": "12"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return mutate.MediaType(img, mediaType)
}

// TestBaseAndPush builds for two platforms on a base from a registry, pushes, and looks at what came back.
func TestBaseAndPush(t *testing.T) {
	for _, mediaType := range []types.MediaType{types.OCIManifestSchema1, types.DockerManifestSchema2} {
		t.Run(string(mediaType), func(t *testing.T) {
			host := startRegistry(t)
			bases := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
			for _, platform := range []v1.Platform{arm64, amd64} {
				bases = mutate.AppendManifests(bases, mutate.IndexAddendum{
					Add: baseImage(t, platform, mediaType), Descriptor: v1.Descriptor{Platform: &platform},
				})
			}
			baseTag := parseTag(t, host+"/base:nonroot")
			if err := remote.WriteIndex(baseTag, bases); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			base, err := image.FindBase(t.Context(), baseTag.String(), &said)
			if err != nil {
				t.Fatal(err)
			}
			if want := "base is " + baseTag.String() + "@" +
				digest(t, bases).String(); !strings.Contains(said.String(), want) {
				t.Errorf("said %q, want %q", said.String(), want)
			}
			// The tag moves on before the layers are pulled.
			if err := remote.WriteIndex(baseTag, empty.Index); err != nil {
				t.Fatal(err)
			}

			index, err := image.Assemble(base, standIns(t, amd64, arm64), meta)
			if err != nil {
				t.Fatal(err)
			}
			tag := parseTag(t, host+"/mirror/opgate:v0.0.0-test")
			if err := image.Push(t.Context(), index, tag); err != nil {
				t.Fatal(err)
			}
			// As Helm's image.digest has it.
			pulled, err := remote.Index(tag.Context().Digest(digest(t, index).String()))
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(pulled); err != nil {
				t.Errorf("what was pulled is not valid: %v", err)
			}
			manifest, err := pulled.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			if len(manifest.Manifests) != 2 ||
				manifest.Annotations["org.opencontainers.image.version"] != meta.Version ||
				manifest.Annotations["org.opencontainers.image.base.name"] != baseTag.String() ||
				manifest.Annotations["org.opencontainers.image.base.digest"] != digest(t, bases).String() {
				t.Errorf("the index is %+v, want two images, the version, and the base by name and digest", manifest)
			}
			for _, platform := range []v1.Platform{amd64, arm64} {
				checkOnBase(t, pulled, bases, platform)
			}
		})
	}
}

// checkOnBase looks at one image of an index that was built on bases.
func checkOnBase(t *testing.T, index, bases v1.ImageIndex, platform v1.Platform) {
	t.Helper()
	img, err := image.ForPlatform(index, platform)
	if err != nil {
		t.Fatal(err)
	}
	base, err := image.ForPlatform(bases, platform)
	if err != nil {
		t.Fatal(err)
	}
	got, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want, err := base.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Layers) != 2 || got.Layers[0].Digest != want.Layers[0].Digest {
		t.Errorf("%s: layers are %+v, want that of the base, %s, and one more", platform, got.Layers,
			want.Layers[0].Digest)
	}
	if got.MediaType == types.DockerManifestSchema2 && got.Layers[1].MediaType != types.DockerLayer ||
		got.MediaType == types.OCIManifestSchema1 && got.Layers[1].MediaType != types.OCILayer {
		t.Errorf("%s: a layer of type %s in a manifest of type %s", platform, got.Layers[1].MediaType, got.MediaType)
	}
	if _, contents := files(t, img); string(contents[image.Path]) != platform.String() {
		t.Errorf("%s: the binary is %q", platform, contents[image.Path])
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := v1.Config{
		Env:        []string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		WorkingDir: "/home/nonroot",
		User:       image.User,
		Entrypoint: []string{"/opgate-server"},
		Cmd:        []string{"serve"},
	}
	wantConfig.Labels = config.Config.Labels
	if diff := cmp.Diff(wantConfig, config.Config); diff != "" {
		t.Errorf("%s: the configuration is not as wanted (-want +got):\n%s", platform, diff)
	}
	if version := config.Config.Labels["org.opencontainers.image.version"]; version != meta.Version {
		t.Errorf("%s: the image says that it is version %q, want %q and not that of the base", platform, version,
			meta.Version)
	}
}

// TestBaseThatCannotBePulled makes sure that no image loses its base because a registry was away.
func TestBaseThatCannotBePulled(t *testing.T) {
	host := startRegistry(t)
	_, err := image.FindBase(t.Context(), host+"/base:nonroot", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "pull base image "+host+"/base:nonroot") ||
		!strings.Contains(err.Error(), "BASE=scratch") {
		t.Errorf("got error %v, want it to name the image and what would do without", err)
	}
}

func TestBaseForAnotherPlatform(t *testing.T) {
	tag := parseTag(t, startRegistry(t)+"/base:arm64")
	if err := remote.Write(tag, baseImage(t, arm64, types.OCIManifestSchema1)); err != nil {
		t.Fatal(err)
	}
	base, err := image.FindBase(t.Context(), tag.String(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = image.Assemble(base, standIns(t, amd64), meta)
	if err == nil || !strings.Contains(err.Error(), "is for linux/arm64 only") {
		t.Errorf("got error %v, want it to say what the base is for", err)
	}
}

func TestWriteLayoutReplacesLayoutsOnly(t *testing.T) {
	base, err := image.FindBase(t.Context(), image.Scratch, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	for range 2 {
		index, err := image.Assemble(base, standIns(t, local), meta)
		if err != nil {
			t.Fatal(err)
		}
		if err := image.WriteLayout(dir, index, meta.Version); err != nil {
			t.Fatal(err)
		}
		// There is one index in it, also the second time.
		if _, img := written(t, dir); validate.Image(img) != nil {
			t.Error(validate.Image(img))
		}
	}
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := image.WriteLayout(precious, empty.Index, meta.Version); err == nil ||
		!strings.Contains(err.Error(), "holds something else") {
		t.Errorf("got error %v, want it to leave the directory alone", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "thesis.txt")); err != nil {
		t.Error(err)
	}
}
