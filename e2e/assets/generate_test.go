package assets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
)

// upstream is what a release of Kubernetes requires: modules in directories inside it, which are published from there.
const upstream = `module k8s.io/kubernetes

go 1.23.0

godebug default=go1.23

require k8s.io/api v0.0.0

require example.com/other v1.2.3

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	example.com/other => example.com/fork v1.2.4
)
`

// TestFindKubernetesVersion builds another version than the pinned one. The go command is a stand-in for the compiler;
// the real one has no part in what is generated.
func TestFindKubernetesVersion(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "upstream.mod"), []byte(upstream), 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
case $1 in
env|list) exit 0 ;;
mod) printf '{"GoMod": "%%s"}' '%s'; exit 0 ;;
esac
case "$*" in *-mod=mod*k8s.io/kubernetes/cmd/kube-apiserver) ;; *) echo "unexpected $*" >&2; exit 1 ;; esac
while [ "$1" != -o ]; do shift; done
echo '#!/bin/sh' >"$2"
chmod +x "$2"
echo changed >>go.mod
`, filepath.Join(dir, "upstream.mod"))
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	base := fake(t, 0o755, "kube-apiserver", "etcd", "kubectl")
	t.Setenv("KUBEBUILDER_ASSETS", base)

	found, err := assets.FindKubernetesVersion(t.Context(), "v1.32.13", assets.Options{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		found.KubeAPIServer(): filepath.Join(filepath.Dir(found.Dir), "kube-apiserver"),
		found.Etcd():          filepath.Join(base, "etcd"),
		found.Kubectl():       filepath.Join(base, "kubectl"),
	} {
		if got, err := filepath.EvalSymlinks(path); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", path, got, err, want)
		}
	}
	generated, err := os.ReadFile(filepath.Join(cache, "modules", "kubernetes-v1.32.13", "generated.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"godebug default=go1.23\n", "require k8s.io/kubernetes v1.32.13\n",
		"replace k8s.io/api => k8s.io/api v0.32.13\n",
		"replace example.com/other => example.com/fork v1.2.4\n",
	} {
		if !strings.Contains(string(generated), want) {
			t.Errorf("the generated module is\n%s\nwant %q in it", generated, want)
		}
	}

	// The go command has completed go.mod meanwhile, and nothing is built again.
	if again, err := assets.FindKubernetesVersion(t.Context(), "v1.32.13",
		assets.Options{CacheDir: cache}); err != nil || again != found {
		t.Errorf("the second time: got %+v, %v, want %+v", again, err, found)
	}
	if built, err := filepath.Glob(filepath.Join(cache, "kube-apiserver-v1.32.13-*.lock")); err != nil ||
		len(built) != 1 {
		t.Errorf("built %v (%v), want one", built, err)
	}
}

// TestFindVersionThatIsNotPublished states what the module proxy answered.
func TestFindVersionThatIsNotPublished(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
[ "$1" = mod ] && echo '{"Error": "k8s.io/kubernetes@v1.31.99: 404 Not Found"}' && exit 1
exit 0
`
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("KUBEBUILDER_ASSETS", fake(t, 0o755, "kube-apiserver", "etcd", "kubectl"))
	_, err := assets.FindKubernetesVersion(t.Context(), "v1.31.99", assets.Options{CacheDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "k8s.io/kubernetes@v1.31.99: 404 Not Found") {
		t.Errorf("got error %v, want the proxy's", err)
	}
}

// TestOLMVariable takes OLM and its resource definitions from a directory, and refuses one that lacks a binary.
func TestOLMVariable(t *testing.T) {
	dir := fake(t, 0o755, "catalog", "olm", "package-server", "opm")
	t.Setenv(assets.OLMVariable, dir)
	found, err := assets.FindOLM(t.Context(), assets.Options{CacheDir: t.TempDir()})
	if err != nil || found.OPM != filepath.Join(dir, "opm") || found.Operator != filepath.Join(dir, "olm") ||
		assets.OLMCRDs() != filepath.Join(dir, "crds") {
		t.Errorf("got %+v and definitions in %s, %v", found, assets.OLMCRDs(), err)
	}
	if err := os.Remove(filepath.Join(dir, "opm")); err != nil {
		t.Fatal(err)
	}
	_, err = assets.FindOLM(t.Context(), assets.Options{CacheDir: t.TempDir()})
	if want := assets.OLMVariable + "=" + dir + ": no executable opm there"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
