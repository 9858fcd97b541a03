package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/certs"
)

// TestWebhookMetrics serves an endpoint with and without a token, and expects both under the endpoint's path: a token
// in a label would be readable by every scraper.
func TestWebhookMetrics(t *testing.T) {
	const path = "/validate-test-metrics"
	source, _, err := certs.SelfSigned("localhost")
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t.Context(), &fenced{}, (&Options{}).tls(source), &callers{}, logr.Discard())
	(&callers{}).register(s, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("set a deadline: %v", err)
		}
		if r.PathValue("token") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server := httptest.NewServer(s.WebhookMux())
	defer server.Close()
	for _, suffix := range []string{"", "/secret", "/secret"} {
		response, err := http.Post(server.URL+path+suffix, "application/json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			webhook, code := "", ""
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "webhook":
					webhook = label.GetValue()
				case "code":
					code = label.GetValue()
				}
			}
			if webhook == path {
				got[family.GetName()+code] = metric.GetCounter().GetValue() +
					float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	want := map[string]float64{
		"controller_runtime_webhook_latency_seconds":    3,
		"controller_runtime_webhook_requests_in_flight": 0,
		"controller_runtime_webhook_requests_total200":  2,
		"controller_runtime_webhook_requests_total401":  1,
		"controller_runtime_webhook_requests_total500":  0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
