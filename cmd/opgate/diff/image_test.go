package diff

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"sigs.k8s.io/yaml"
)

// annotations are metadata/annotations.yaml of a bundle of package etcd.
const annotations = `annotations:
  operators.operatorframework.io.bundle.package.v1: etcd
  operators.operatorframework.io.bundle.channels.v1: stable
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
`

// requiresVault are metadata/dependencies.yaml of a bundle that needs another package.
const requiresVault = "dependencies:\n- type: olm.package\n  value: {packageName: vault, version: '>=1.0.0'}\n"

// bundleFiles are the files of a bundle with a ClusterServiceVersion.
func bundleFiles(t *testing.T, csv object) map[string]string {
	t.Helper()
	manifest, err := yaml.Marshal(csv)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"manifests/etcd.clusterserviceversion.yaml": string(manifest),
		"metadata/annotations.yaml": annotations}
}

func with(files map[string]string, name, content string) map[string]string {
	files[name] = content
	return files
}

// imageOf makes an image of one layer.
func imageOf(t *testing.T, files map[string]string, links ...string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	write := func(header *tar.Header, content string) {
		if err := out.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, content); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range files {
		write(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}, content)
	}
	for _, link := range links {
		write(&tar.Header{Name: link, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, "")
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// startRegistry starts a registry and returns a function that pushes an image and returns its reference.
func startRegistry(t *testing.T) func(name string, image v1.Image) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	return func(repository string, image v1.Image) string {
		reference := strings.TrimPrefix(server.URL, "http://") + "/" + repository
		ref, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image); err != nil {
			t.Fatal(err)
		}
		return reference
	}
}

