package apply

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/stream"
)

// stored answers for one version of a Subscription, and has the patches of it.
type stored struct {
	version string
	patches []string
}

func (s *stored) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.patches = append(s.patches, string(body))
	w.Header().Set("Content-Type", "application/json")
	if !strings.Contains(string(body), `"resourceVersion":"`+s.version+`"`) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
		return
	}
	_, _ = io.WriteString(w, `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"namespace":"shop",
		"name":"a","resourceVersion":"`+s.version+`"},"spec":{"channel":"stable","name":"etcd",
		"config":{"env":[{"name":"A"}],"nodeSelector":{"a":"b"}}}}`)
}

func writer(t *testing.T, s *stored) *Writer {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(olm.SubscriptionGVK, meta.RESTScopeNamespace)
	direct, err := client.New(&rest.Config{Host: server.URL}, client.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return &Writer{Client: direct, Metrics: NewMetrics(prometheus.NewRegistry())}
}

// TestUpdate: a patch has what differs, applies to the version that was judged, and removes what is not wanted any more,
// also from a field that is too large for the snapshot.
func TestUpdate(t *testing.T) {
	subscription := func(config any, channel string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "a",
			"resourceVersion": "7"}, "spec": map[string]any{"name": "etcd", "config": config, "channel": channel}}}
		u.SetGroupVersionKind(olm.SubscriptionGVK)
		return u
	}
	withheld, asIs := stream.Withhold("it has 5000 values"), `{"metadata":{"resourceVersion":"7"}}`
	for name, c := range map[string]struct {
		version    string
		live, next *unstructured.Unstructured
		want       []string
	}{
		"another field": {"7", subscription(withheld, "stable"), subscription(withheld, "beta"),
			[]string{`{"metadata":{"resourceVersion":"7"},"spec":{"channel":"beta"}}`}},
		"the large field": {"7", subscription(withheld, "stable"), subscription(map[string]any{"env": []any{}}, "stable"),
			[]string{asIs, `{"metadata":{"resourceVersion":"7"},"spec":{"config":{"env":[],"nodeSelector":null}}}`}},
		"without the large field": {"7", subscription(withheld, "stable"), subscription(nil, "stable"),
			[]string{asIs, `{"metadata":{"resourceVersion":"7"},"spec":{"config":null}}`}},
		"the large field of another version": {"8", subscription(withheld, "stable"), subscription(nil, "stable"),
			[]string{asIs}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stored{version: c.version}
			err := writer(t, s).Do(t.Context(), c.live, c.next)
			if !slices.Equal(s.patches, c.want) || apierrors.IsConflict(err) != (c.version == "8") {
				t.Errorf("%s (%v), want %s", s.patches, err, c.want)
			}
		})
	}
}

// TestDifference checks that a patch of a status has only what differs.
func TestDifference(t *testing.T) {
	type status struct {
		State  string `json:"state,omitempty"`
		Reason string `json:"reason,omitempty"`
	}
	fields, err := difference(map[string]any{"status": status{State: "Pending", Reason: "new"}},
		map[string]any{"status": status{State: "Pending"}})
	if data, _ := json.Marshal(fields); err != nil || string(data) != `{"status":{"reason":null}}` {
		t.Errorf("%s (%v)", data, err)
	}
}
