package image_test

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/tools/image"
)

var (
	// local is a platform whose binaries this machine runs, if it runs Linux.
	local = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

	meta = image.Metadata{Version: "v0.0.0-test", Revision: "0123abcd", Created: time.Unix(1_800_000_000, 0)}
)

// command builds cmd/image and returns a function that runs it with some more environment and returns what it prints,
// without the line end. As a process of its own it does not bear the cost of the race detector for each byte that it
// compresses.
func command(t *testing.T) func(env []string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	if out, err := gotool.Command(t.Context(), ".", t.TempDir(), "build", "-o", file,
		"../cmd/image").CombinedOutput(); err != nil {
		t.Fatalf("build cmd/image: %v\n%s", err, out)
	}
	return func(env []string, args ...string) string {
		t.Helper()
		args = append(args, "--platform="+local.String(), "--version="+meta.Version,
			"--created="+strconv.FormatInt(meta.Created.Unix(), 10))
		cmd := exec.CommandContext(t.Context(), file, args...)
		cmd.Env = append(os.Environ(), env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("image %v: %v\n%s", args, err, stderr.String())
		}
		return strings.TrimSuffix(string(out), "\n")
	}
}

// written is what the layout in dir holds for this machine, once it has been found to be valid.
func written(t *testing.T, dir string) (v1.ImageIndex, v1.Image) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	// Fast leaves out the contents of layers, which are looked at below and take long with the race detector.
	if err := validate.Index(top, validate.Fast); err != nil {
		t.Fatalf("the layout is not valid: %v", err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != meta.Version {
		t.Fatalf("the layout holds %+v, want one index by the name of the version", manifest.Manifests)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.ForPlatform(index, local)
	if err != nil {
		t.Fatal(err)
	}
	return index, img
}

// files are the entries of all layers.
func files(t *testing.T, img v1.Image) (headers []*tar.Header, contents map[string][]byte) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	contents = map[string][]byte{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(content); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			headers = append(headers, header)
			if contents["/"+header.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return headers, contents
}

// TestImage looks at an image of the checkout as a registry or a node would: through its layout on disk.
func TestImage(t *testing.T) {
	run := command(t)
	temp := t.TempDir()
	dir, archive := filepath.Join(temp, "image"), filepath.Join(temp, "opgate.tar")
	reference := run(nil, "build", "--base="+image.Scratch, "--revision="+meta.Revision, "--layout="+dir,
		"--archive="+archive)
	index, img := written(t, dir)
	headers, contents := files(t, img)

	t.Run("reference", func(t *testing.T) {
		if want := image.Name + ":" + meta.Version + "@" + digest(t, index).String(); reference != want {
			t.Errorf("the command prints %q, want %q", reference, want)
		}
	})
	t.Run("config", func(t *testing.T) {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		want := v1.Config{
			User:       "65532:65532",
			Entrypoint: []string{"/opgate-server"},
			Cmd:        []string{"serve"},
			WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":       "opgate",
				"org.opencontainers.image.description": "An admission gate for operators installed by the Operator Lifecycle Manager",
				"org.opencontainers.image.source":      "https://github.com/opgate/opgate",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.version":     "v0.0.0-test",
				"org.opencontainers.image.revision":    "0123abcd",
				"org.opencontainers.image.created":     "2027-01-15T08:00:00Z",
			},
		}
		if diff := cmp.Diff(want, config.Config); diff != "" {
			t.Errorf("the configuration is not as wanted (-want +got):\n%s", diff)
		}
		if !config.Created.Equal(meta.Created) || config.OS != local.OS || config.Architecture != local.Architecture {
			t.Errorf("created %s for %s/%s, want %s for %s", config.Created, config.OS, config.Architecture,
				meta.Created, local)
		}
	})
	t.Run("files", func(t *testing.T) {
		for _, header := range headers {
			if header.Name != image.Server || header.Typeflag != tar.TypeReg || header.Mode != 0o555 ||
				header.Uid != 0 || header.Gid != 0 {
				t.Errorf("the image holds %s with mode %o of %d:%d, want nothing but opgate-server, owned by root and not writable",
					header.Name, header.Mode, header.Uid, header.Gid)
			}
		}
		if len(headers) != 1 {
			t.Errorf("the image holds %d files, want 1", len(headers))
		}
	})
	t.Run("binary", func(t *testing.T) { checkBinary(t, contents[image.Path]) })
	t.Run("archive", func(t *testing.T) { checkArchive(t, archive, img) })
	// Go settings of the user make no difference.
	env := []string{"GOFLAGS=-tags=opgate_image_test", "GOAMD64=v3", "CGO_ENABLED=1"}
	t.Run("bill", func(t *testing.T) {
		bill := filepath.Join(temp, "opgate.spdx.json")
		run(env, "sbom", "--output="+bill)
		checkSBOM(t, bill, contents[image.Path])
	})
	t.Run("pushed again", func(t *testing.T) {
		tag := parseTag(t, startRegistry(t)+"/team/opgate:"+meta.Version)
		again := run(env, "build", "--base="+image.Scratch, "--revision="+meta.Revision, "--layout="+dir,
			"--push="+tag.String())
		if want := tag.String() + "@" + digest(t, index).String(); again != want {
			t.Errorf("built again it is %s, want %s", again, want)
		}
		pulled, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(pulled, validate.Fast); err != nil || digest(t, pulled) != digest(t, index) {
			t.Errorf("pulled %s (%v), want %s", digest(t, pulled), err, digest(t, index))
		}
	})
}

func digest(t *testing.T, index v1.ImageIndex) v1.Hash {
	t.Helper()
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// checkBinary runs the binary of the image.
func checkBinary(t *testing.T, data []byte) {
	parsed, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range parsed.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a segment %s: an empty image has neither a dynamic linker nor libraries",
				program.Type)
		}
	}
	// Templates may name time zones, and an empty image has no /usr/share/zoneinfo.
	if !bytes.Contains(data, []byte("Europe/Berlin")) {
		t.Error("the binary does not bring time zones along")
	}
	file := filepath.Join(t.TempDir(), "opgate")
	if err := os.WriteFile(file, data, 0o555); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), file, "version").CombinedOutput()
	if err != nil || string(out) != "opgate-server v0.0.0-test\n" {
		t.Errorf("opgate-server version: %v, prints %q", err, out)
	}
}

