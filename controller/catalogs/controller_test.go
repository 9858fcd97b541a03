package catalogs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

const (
	firstImage  = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	secondImage = "sha256:4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b4e5f6a7b"
)

var vendor = olm.Catalog{Namespace: "olm", Name: "vendor"}

// server responds as an API server with a package server, and stores one ConfigMap.
type server struct {
	mu sync.Mutex
	// versions are the heads of channel alpha of package etcd; "" is a package server without packages.
	version string
	stored  *corev1.ConfigMap
	lists   int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
	}
	const maps = "/api/v1/namespaces/opgate-system/configmaps"
	switch path := r.URL.Path; {
	case path == "/apis/packages.operators.coreos.com/v1/namespaces/olm/packagemanifests":
		s.lists++
		if got := r.URL.Query().Get("labelSelector"); got != "catalog=vendor,catalog-namespace=olm" {
			status(http.StatusBadRequest, metav1.StatusReason(got))
			return
		}
		item := fmt.Sprintf(`{"status":{"packageName":"etcd","catalogSource":"vendor","catalogSourceNamespace":"olm",
			"channels":[{"name":"alpha","currentCSV":"etcd.v%[1]s","currentCSVDesc":{"version":"%[1]s"}}]}}`, s.version)
		if s.version == "" {
			item = ""
		}
		fmt.Fprintf(w, `{"kind":"PackageManifestList","items":[%s]}`, item)
	case r.Method == http.MethodGet && path == maps+"/opgate-catalogs" && s.stored == nil:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet && path == maps+"/opgate-catalogs":
		_ = json.NewEncoder(w).Encode(s.stored)
	case r.Method == http.MethodPost && path == maps, r.Method == http.MethodPut && path == maps+"/opgate-catalogs":
		var written corev1.ConfigMap
		if err := json.NewDecoder(r.Body).Decode(&written); err != nil {
			status(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if r.Method == http.MethodPut && written.ResourceVersion != s.stored.ResourceVersion {
			status(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		written.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
		written.ResourceVersion += "1"
		s.stored = &written
		_ = json.NewEncoder(w).Encode(s.stored)
	default:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// history returns what is stored of the catalog.
func (s *server) history(t *testing.T) *catalog.History {
	t.Helper()
	if s.stored == nil {
		return nil
	}
	r, err := catalog.DecodeRecord(s.stored.Data["olm.vendor"])
	if err != nil {
		t.Fatal(err)
	}
	return &r.History
}

// cluster is a policy that holds jumps, and its catalog with a pod of an image.
func cluster(t *testing.T, image string) *snapshot.Snapshot {
	t.Helper()
	reader := snapshot.Reader{Unreadable: func(kind *snapshot.Kind, _ types.NamespacedName,
		err error) {
		t.Fatal(kind.Kind, err)
	}}
	var b snapshot.Builder
	b.Put(time.Time{},
		reader.Read(snapshot.Namespaces, []byte(`{"metadata":{"name":"shop"}}`)),
		reader.Read(snapshot.OperatorPolicies, []byte(`{"metadata":{"name":"etcd","namespace":"policies"},"spec":{"complianceType":"musthave",
			"remediationAction":"enforce","upgradeApproval":"Automatic","catalog":{"jump":"Hold"},
			"subscription":{"name":"etcd","namespace":"shop","source":"vendor","sourceNamespace":"olm"}}}`)),
		reader.Read(snapshot.CatalogSources,
			[]byte(`{"metadata":{"name":"vendor","namespace":"olm"},"spec":{"image":"registry.example/catalog:latest"}}`)),
		reader.Read(snapshot.Services, []byte(`{"metadata":{"name":"vendor","namespace":"olm","labels":{"olm.service-spec-hash":"1"}},
			"spec":{"selector":{"olm.catalogSource":"vendor","olm.managed":"true"},"ports":[{"port":50051,"targetPort":50051}]}}`)),
		reader.Read(snapshot.Pods, []byte(`{"metadata":{"name":"vendor","namespace":"olm","labels":{"olm.catalogSource":"vendor"}},"status":{"phase":"Running",
			"containerStatuses":[{"name":"registry-server","imageID":"registry.example/catalog@`+image+`"}]}}`)))
	return b.SetCluster(time.Time{}, facts.Cluster{Version: "1.36.3"})
}

// leader returns a reconciler of a new leader.
func leader(t *testing.T, s *server, now *time.Time) *Controller {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	config := &rest.Config{Host: web.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	streams, err := stream.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	writes := apply.NewMetrics(prometheus.NewRegistry())
	r := &Controller{Shared: apply.Shared{Log: testr.New(t), Now: func() time.Time { return *now },
		Writer: apply.Writer{Client: direct, Store: snapshot.NewStore(cluster(t, firstImage)), Metrics: writes}},
		Streams: streams, Namespace: "opgate-system", reader: direct, images: map[olm.Catalog]*image{}}
	return r
}

// runs makes the catalog run another image.
func (r *Controller) runs(t *testing.T, image string) {
	t.Helper()
	r.Store = snapshot.NewStore(cluster(t, image))
}

// TestJumpIsRecorded: an image is compared once the package server had time to follow, and what it moves backwards is
// stored.
func TestJumpIsRecorded(t *testing.T) {
	now := time.Unix(0, 0)
	s := &server{version: "0.9.4"}
	r := leader(t, s, &now)
	step := func(passes time.Duration) time.Duration {
		t.Helper()
		now = now.Add(passes)
		result, err := r.Reconcile(t.Context(), vendor)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	if left := step(0); left != settling || s.lists != 0 {
		t.Fatalf("at once: again after %s, %d lists", left, s.lists)
	}
	if left := step(settling); left != recheck-settling || s.lists != 1 || s.history(t).Newest() != firstImage {
		t.Fatalf("when it has settled: again after %s, %d lists, %+v", left, s.lists, s.history(t))
	}
	step(recheck - settling)
	if left := step(time.Hour); left != 0 || s.lists != 2 {
		t.Errorf("at rest: again after %s, %d lists", left, s.lists)
	}

	r.runs(t, secondImage)
	s.version = "0.9.2"
	step(0)
	step(settling)
	if h := s.history(t); h.Newest() != secondImage || !strings.Contains(h.Jump(50, nil),
		"etcd alpha: 0.9.4 -> 0.9.2") {
		t.Errorf("%+v", h)
	}

	// Another leader knows of it, and of what a package server said too late.
	r = leader(t, s, &now)
	r.runs(t, secondImage)
	s.version = "0.9.1"
	step(0)
	step(settling)
	if h := s.history(t); len(h.Polls) != 3 || h.Jump(50, []string{firstImage}) == "" ||
		!strings.Contains(h.Jump(50, nil), "0.9.2 -> 0.9.1") {
		t.Errorf("%+v", h)
	}
}

// TestNothingIsRecorded: without packages, for another image than the one that was listed, and over a record that
// cannot be read.
func TestNothingIsRecorded(t *testing.T) {
	now := time.Unix(0, 0)
	settle := func(r *Controller) error {
		if _, err := r.Reconcile(t.Context(), vendor); err != nil {
			return err
		}
		now = now.Add(settling)
		_, err := r.Reconcile(t.Context(), vendor)
		return err
	}
	t.Run("no packages yet", func(t *testing.T) {
		s := &server{}
		if err := settle(leader(t, s, &now)); err == nil || !strings.Contains(err.Error(), "does not know any yet") ||
			s.stored != nil {
			t.Errorf("%v, %+v", err, s.stored)
		}
	})
	t.Run("a catalog that no policy asks about", func(t *testing.T) {
		s := &server{version: "1.0.0"}
		r := leader(t, s, &now)
		if result, err := r.Reconcile(t.Context(), olm.Catalog{Namespace: "shop", Name: "mine"}); err != nil ||
			result.RequeueAfter != 0 || s.lists != 0 {
			t.Errorf("%+v %v, %d lists", result, err, s.lists)
		}
	})
	t.Run("another image by now", func(t *testing.T) {
		s := &server{version: "1.0.0"}
		r := leader(t, s, &now)
		if err := r.compare(t.Context(), vendor, secondImage, nil); err != nil || s.stored != nil {
			t.Errorf("%v, %+v", err, s.stored)
		}
	})
	t.Run("a record that cannot be read", func(t *testing.T) {
		broken := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: catalog.RecordsName, Namespace: "opgate-system", ResourceVersion: "7"},
			Data:       map[string]string{"olm.vendor": "{"}}
		s := &server{version: "1.0.0", stored: broken}
		if err := settle(leader(t, s, &now)); err == nil || s.stored != broken {
			t.Errorf("%v, %+v", err, s.stored)
		}
	})
}

// policyOn returns a policy about a package of a catalog.
func policyOn(namespace, name, pkg string, of olm.Catalog, created int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":%q,"creationTimestamp":%q},"spec":{"complianceType":"musthave",
		"remediationAction":"enforce","upgradeApproval":"Automatic","catalog":{"jump":"Hold"},"minimumAge":"1h",
		"subscription":{"name":%q,"namespace":"shop","source":%q,"sourceNamespace":%q}}}`, name, namespace, name,
		time.Unix(int64(created), 0).UTC().Format(time.RFC3339), pkg, of.Name, of.Namespace)
}

// TestB1B2SharedCatalogs: a tenant's catalogs and policies, older than the administrator's, leave room for the catalog
// and the package of that one; what falls out is the tenant's newest, and is exported (threat O77).
func TestB1B2SharedCatalogs(t *testing.T) {
	now, hub := time.Unix(0, 0), olm.Catalog{Namespace: "olm", Name: "zhub"}
	r := leader(t, &server{version: "0.9.4"}, &now)
	reader := snapshot.Reader{Unreadable: func(kind *snapshot.Kind, _ types.NamespacedName, err error) { t.Fatal(kind.Kind, err) }}
	var b snapshot.Builder
	built := b.Put(time.Time{}, reader.Read(snapshot.Namespaces, []byte(`{"metadata":{"name":"shop"}}`)))
	put := func(kind *snapshot.Kind, raw string) { built = b.Put(time.Time{}, reader.Read(kind, []byte(raw))) }
	source := func(of olm.Catalog) {
		put(snapshot.CatalogSources, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"spec":{"image":"a"}}`, of.Name, of.Namespace))
	}
	for i := range maxCatalogs {
		of := olm.Catalog{Namespace: "aaa", Name: fmt.Sprintf("c%02d", i)}
		source(of)
		put(snapshot.OperatorPolicies, policyOn("aaa", of.Name, "etcd", of, i))
	}
	for i := range catalog.MaxSeenPackages {
		name := fmt.Sprintf("p%03d", i)
		put(snapshot.OperatorPolicies, policyOn("aaa", name, name, hub, 100+i))
	}
	source(hub)
	if kept, _ := wanted(built); len(kept) != maxCatalogs || slices.Contains(kept, hub) {
		t.Errorf("control: no one but the tenant asks about the catalog, and it is compared: %v", kept)
	}
	put(snapshot.OperatorPolicies, policyOn("policies", "etcd", "etcd", hub, 1000))
	kept, left := wanted(built)
	if len(kept) != maxCatalogs || !slices.Contains(kept, hub) || len(left) != 1 || left[0].String() != "aaa/c19" {
		t.Errorf("compared are %v, left is %v", kept, left)
	}
	r.Store = snapshot.NewStore(built)
	packages := fair.Rows(r.aged(hub))
	if len(packages) != catalog.MaxSeenPackages || !slices.Contains(packages, "etcd") || slices.Contains(packages, "p099") {
		t.Errorf("versions are recorded of %v", packages)
	}
	if r.running(hub); !r.full.Load() {
		t.Error("a table that is full does not count as full")
	}
}

// TestB3SharedRecords: the records of a tenant's catalogs leave those of others where they are, and those of catalogs
// that are gone, and that no policy asks about, are deleted (threat O77).
func TestB3SharedRecords(t *testing.T) {
	in := cluster(t, firstImage) // a policy asks about olm/vendor
	data := map[string]string{"olm.vendor": "{}", "gone.catalog": "{}"}
	for i := range 4 {
		data[fmt.Sprint("aaa.c", i)] = strings.Repeat("x", maxRecords/4+1)
	}
	claims := asking(in)
	for i := range 4 {
		claims = append(claims, fair.Claim[olm.Catalog]{Row: olm.Catalog{Namespace: "aaa", Name: fmt.Sprint("c", i)},
			Origin: fair.Origin{Namespace: "aaa", Name: fmt.Sprint("p", i)}})
	}
	left := share(data, claims, in)
	if keys := slices.Sorted(maps.Keys(data)); fmt.Sprint(keys) != "[aaa.c0 aaa.c1 aaa.c2 olm.vendor]" || fmt.Sprint(left) != "[aaa/p3]" {
		t.Errorf("kept are %v, left is %v", keys, left)
	}
}
