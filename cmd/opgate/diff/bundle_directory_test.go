package diff

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestBundles compares bundles in directories. The digest is that of a catalog which has the manifests, and so that of
// the plan.
func TestBundles(t *testing.T) {
	v1CSV, v2CSV := csv("etcd.v1", "1.0.0", "get", "configmaps"), csv("etcd.v2", "2.0.0", "list", "secrets")
	before := directoryOf(t, bundleFiles(t, v1CSV))
	after := directoryOf(t, with(bundleFiles(t, v2CSV), "metadata/dependencies.yaml", requiresVault))
	complete := catalogOf(t, entry{name: "etcd.v1", pkg: "etcd", version: "1.0.0", manifests: []any{v1CSV}},
		entry{name: "etcd.v2", pkg: "etcd", version: "2.0.0", manifests: []any{v2CSV}, requires: "vault"})
	want, _ := compared(t, "--catalog", complete, "--from", "etcd.v1", "--to", "etcd.v2")
	if want.Digest == "" || len(want.Differences) < 2 {
		t.Fatalf("the catalog has no digest: %+v", want)
	}
	if got, code := compared(t, "--from-bundle", before, "--bundle", after); got.Digest != want.Digest ||
		code != exitDifferent {
		t.Errorf("exit code %d, digest %q, want %q: %+v", code, got.Digest, want.Digest, got)
	}
	if got, code := compared(t, "--bundle", after); code != exitDifferent || got.From != "" || got.Digest == "" ||
		got.Digest == want.Digest {
		t.Errorf("a first installation: exit code %d: %+v", code, got)
	}
}

// TestHostileBundles reads what is no bundle, or has more than is read.
func TestHostileBundles(t *testing.T) {
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
		"more than 33554432 bytes": directoryOf(t,
			with(good(), "manifests/large.yaml", strings.Repeat("x", maxBundle+1))),
		"or 2000 files":                 directoryOf(t, many),
		"manifests/aliases.yaml":        directoryOf(t, with(good(), "manifests/aliases.yaml", aliases)),
		"passwd.yaml is not a regular":  linked,
		"are read: each has an object":  directoryOf(t, with(good(), "manifests/broken.yaml", "a: [")),
		"1 of 2 files in manifests are": directoryOf(t, with(good(), "manifests/empty.yaml", "# nothing\n")),
		"and one a ClusterServiceVersion": directoryOf(t,
			with(good(), "manifests/second.yaml", "kind: ClusterServiceVersion\nmetadata: {name: etcd.v2}")),
		"name a directory with folders": directoryOf(t, map[string]string{"manifests/a.yaml": "kind: A"}),
		"not a directory":               filepath.Join(linked, "metadata", "annotations.yaml"),
		"no such file":                  "quay.io/example/etcd-bundle:v1",
	} {
		out, message, code := run(t, "--bundle", source)
		if code != exitUnusable || !strings.Contains(message, why) || out != "" || len(message) > 2000 {
			t.Errorf("exit code %d, %q, want %q", code, message, why)
		}
	}
	for why, args := range map[string][]string{
		"--bundle is missing":                   {"--from-bundle", linked},
		"--bundle compares two bundles":         {"--bundle", linked, "--catalog", "catalog"},
		"--bundle compares two bundles: leave ": {"--bundle", linked, "shop/install-x7"},
	} {
		if _, message, code := run(t, args...); code != exitUnusable || !strings.Contains(message, why) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, message, why)
		}
	}
}
