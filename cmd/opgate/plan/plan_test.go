package plan

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/model"
	"github.com/operator-framework/operator-registry/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/internal/cputime"
	"github.com/opgate/opgate/olm"
)

var update = flag.Bool("update", false, "write docs/pictures/path.svg")

// noon is the time of all tests.
func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// run returns what the command prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out, notes bytes.Buffer
	cmd := Command(noon)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("plan %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// file writes a file, and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// policy is an OperatorPolicy of etcd in namespace shop, with more in its spec.
func policy(more string) string {
	return `{apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: etcd, namespace: policies},
spec: {remediationAction: enforce, complianceType: musthave, upgradeApproval: Automatic, ` + more + `
subscription: {name: etcd, namespace: shop, channel: stable, source: community, sourceNamespace: olm}}}`
}

// withContents returns a catalog with two versions and their manifests: the second one may read Secrets.
func withContents(image string) string {
	var b strings.Builder
	b.WriteString("{schema: olm.package, name: etcd, defaultChannel: stable}\n---\n" +
		"{schema: olm.channel, package: etcd, name: stable, entries: [{name: etcd.v2, replaces: etcd.v1}, {name: etcd.v1}]}\n")
	for i, resource := range []string{"configmaps", "secrets"} {
		csv := fmt.Sprintf(`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"etcd.v%d"},
"spec":{"version":"%d.0.0","minKubeVersion":"1.%d.0","install":{"strategy":"deployment","spec":{"deployments":[],"clusterPermissions":[
{"serviceAccountName":"etcd","rules":[{"apiGroups":[""],"resources":["%s"],"verbs":["get"]}]}]}}}}`, i+1, i+1, 30+i, resource)
		data, _ := json.Marshal([]byte(csv))
		fmt.Fprintf(&b, "---\n{schema: olm.bundle, package: etcd, name: etcd.v%d, image: %q, properties: [{type: olm.package, value: "+
			"{packageName: etcd, version: %d.0.0}}, {type: olm.bundle.object, value: {data: %s}}]}\n", i+1, image, i+1, data)
	}
	return b.String()
}

// TestContents: what a version changes is judged as the gate will, by the contents in the catalog, whether these come in
// the plan or in the ConfigMap of a bundle image.
func TestContents(t *testing.T) {
	for name, image := range map[string]string{"inline": "", "image": "quay.io/example/etcd@sha256:" + strings.Repeat("a", 64)} {
		t.Run(name, func(t *testing.T) {
			catalog := writeCatalog(t, withContents(image))
			var r Result
			plan := func(more string) {
				r = Result{}
				args := []string{"etcd", "-n", "shop", "--catalog", catalog, "--from", "etcd.v1", "-o", "json", "-p", file(t, "policy.yaml", policy(more))}
				if err := json.Unmarshal([]byte(run(t, args...)), &r); err != nil || len(r.Steps) != 1 {
					t.Fatalf("%v, %d steps, want 1", err, len(r.Steps))
				}
			}
			plan("consent: {permissions: Hold},")
			s := r.Steps[0]
			if s.Decision != "Hold" || len(s.Reasons) != 1 || s.Reasons[0].Rule != "bundle/consent" {
				t.Fatalf("the step is %s for %v, want it to be held by bundle/consent", s.Decision, s.Reasons)
			}
			if len(s.Changes) == 0 || s.Changes[0].Class != "permissions" || s.MinKubeVersion != "1.31.0" {
				t.Errorf("it changes %v and needs Kubernetes %q", s.Changes, s.MinKubeVersion)
			}
			if !strings.Contains(s.Reasons[0].Message, s.Digest) {
				t.Errorf("the refusal %q has not the digest %q", s.Reasons[0].Message, s.Digest)
			}
			plan("consent: {permissions: Hold, accepted: [" + s.Digest + "]},")
			if r.Steps[0].Decision != "Allow" {
				t.Errorf("with the digest the step is %s: %v", r.Steps[0].Decision, r.Steps[0].Reasons)
			}
		})
	}
}

// TestDigest: a version that is allowed only with a digest is judged by the bundle image in the catalog.
func TestDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	catalog := writeCatalog(t, withContents("quay.io/example/etcd@"+digest))
	for listed, want := range map[string]string{digest: "Allow", "sha256:" + strings.Repeat("b", 64): "Deny"} {
		var r Result
		args := []string{"etcd", "-n", "shop", "--catalog", catalog, "--from", "etcd.v1", "-o", "json",
			"-p", file(t, "policy.yaml", policy("versions: [etcd.v1, etcd.v2@"+listed+"],"))}
		if err := json.Unmarshal([]byte(run(t, args...)), &r); err != nil || len(r.Steps) != 1 || r.Steps[0].Decision != want {
			t.Errorf("with %s: %v, %+v, want %s", listed, err, r.Steps, want)
		}
	}
}

