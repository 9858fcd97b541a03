package assets_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
)

// fake writes executables, or plain files, that look like assets.
func fake(t *testing.T, mode os.FileMode, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindTakesKubebuilderAssets(t *testing.T) {
	dir := fake(t, 0o755, "kube-apiserver", "etcd", "kubectl")
	t.Setenv("KUBEBUILDER_ASSETS", dir)

	found, err := assets.Find(t.Context(), assets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{found.KubeAPIServer(), found.Etcd(), found.Kubectl()} {
		if filepath.Dir(path) != dir {
			t.Errorf("got %s, want a file in %s", path, dir)
		}
	}
}

func TestFindRefusesWrongKubebuilderAssets(t *testing.T) {
	tests := map[string]struct {
		dir     string
		missing string
	}{
		"no such directory": {
			dir:     filepath.Join(t.TempDir(), "nowhere"),
			missing: "kube-apiserver, etcd, kubectl",
		},
		"one binary is not there": {
			dir:     fake(t, 0o755, "kube-apiserver", "kubectl"),
			missing: "etcd",
		},
		"files are not executable": {
			dir:     fake(t, 0o644, "kube-apiserver", "etcd", "kubectl"),
			missing: "kube-apiserver, etcd, kubectl",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", test.dir)
			_, err := assets.Find(t.Context(), assets.Options{})
			want := "KUBEBUILDER_ASSETS=" + test.dir + ": no executable " + test.missing + " there"
			if err == nil || err.Error() != want {
				t.Fatalf("got error %v\nwant %s", err, want)
			}
		})
	}
}

// unreachable is an index that no server answers for.
const unreachable = "http://127.0.0.1:1/not-served"

// TestFindReportsTheCompiler breaks the build on purpose.
func TestFindReportsTheCompiler(t *testing.T) {
	withoutCompiler(t)
	cache := t.TempDir()
	var log strings.Builder
	_, err := assets.Find(t.Context(), assets.Options{Log: &log, CacheDir: cache, Index: unreachable})
	if err == nil || !strings.Contains(err.Error(), "build kube-apiserver: exit status 1") ||
		!strings.Contains(err.Error(), "main.go:1: something is wrong") {
		t.Errorf("got error %v, want it to name the binary and quote the compiler", err)
	}
	if want := "building kube-apiserver 1/3 from source"; !strings.Contains(log.String(), want) {
		t.Errorf("log is %q, want it to say %q", log.String(), want)
	}
	left, err := filepath.Glob(filepath.Join(cache, ".build-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
