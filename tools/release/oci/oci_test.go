package oci_test

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/opgate/opgate/tools/release/oci"
)

func signatureTag(digest v1.Hash) string { return digest.Hex + ".sig" }

// TestLayout keeps an image, a signature of it under a tag, and an artifact about it, and pushes them.
func TestLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	layout, err := oci.NewLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	descriptor, err := partial.Descriptor(img)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := oci.Artifact{Data: []byte("a signature"), DataType: "text/plain"}.Image()
	if err != nil {
		t.Fatal(err)
	}
	about, err := oci.Artifact{Type: "text/about", Data: []byte("about"), DataType: "text/plain",
		Subject: descriptor}.Image()
	if err != nil {
		t.Fatal(err)
	}
	for tag, img := range map[string]v1.Image{"v1": img, signatureTag(descriptor.Digest): signature, "": about} {
		if err := layout.Add(img, tag); err != nil {
			t.Fatal(err)
		}
	}

	if layout, err = oci.OpenLayout(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := layout.Main(signatureTag); err != nil || got.Digest != descriptor.Digest {
		t.Errorf("the main entry is %v (%v), want %s", got, err, descriptor.Digest)
	}
	if _, err := layout.Find("v2"); err == nil {
		t.Error("there is a v2")
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/example")
	if err != nil {
		t.Fatal(err)
	}
	if err := layout.Push(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"v1", signatureTag(descriptor.Digest)} {
		if _, err := remote.Head(repository.Tag(tag)); err != nil {
			t.Error(err)
		}
	}
	referrers, err := remote.Referrers(repository.Digest(descriptor.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	want, err := about.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want {
		t.Errorf("what refers to the image is %+v, want %s", manifest, want)
	}

	if err := layout.Add(img, "v2"); err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Main(signatureTag); err == nil || !strings.Contains(err.Error(), "holds 2") {
		t.Errorf("got error %v, want it to count the versions", err)
	}
	if _, err := oci.OpenLayout(t.TempDir()); err == nil {
		t.Error("an empty directory is a layout")
	}
}
