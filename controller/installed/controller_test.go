package installed

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/snapshot"
)

const (
	namespace = `{"metadata":{"name":"shop","uid":"a"}}`
	policy    = `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"namespace":"policies","name":"etcd"},"spec":{
		"remediationAction":"enforce","complianceType":"musthave","upgradeApproval":"None","subscription":{"name":"etcd","namespace":"shop"}}}`
	csv = `{"metadata":{"name":"etcd.v0.9.2","namespace":"shop","uid":"1","annotations":{
		"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"0.9.2\"}}]}"}},"spec":{}}`
	group = `{"metadata":{"name":"group","namespace":"shop"},"spec":{"targetNamespaces":["shop"],"serviceAccountName":"installer"}}`
)

// server responds as an API server that stores one ConfigMap.
type server struct {
	t      *testing.T
	stored *corev1.ConfigMap
	writes int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const maps = "/api/v1/namespaces/opgate-system/configmaps"
	w.Header().Set("Content-Type", "application/json")
	s.writes++
	var written corev1.ConfigMap
	if err := json.NewDecoder(r.Body).Decode(&written); err != nil {
		s.t.Error(err)
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == maps && s.stored == nil:
		written.UID, written.ResourceVersion = "record", "1"
	case r.Method == http.MethodPut && r.URL.Path == maps+"/opgate-installed-shop" &&
		written.ResourceVersion == s.stored.ResourceVersion:
		written.ResourceVersion += "1"
	default:
		s.t.Errorf("%s %s of version %q", r.Method, r.URL.Path, written.ResourceVersion)
	}
	s.stored = &written
	_ = json.NewEncoder(w).Encode(&written)
}

// TestReconcile: the record is written once for each change of what is installed, and read back as what rules judge by.
func TestReconcile(t *testing.T) {
	s := &server{t: t}
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	api1, err := client.New(&rest.Config{Host: api.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, client.Options{Scheme: scheme,
		Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	r := &Controller{Shared: apply.Shared{Writer: apply.Writer{Client: api1, Store: snapshot.NewStore(nil),
		Metrics: apply.NewMetrics(prometheus.NewRegistry())}}, Namespace: "opgate-system"}
	var build snapshot.Builder
	put := func(kind *snapshot.Kind, raw string) {
		r.Store = snapshot.NewStore(build.Put(time.Time{}, (&snapshot.Reader{}).Read(kind, []byte(raw))))
	}
	for _, step := range []struct {
		kind   *snapshot.Kind
		raw    string
		writes int
		want   string
	}{
		{kind: snapshot.Namespaces, raw: namespace},
		{kind: snapshot.OperatorPolicies, raw: policy, writes: 1, want: `"uid":"a","operators":[{"package":"etcd"}]`},
		{kind: snapshot.ClusterServiceVersions, raw: csv, writes: 2,
			want: `{"package":"etcd","csv":"etcd.v0.9.2","version":"0.9.2","uid":"1","digest":"`},
		{kind: snapshot.OperatorGroups, raw: group, writes: 3,
			want: `"group":{"spec":{"targetNamespaces":["shop"],"serviceAccountName":"installer"}}`},
		{kind: snapshot.OperatorPolicies, raw: policy, writes: 3, want: `"csv":"etcd.v0.9.2"`},
	} {
		put(step.kind, step.raw)
		for range 2 { // the second time there is nothing to do
			if _, err := r.Reconcile(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
			if text, err := json.Marshal(s.stored); err != nil {
				t.Fatal(err)
			} else if s.stored != nil {
				put(snapshot.Records, string(text))
			}
		}
		record := r.Store.Load().Namespace("shop").Record()
		if got := record.Encode(); s.writes != step.writes || !strings.Contains(got, step.want) ||
			strings.Contains(got, "adopted") {
			t.Fatalf("after %s: %d writes, want %d: %s", step.kind.Kind, s.writes, step.writes, got)
		}
	}
	if label := s.stored.Labels[metakey.Record]; label != "installed" || s.stored.Name != "opgate-installed-shop" {
		t.Errorf("it is written as %+v", s.stored.ObjectMeta)
	}
}

// TestDocumentedRemoval: the command of the manual that ends records selects what Opgate writes.
func TestDocumentedRemoval(t *testing.T) {
	manual, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	if command := "kubectl delete configmaps --namespace opgate-system -l " + metakey.Record + "=" +
		"installed"; !strings.Contains(string(manual), command+"\n") {
		t.Errorf("docs/install.md has no command %s", command)
	}
}
