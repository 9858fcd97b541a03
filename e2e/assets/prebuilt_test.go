package assets_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"github.com/opgate/opgate/e2e/assets"
)

// publish serves an index and an archive in the form of the published ones, as setup-envtest reads them. The checksum
// is that of what is summed.
func publish(t *testing.T, version string, summed func(archive []byte) []byte) (index string) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		content := "#!/bin/sh\necho " + name + "\n"
		header := &tar.Header{Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(content)),
			Typeflag: tar.TypeReg}
		if err := files.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, closer := range []interface{ Close() error }{files, zipped} {
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha512.Sum512(summed(archive.Bytes()))
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "releases:\n  %s:\n    %s:\n      hash: %s\n      selfLink: %s/%s\n", version, name,
			hex.EncodeToString(sum[:]), server.URL, name)
	})
	mux.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive.Bytes()) })
	return server.URL + "/index.yaml"
}

func whole(archive []byte) []byte { return archive }

// pinned is the version of Kubernetes that tests run on.
func pinned(t *testing.T) string {
	t.Helper()
	version, _, err := assets.PinnedVersions()
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// otherPatch is a patch release of the pinned minor version that does not exist.
func otherPatch(t *testing.T) string {
	t.Helper()
	return semver.MajorMinor(pinned(t)) + ".99"
}

// withoutCompiler puts a go command on PATH that runs tools, such as the real setup-envtest, and compiles nothing.
func withoutCompiler(t *testing.T) {
	t.Helper()
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncase $1 in env|tool) exec '" + compiler +
		"' \"$@\" ;; esac\necho 'main.go:1: something is wrong' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestPrebuilt downloads another patch release of the pinned minor version with the real setup-envtest, and not again.
func TestPrebuilt(t *testing.T) {
	withoutCompiler(t)
	options := assets.Options{CacheDir: t.TempDir(), AnyPatch: true, Index: publish(t, otherPatch(t), whole)}
	found, err := assets.Find(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(found.Origin, otherPatch(t)) || filepath.Dir(found.Dir) != options.CacheDir {
		t.Errorf("got %+v, want %s in %s", found, otherPatch(t), options.CacheDir)
	}
	out, err := exec.CommandContext(t.Context(), found.KubeAPIServer()).Output()
	if err != nil || string(out) != "kube-apiserver\n" {
		t.Errorf("the binary prints %q, %v", out, err)
	}
	options.Index = unreachable
	if again, err := assets.Find(t.Context(), options); err != nil || again != found {
		t.Errorf("the second time: got %+v, %v, want %+v", again, err, found)
	}
}

// TestPrebuiltIsNotTaken: what is out of reach, of another version than tests run on, or not what the index states is
// built instead.
func TestPrebuiltIsNotTaken(t *testing.T) {
	tests := map[string]struct {
		options assets.Options
		says    string
	}{
		"out of reach": {
			options: assets.Options{AnyPatch: true, Index: unreachable},
			says:    "connection refused",
		},
		"another answer": {
			options: assets.Options{AnyPatch: true,
				Index: strings.TrimSuffix(publish(t, otherPatch(t), whole), "index.yaml") + "moved.yaml"},
			says: "404 Not Found",
		},
		"another patch release": {
			options: assets.Options{Index: publish(t, otherPatch(t), whole)},
			says:    strings.TrimPrefix(pinned(t), "v"),
		},
		"a forged archive": {
			options: assets.Options{AnyPatch: true,
				Index: publish(t, otherPatch(t), func([]byte) []byte { return []byte("what was published") })},
			says: "checksum mismatch",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withoutCompiler(t)
			var log strings.Builder
			test.options.CacheDir, test.options.Log = t.TempDir(), &log
			_, err := assets.Find(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), "build kube-apiserver: exit status 1") {
				t.Errorf("got error %v, want the compiler's", err)
			}
			said := log.String()
			if i := strings.Index(said, "no prebuilt binaries of Kubernetes "+pinned(t)+" ("); i < 0 ||
				!strings.Contains(said[i:], test.says) {
				t.Errorf("log is %q, want it to say why nothing prebuilt is taken: %q", said, test.says)
			}
			if left, err := filepath.Glob(filepath.Join(test.options.CacheDir, ".*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}
