package escape

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// TestCandidate checks which ClusterServiceVersions admission may not have reviewed.
func TestCandidate(t *testing.T) {
	renewed := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	ready := renewed.Add(10 * time.Minute)
	for _, c := range []struct {
		name      string
		renewed   time.Time
		created   time.Time
		namespace string
		copied    string
		want      bool
	}{
		{name: "long before the outage", renewed: renewed, created: renewed.Add(-time.Hour)},
		{name: "in the second of the last renewal", renewed: renewed.Add(900 * time.Millisecond), created: renewed,
			want: true},
		{name: "during the outage", renewed: renewed, created: renewed.Add(time.Minute), want: true},
		{name: "before the API server calls this replica", renewed: renewed, created: ready.Add(settling / 2),
			want: true},
		{name: "while this replica answers", renewed: renewed, created: ready.Add(2 * settling)},
		{name: "another replica renewed it until now", renewed: ready.Add(time.Hour), created: ready.Add(time.Hour)},
		{name: "no replica ever led", created: renewed},
		{name: "a copy", renewed: renewed, created: renewed.Add(time.Minute), copied: "elsewhere"},
		{name: "in a namespace that is not judged", renewed: renewed, created: renewed.Add(time.Minute),
			namespace: "opgate-system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Controller{ExcludedNamespaces: []string{"opgate-system"},
				started: func() time.Time { return ready }, outage: func() time.Time { return c.renewed }}
			raw := fmt.Sprintf(`{"metadata":{"name":"etcd","namespace":%q,"creationTimestamp":%q,"labels":{"olm.copiedFrom":%q}}}`,
				c.namespace, c.created.Format(time.RFC3339), c.copied)
			var reader snapshot.Reader
			if got := r.candidate(reader.Read(snapshot.ClusterServiceVersions, []byte(raw))); got != c.want {
				t.Errorf("candidate is %t", got)
			}
		})
	}
}

// TestNotRecorded: an escape that could not be recorded is found again.
func TestNotRecorded(t *testing.T) {
	const csv = `{"metadata":{"name":"etcd.v2","namespace":"shop","uid":"1","creationTimestamp":"2026-11-22T03:00:00Z","annotations":{
		"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"2.0.0\"}}]}"}},
		"spec":{"version":"2.0.0"}}`
	leases := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "leases") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, csv)
	}))
	defer leases.Close()
	config := &rest.Config{Host: leases.URL}
	lease, err := manager.NewLease(config, "opgate-system", "a", func() {}, time.Now)
	streams, failed := stream.NewForConfig(config)
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	b, reader := snapshot.Builder{}, snapshot.Reader{}
	b.Put(time.Now(), reader.Read(snapshot.ClusterServiceVersions, []byte(csv)),
		reader.Read(snapshot.OperatorPolicies, []byte(`{"metadata":{"name":"etcd","namespace":"policies","creationTimestamp":"2026-11-21T03:00:00Z"},
			"spec":{"complianceType":"musthave","remediationAction":"enforce","upgradeApproval":"Automatic","versions":["etcd.v1"],"subscription":{"name":"etcd","namespace":"shop"}}}`)))
	started := func() time.Time { return time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC) }
	c := &Controller{Lease: lease, Streams: streams, started: started, outage: started, judged: map[types.UID]bool{},
		Shared: apply.Shared{Now: time.Now, Writer: apply.Writer{Metrics: apply.NewMetrics(prometheus.NewRegistry()),
			Store: snapshot.NewStore(b.SetCluster(time.Now(), facts.Cluster{Version: "1.37.0"}))}}}
	c.records.Store(&[]record{})
	for range 2 {
		if _, err := c.Reconcile(t.Context(), types.NamespacedName{Namespace: "shop", Name: "etcd.v2"}); err == nil {
			t.Error("it is not recorded, without an error")
		}
	}
}