// TestPathPicture draws a path with every mark, and compares it with the picture of the README.
func TestPathPicture(t *testing.T) {
	t.Chdir("testdata/picture")
	args := []string{"etcd", "-n", "shop", "--catalog", "catalog", "--from", "etcdoperator.v0.9.2", "-p", "policies"}
	got := run(t, append(args, "-o", "svg")...)
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Fatalf("the picture is not XML: %v", err)
	}
	for name, printed := range map[string]string{"../../../../../docs/pictures/path.svg": got, "path.txt": run(t, args...)} {
		if *update {
			if err := os.WriteFile(name, []byte(printed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name); err != nil || string(want) != printed {
			t.Errorf("%v: %s is not what is printed now:\n%s\ngo test ./cmd/opgate/plan -run TestPathPicture -update", err, name, printed)
		}
	}
	for _, m := range []mark{isInstalled, isAllowed, isHeld, isRefused, isDeprecated} {
		if strings.Count(got, m.Sign) < 2 || strings.Count(got, m.Word) < 2 {
			t.Errorf("no version of the picture is %s", m.Word)
		}
	}
}

// TestLayout: the OCI layout of a catalog image is read as its directory. One with a file outside is refused.
func TestLayout(t *testing.T) {
	content := fbc("stable: {name: v2, replaces: v1}, {name: v1}")
	dir := layoutOf(t, [][2]string{{"etc/passwd", "x"}, {"catalogs/etcd/catalog.yaml", content}})
	_, got, _ := strings.Cut(run(t, "etcd", "--catalog", dir, "--from", "v1"), "\n") // the heading has the directory
	if _, want, _ := strings.Cut(run(t, "etcd", "--catalog", writeCatalog(t, content), "--from", "v1"), "\n"); got != want {
		t.Errorf("from the layout:\n%s\nfrom the directory:\n%s", got, want)
	}
	dir = layoutOf(t, [][2]string{{"catalogs/../../escaped", "x"}, {"catalogs/etcd/catalog.yaml", content}})
	if _, err := readFiles(t.Context(), dir, "etcd", nil); err == nil || !strings.Contains(err.Error(), "unsafe tar path") {
		t.Errorf("of a layout with a file outside: %v", err)
	}
}

// layoutOf returns the OCI layout of an image with files, of which catalogs has the catalog.
func layoutOf(t *testing.T, contents [][2]string) (dir string) {
	t.Helper()
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, file := range contents {
		err := w.WriteHeader(&tar.Header{Name: file[0], Size: int64(len(file[1])), Mode: 0o600, Typeflag: tar.TypeReg})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(file[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.Config(image, v1.Config{Labels: map[string]string{configsLabel: "/catalogs"}}); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// registry serves a catalog, by the conversion of opm.
type registry struct {
	api.UnimplementedRegistryServer
	content model.Model
}

// GetPackage implements api.RegistryServer.
func (r *registry) GetPackage(_ context.Context, asked *api.GetPackageRequest) (*api.Package, error) {
	from := r.content[asked.GetName()]
	if from == nil {
		return nil, status.Error(codes.Unknown, "package not found")
	}
	p := &api.Package{Name: from.Name, DefaultChannelName: from.DefaultChannel.Name}
	if from.Deprecation != nil {
		p.Deprecation = &api.Deprecation{Message: from.Deprecation.Message}
	}
	for _, c := range from.Channels {
		channel := &api.Channel{Name: c.Name}
		if c.Deprecation != nil {
			channel.Deprecation = &api.Deprecation{Message: c.Deprecation.Message}
		}
		p.Channels = append(p.Channels, channel)
	}
	return p, nil
}

// ListBundles implements api.RegistryServer.
func (r *registry) ListBundles(_ *api.ListBundlesRequest, to api.Registry_ListBundlesServer) error {
	for _, p := range r.content {
		for _, c := range p.Channels {
			for _, b := range c.Bundles {
				bundle, err := api.ConvertModelBundleToAPIBundle(*b)
				if err == nil {
					err = to.Send(bundle)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// serve serves a catalog, and returns its address.
func serve(t *testing.T, content string) string {
	t.Helper()
	config, err := declcfg.LoadReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	from := &registry{}
	if from.content, err = declcfg.ConvertToModel(*config); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterRegistryServer(server, from)
	go func() { _ = server.Serve(listener) }() // it ends with the test
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// TestServed: a catalog that is served has the same path as its directory, with contents, deprecations and all channels.
func TestServed(t *testing.T) {
	content := withContents("quay.io/example/etcd:v1") + "---\n{schema: olm.channel, package: etcd, name: fast, entries: [{name: etcd.v2}]}\n---\n" +
		"{schema: olm.deprecations, package: etcd, entries: [{reference: {schema: olm.bundle, name: etcd.v2}, message: no more}, " +
		"{reference: {schema: olm.channel, name: fast}, message: slow}, {reference: {schema: olm.package}, message: gone}]}\n"
	want, err := readFiles(t.Context(), writeCatalog(t, content), "etcd", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readServed(t.Context(), serve(t, content), "etcd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Package, got.Package); diff != "" {
		t.Errorf("the packages differ (-file +served):\n%s", diff)
	}
	if _, err := readServed(t.Context(), serve(t, content), "vault", nil); err == nil || !strings.Contains(err.Error(), "package vault") {
		t.Errorf("of a package that is not served: %v", err)
	}
}

// TestForward: the port of a ready pod of a catalog is forwarded by the protocol of the kubelet.
func TestForward(t *testing.T) {
	address := serve(t, fbc("stable: {name: v2, replaces: v1}, {name: v1}"))
	pods := func(state corev1.ConditionStatus) string {
		list, err := json.Marshal(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "olm", Name: "community-x"},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: state}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(list)
	}
	state := corev1.ConditionFalse
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/olm/pods":
			if got := r.URL.Query().Get("labelSelector"); got != "olm.catalogSource=community" {
				t.Errorf("pods with label %q are listed", got)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, pods(state))
		case "/api/v1/namespaces/olm/pods/community-x/portforward":
			asKubelet(t, w, r, address)
		default:
			t.Errorf("%s %s is asked for", r.Method, r.URL)
		}
	}))
	t.Cleanup(server.Close)
	config, source := &rest.Config{Host: server.URL}, olm.Catalog{Namespace: "olm", Name: "community"}
	if _, err := forward(t.Context(), config, source); err == nil || !strings.Contains(err.Error(), "no pod that is ready") {
		t.Errorf("without a ready pod: %v", err)
	}
	state = corev1.ConditionTrue
	local, err := forward(t.Context(), config, source)
	if err != nil {
		t.Fatal(err)
	}
	o, err := readServed(t.Context(), local, "etcd", nil)
	if err != nil || len(o.channels[0].Bundles) != 2 {
		t.Errorf("%v, the catalog has not 2 bundles", err)
	}
}

// asKubelet forwards a port by SPDY, as before Kubernetes 1.31: the client falls back to it.
func asKubelet(t *testing.T, w http.ResponseWriter, r *http.Request, address string) {
	if r.Header.Get("Upgrade") == "websocket" {
		http.Error(w, "no WebSockets here", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		t.Error(err)
		return
	}
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
			return nil
		}
		if port := s.Headers().Get(corev1.PortHeader); port != podPort {
			return fmt.Errorf("port %s is forwarded", port)
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(to, s); _ = to.Close() }() // either end closes
		go func() { _, _ = io.Copy(s, to); _ = s.Close() }()
		return nil
	})
	if connection != nil {
		<-connection.CloseChan()
	}
}

// TestLarge: from a catalog of 1,500 packages a path takes at most 3 s of CPU and 300 MiB.
func TestLarge(t *testing.T) {
	const packages, versions, filler = 1500, 6, 8 << 10
	dir := t.TempDir()
	for i := range packages {
		var b bytes.Buffer
		name := fmt.Sprintf("operator-%d", i)
		fmt.Fprintf(&b, `{"schema":"olm.package","name":%q,"defaultChannel":"stable"}`+"\n", name)
		entries := []declcfg.ChannelEntry{}
		for v := range versions {
			csv := fmt.Sprintf("%s.v%d", name, v)
			entries = append(entries, declcfg.ChannelEntry{Name: csv, Replaces: map[bool]string{true: fmt.Sprintf("%s.v%d", name, v-1)}[v > 0]})
			fmt.Fprintf(&b, `{"schema":"olm.bundle","package":%q,"name":%q,"image":"quay.io/example/%s:%d","properties":[`+
				`{"type":"olm.package","value":{"packageName":%q,"version":"%d.0.0"}},{"type":"olm.csv.metadata","value":{"description":%q}}]}`+"\n",
				name, csv, name, v, name, v, strings.Repeat("operate ", filler/8))
		}
		channel, err := json.Marshal(declcfg.Channel{Schema: declcfg.SchemaChannel, Name: "stable", Package: name, Entries: entries})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(channel)
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "catalog.json"), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	debug.FreeOSMemory()
	begin := cputime.Used()
	shown := run(t, "operator-777", "--catalog", dir, "--from", "operator-777.v0")
	took := cputime.Used() - begin
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%s of CPU, %d MiB", took, memory.Sys>>20)
	if took > 3*time.Second || memory.Sys > 300<<20 {
		t.Errorf("it takes %s of CPU and %d MiB", took, memory.Sys>>20)
	}
	if n := strings.Count(shown, "✓"); n != versions-1 {
		t.Errorf("%d steps are shown, want %d:\n%s", n, versions-1, shown)
	}
}