// directoryOf writes files into a directory.
func directoryOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// layoutOf writes an image as an OCI layout.
func layoutOf(t *testing.T, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	for _, image := range images {
		if err == nil {
			err = l.AppendImage(image)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBundles compares bundles wherever they are. The digest is that of a catalog which has the manifests, and so that
// of the plan.
func TestBundles(t *testing.T) {
	push := startRegistry(t)
	v1CSV, v2CSV := csv("etcd.v1", "1.0.0", "get", "configmaps"), csv("etcd.v2", "2.0.0", "list", "secrets")
	before, after := bundleFiles(t, v1CSV), with(bundleFiles(t, v2CSV), "metadata/dependencies.yaml", requiresVault)
	complete := catalogOf(t, entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0", manifests: []any{v1CSV}},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0", manifests: []any{v2CSV}, requires: "vault"})
	want, _ := compared(t, "--catalog", complete, "--from", "etcd.v1", "--to", "etcd.v2")
	if want.Digest == "" || len(want.Differences) < 2 {
		t.Fatalf("the catalog has no digest: %+v", want)
	}
	from, to := push("etcd-bundle:v1", imageOf(t, before)), push("etcd-bundle:v2", imageOf(t, after))
	metadata := object{"installModes": []object{{"type": "OwnNamespace", "supported": true}}}
	described := catalogOf(t, entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0", metadata: metadata, image: from},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0", metadata: metadata, image: to, requires: "vault"})
	for where, args := range map[string][]string{
		"directories": {"--from-bundle", directoryOf(t, before), "--bundle", directoryOf(t, after)},
		"OCI layouts": {"--from-bundle", layoutOf(t, imageOf(t, before)), "--bundle",
			layoutOf(t, imageOf(t, after))},
		"a registry":                  {"--from-bundle", from, "--bundle", to},
		"a catalog without manifests": {"--catalog", described, "--from", "etcd.v1", "--to", "etcd.v2", "--pull"},
	} {
		if got, code := compared(t, args...); got.Digest != want.Digest || code != exitDifferent {
			t.Errorf("%s: exit code %d, digest %q, want %q: %+v", where, code, got.Digest, want.Digest, got)
		}
	}
	if got, code := compared(t, "--bundle", to); code != exitDifferent || got.From != "" || got.Digest == "" ||
		got.Digest == want.Digest {
		t.Errorf("a first installation: exit code %d: %+v", code, got)
	}
	if got, _ := compared(t, "--catalog", described, "--from", "etcd.v1", "--to", "etcd.v2"); got.Digest != "" {
		t.Errorf("without --pull there is a digest: %+v", got)
	}
}

// TestHostileBundles reads what is no bundle, or has more than is read.
func TestHostileBundles(t *testing.T) {
	push := startRegistry(t)
	good := func() map[string]string { return bundleFiles(t, csv("etcd.v1", "1.0.0", "get", "configmaps")) }
	many := good()
	for i := range maxBundleFiles {
		many[fmt.Sprintf("manifests/%d.yaml", i)] = "kind: ConfigMap"
	}
	aliases := "a: &a [" + strings.Repeat("x,", 1<<10) + "]\n"
	for c := 'b'; c < 'i'; c++ {
		aliases += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 16))
	}
	linked := directoryOf(t, good())
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "manifests", "passwd.yaml")); err != nil {
		t.Fatal(err)
	}
	for why, source := range map[string]string{
		"more than 67108864 bytes": layoutOf(t,
			imageOf(t, with(good(), "usr/large", strings.Repeat("x", maxImage)))),
		"more than 33554432 bytes": layoutOf(t,
			imageOf(t, with(good(), "manifests/large.yaml", strings.Repeat("x", maxBundle+1)))),
		"or 2000 files":                     directoryOf(t, many),
		"manifests/aliases.yaml: too large": directoryOf(t, with(good(), "manifests/aliases.yaml", aliases)),
		"passwd.yaml is not a regular":      linked,
		"manifests/link is not a regula":    layoutOf(t, imageOf(t, good(), "manifests/link")),
		"broken.yaml cannot be read":        directoryOf(t, with(good(), "manifests/broken.yaml", "a: [")),
		"empty.yaml cannot be read":         directoryOf(t, with(good(), "manifests/empty.yaml", "# nothing\n")),
		"has one ClusterServiceVersion": directoryOf(t,
			with(good(), "manifests/second.yaml", "kind: ClusterServiceVersion\nmetadata: {name: etcd.v2}")),
		"no files in /manifests":      layoutOf(t, imageOf(t, map[string]string{"etc/passwd": "root"})),
		"there is no folder metadata": directoryOf(t, map[string]string{"manifests/a.yaml": "kind: A"}),
		"it is a file":                filepath.Join(linked, "metadata", "annotations.yaml"),
		"the index has 2 images":      layoutOf(t, imageOf(t, good()), imageOf(t, map[string]string{"a": "b"})),
		"the index has no image":      layoutOf(t),
		"neither a directory nor":     "no such directory",
		"NAME_UNKNOWN": strings.TrimSuffix(push("etcd-bundle:v1", imageOf(t, good())),
			"etcd-bundle:v1") + "other:v1",
	} {
		out, message, code := run(t, "--bundle", source)
		if code != exitUnusable || !strings.Contains(message, why) || out != "" {
			t.Errorf("exit code %d, %q, want %q", code, message, why)
		}
		if len(message) > 2000 {
			t.Errorf("the message has %d bytes", len(message))
		}
	}
	catalog := catalogOf(t, entry{name: "etcd.v9", pkg: "etcd", version: "9.0.0",
		image: push("etcd-bundle:v9", imageOf(t, good()))},
		entry{name: "etcd.v8", pkg: "etcd", version: "8.0.0"})
	for why, args := range map[string][]string{
		"has etcd.v1 of package etcd, and the catalog has it as etcd.v9": {"--catalog", catalog, "--to", "etcd.v9",
			"--pull"},
		"--pull are for --catalog":              {"shop/install-x7", "--pull"},
		"--bundle is missing":                   {"--from-bundle", linked},
		"--bundle compares two bundles":         {"--bundle", linked, "--catalog", catalog},
		"--bundle compares two bundles: leave ": {"--bundle", linked, "shop/install-x7"},
	} {
		if _, message, code := run(t, args...); code != exitUnusable || !strings.Contains(message, why) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, message, why)
		}
	}
}
