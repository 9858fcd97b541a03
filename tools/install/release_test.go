package install_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
	"github.com/opgate/opgate/e2e/node"
	"github.com/opgate/opgate/tools/image"
	"github.com/opgate/opgate/tools/release"
	"github.com/opgate/opgate/tools/release/helmchart"
	"github.com/opgate/opgate/tools/release/signing"
)

// releaseVersion is the version of the release that is built here.
const releaseVersion = "v9.8.7-rc.1"

// TestInstallRelease builds a release, pushes it to a registry, verifies it as users do, and installs the chart and the
// image that the registry then holds. Its cluster is its own, since its pods run that image.
func TestInstallRelease(t *testing.T) {
	t.Parallel()
	dir, verifier := buildRelease(t)
	server := startReleaseRegistry(t)
	published, err := release.Push(t.Context(), dir, server.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("files", func(t *testing.T) { wantFilesVerified(t, dir, verifier) })
	t.Run("registry", func(t *testing.T) { server.wantVerified(t, published, verifier) })

	binary := pullBinary(t, published)
	s := site{&install.Site{Env: harness.StartUnchecked(t,
		cluster.Options{Bare: true, Node: true, Audit: true, Log: os.Stderr})}}
	t.Cleanup(func() {
		if t.Failed() {
			s.Logs(t)
		}
	})
	// The node has the image of this digest, and no other.
	s.Node, err = node.Start(t.Context(), s.Cluster, node.Options{
		Images: map[string]node.Program{install.Repository + "@" + published.Image.DigestStr(): node.Opgate(binary)},
		Log:    os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, s.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	s.RunHelm(t, "install", "opgate", "oci://"+server.host+"/charts/opgate", "--version",
		strings.TrimPrefix(releaseVersion, "v"), "--plain-http",
		"--create-namespace", "--wait", "--set", install.Quick())
	s.WantGate(t, s.Govern(t))
	if got := s.Admin(t, "get", "deployment", "-n", cluster.OpgateNamespace, "opgate", "-o",
		`jsonpath={.metadata.labels.app\.kubernetes\.io/version}`); got != releaseVersion {
		t.Errorf("the release is %s, want %s", got, releaseVersion)
	}
	s.WantNothingForbidden(t)
	t.Run("plugin", func(t *testing.T) { s.wantPlugin(t, dir) })
	t.Run("manifests", func(t *testing.T) {
		s.EnsureNamespace(t, "openshift-marketplace", true) // every OpenShift has it
		for _, file := range []string{"install.yaml", "install-openshift.yaml"} {
			s.wantManifests(t, filepath.Join(dir, file), published)
		}
	})
}

// platform is the platform of this machine, with Linux, which images are for.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// buildRelease builds a release for this machine.
func buildRelease(t *testing.T) (dir string, verifier *signing.Verifier) {
	t.Helper()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	version, err := release.ParseVersion(releaseVersion)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	helm, err := assets.FindHelm(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "release")
	err = release.Build(t.Context(), dir, release.Options{
		Checkout: checkout, Version: version,
		// Tests run where there is no git, too.
		Commit:    release.Commit{Revision: strings.Repeat("0123456789", 4), Changed: true},
		Created:   time.Unix(1_700_000_000, 0),
		Platforms: []v1.Platform{platform()}, Targets: []v1.Platform{platform()},
		Base: image.Scratch, Helm: helmchart.Helm{Path: helm}, Key: key, Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	// By the key that is published.
	pem, err := os.ReadFile(filepath.Join(dir, "opgate.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if verifier, err = signing.LoadVerifier(pem); err != nil {
		t.Fatal(err)
	}
	return dir, verifier
}

// otherVerifier verifies by another key.
func otherVerifier(t *testing.T) *signing.Verifier {
	t.Helper()
	key, err := signing.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signing.LoadVerifier(key.PublicPEM())
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

// wantFilesVerified wants the files to be accepted, and refused with another key and with any of them changed.
func wantFilesVerified(t *testing.T, dir string, verifier *signing.Verifier) {
	if err := release.VerifyFiles(dir, verifier); err != nil {
		t.Error(err)
	}
	if err := release.VerifyFiles(dir, otherVerifier(t)); err == nil {
		t.Error("the files are accepted by another key")
	}
	for _, name := range []string{release.ArchiveName(platform()), "install.yaml", release.SumsFile,
		"SHA256SUMS.sigstore.json", release.ProvenanceFile} {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(data)
		changed[len(changed)/2] ^= 1
		if err := os.WriteFile(file, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := release.VerifyFiles(dir, verifier); err == nil {
			t.Errorf("the files are accepted with a byte of %s changed", name)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// releaseRegistry is a registry that can change what it serves.
type releaseRegistry struct {
	host    string
	changed atomic.Pointer[string] // what ends the path of answers to change; nil for none
}

func startReleaseRegistry(t *testing.T) *releaseRegistry {
	t.Helper()
	r := &releaseRegistry{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		suffix := r.changed.Load()
		if suffix == nil || req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, *suffix) {
			handler.ServeHTTP(w, req)
			return
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		body := answer.Body.Bytes()
		body[len(body)/2] ^= 1
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// wantVerified wants image and chart to be accepted, and refused with another key and when the registry changes a byte.
func (r *releaseRegistry) wantVerified(t *testing.T, published release.Published, verifier *signing.Verifier) {
	if err := published.Verify(t.Context(), verifier); err != nil {
		t.Error(err)
	}
	if err := published.Verify(t.Context(), otherVerifier(t)); err == nil {
		t.Error("image and chart are accepted by another key")
	}
	for name, suffix := range r.signed(t, published) {
		r.changed.Store(&suffix)
		if err := published.Verify(t.Context(), verifier); err == nil {
			t.Errorf("image and chart are accepted with a byte of %s changed", name)
		}
	}
	r.changed.Store(nil)
	if _, err := remote.Head(published.Chart.Context().Tag(helmchart.RepositoryTag)); err != nil {
		t.Errorf("what the repository says of itself: %v", err)
	}
}

// signed are the parts of what was published that are signed, or signatures, by the ends of their paths.
func (r *releaseRegistry) signed(t *testing.T, published release.Published) map[string]string {
	t.Helper()
	digest, err := v1.NewHash(published.Image.DigestStr())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := remote.Image(published.Image.Context().Tag(signing.Tag(digest)))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signature.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(published.Chart)
	if err != nil {
		t.Fatal(err)
	}
	index, err := referrers.IndexManifest()
	if err != nil || len(index.Manifests) == 0 {
		t.Fatalf("the chart has bundles %v (%v)", index, err)
	}
	bundle, err := remote.Image(published.Chart.Context().Digest(index.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	bundled, err := bundle.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"the image's index":           published.Image.DigestStr(),
		"the chart's manifest":        published.Chart.DigestStr(),
		"what the signature is about": manifest.Layers[0].Digest.String(),
		"the signature":               signing.Tag(digest),
		"a bundle about the chart":    bundled.Layers[0].Digest.String(),
	}
}

// pullBinary pulls the image by digest and returns the path of the binary in it.
func pullBinary(t *testing.T, published release.Published) string {
	t.Helper()
	index, err := remote.Index(published.Image)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.ForPlatform(index, platform())
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	return unpack(t, content, strings.TrimPrefix(image.Path, "/"))
}

// unpack unpacks an archive, wants a file in it, and returns its path.
func unpack(t *testing.T, r io.Reader, wanted string) string {
	t.Helper()
	dir := t.TempDir()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), data,
			header.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, wanted)
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantPlugin unpacks the kubectl plugin of a release and has the real kubectl run it.
func (s site) wantPlugin(t *testing.T, dir string) {
	packed, err := os.Open(filepath.Join(dir, release.ArchiveName(platform())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	plugin := unpack(t, content, "kubectl-opgate")
	if _, err := os.Stat(filepath.Join(filepath.Dir(plugin), "LICENSE")); err != nil {
		t.Error(err)
	}
	result, err := s.RunPlugin(t.Context(), "", cluster.Command{Args: []string{"opgate", "--version"},
		Env: []string{"PATH=" + filepath.Dir(plugin)}})
	if want := "opgate " + releaseVersion + "\n"; err != nil || result.Stdout != want {
		t.Errorf("kubectl opgate --version prints %q, %q (%v), want %q", result.Stdout, result.Stderr, err, want)
	}
	out, err := exec.Command(filepath.Join(dir, "opgate_"+platform().OS+"_"+platform().Architecture),
		"version").Output()
	if err != nil || string(out) != "opgate "+releaseVersion+"\n" {
		t.Errorf("the binary prints %q (%v)", out, err)
	}
}

// wantManifests wants the API server to take the manifests for kubectl, with the image that was published.
func (s site) wantManifests(t *testing.T, file string, published release.Published) {
	t.Helper()
	s.Admin(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", file)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "image: " + install.Repository + ":" + releaseVersion + "@" + published.Image.DigestStr() +
		"\n"; !strings.Contains(string(data), want) {
		t.Errorf("%s has no %q", filepath.Base(file), want)
	}
}
