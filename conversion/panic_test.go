package conversion

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
)

// TestPanics converts nothing of a review in which one object cannot be converted for a defect.
func TestPanics(t *testing.T) {
	var log strings.Builder
	logger := funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{})
	registry := prometheus.NewRegistry()
	handler := NewWebhook(Options{Budget: inflight.NewBudget(registry),
		Panics: panics.NewRecorder(registry, logger), Log: logr.Discard()})
	converted := 0
	handler.(*webhook).converters["policy.open-cluster-management.io/v1beta2"] = func(
		content map[string]any) map[string]any {
		if converted++; converted > 1 {
			panic("converting failed")
		}
		return content
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path,
		bytes.NewReader(request("v1beta2", oldObject("a"), oldObject("b")))))
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("the answer is %d %s (%v)", recorder.Code, recorder.Body, err)
	}
	if r := review.Response; r.UID != "u-1" || r.Result.Status != "Failure" || len(r.ConvertedObjects) != 0 ||
		!strings.Contains(r.Result.Message, "opgate failed") {
		t.Errorf("the answer is %+v", r)
	}
	if !strings.Contains(log.String(), "panic_test.go") || !strings.Contains(log.String(), "converting failed") {
		t.Errorf("the log has no stack:\n%s", log.String())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, family := range families {
		if family.GetName() == "opgate_panics_total" {
			counted += family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 1 {
		t.Errorf("%v panics are counted, want 1", counted)
	}
}