// checkSBOM compares the bill with what the binary in the image states about itself.
func checkSBOM(t *testing.T, file string, data []byte) {
	document, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = document.Close() }()
	bill, err := spdxjson.Read(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(bill); err != nil {
		t.Error(err)
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"github.com/opgate/opgate v0.0.0-test", "stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want = append(want, dep.Path+" "+dep.Version)
	}
	var got []string
	for _, pkg := range bill.Packages {
		got = append(got, pkg.PackageName+" "+pkg.PackageVersion)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the bill is not what the binary says (-binary +bill):\n%s", diff)
	}
	for _, path := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "go.uber.org/zap"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, path+" v") }) {
			t.Errorf("the bill does not list %s", path)
		}
	}
	sum, _, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got := bill.Packages[0].PackageChecksums; len(got) != 1 ||
		got[0] != (common.Checksum{Algorithm: common.SHA256, Value: sum.Hex}) {
		t.Errorf("the bill is for a binary with %v, want %s", got, sum.Hex)
	}
}

// checkArchive reads the archive as "docker load" does.
func checkArchive(t *testing.T, file string, want v1.Image) {
	tag := parseTag(t, image.Name+":"+meta.Version)
	loaded, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	wantID, err := want.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if gotID, err := loaded.ConfigName(); err != nil || gotID != wantID {
		t.Errorf("the archive holds image %s (%v), want %s", gotID, err, wantID)
	}
}
