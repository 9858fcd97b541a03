package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// explosive panics when it is decoded, as a defect in a decoder would.
type explosive struct{}

func (*explosive) UnmarshalJSON([]byte) error { panic("decoding failed") }

// TestPanics makes endpoints panic in several places. OLM retries what is answered 403, and treats a dropped connection
// as final.
func TestPanics(t *testing.T) {
	var log strings.Builder
	logger := funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{})
	registry := prometheus.NewRegistry()
	store := storeOf(t, governed(t).Cluster...)
	options := optionsOf(Options{Store: store})
	options.Metrics, options.Panics, options.Log = NewMetrics(registry, store, options.Now),
		panics.NewRecorder(registry, logger), logr.Logger{}
	gate := New(options)
	review := reviewOf(t, "admin", false, nil, []byte("{}"))
	for name, handler := range map[string]http.Handler{
		"judging": &endpoint[json.RawMessage, json.RawMessage]{gate: gate, kind: "judged",
			judge: func(_ context.Context, _ *snapshot.Snapshot,
				req *request[json.RawMessage, json.RawMessage]) verdict.Verdict {
				return verdict.Verdict{Object: string(*req.OldObject)} // there is none
			}},
		"decoding": &endpoint[explosive, explosive]{gate: gate, kind: "decoded",
			judge: func(context.Context, *snapshot.Snapshot, *request[explosive, explosive]) verdict.Verdict {
				return verdict.Verdict{}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			answer := post(t, handler, review)
			if answer.Allowed || answer.Result.Code != http.StatusForbidden ||
				!strings.Contains(answer.Result.Message, "("+string(rules.RuleGateInternal)+")") {
				t.Errorf("the answer is %+v", answer)
			}
			if answer.UID != "705ab4f5-6393-11e8-b7cc-42010a800002" {
				t.Errorf("the answer has uid %q", answer.UID)
			}
			if !strings.Contains(log.String(), "panic_test.go") {
				t.Errorf("the log has no stack:\n%s", log.String())
			}
			kind := map[string]string{"judging": "judged", "decoding": "decoded"}[name]
			if got := valueOf(t, registry, "opgate_panics_total", kind); got != 1 {
				t.Errorf("%v panics of kind %s are counted, want 1", got, kind)
			}
			if got := valueOf(t, registry, "opgate_decisions_total", string(rules.RuleGateInternal)); got == 0 {
				t.Error("no decision of the rule is counted")
			}
		})
	}
	if inFlight := valueOf(t, registry, "opgate_requests_inflight_bytes", ""); inFlight != 0 {
		t.Errorf("%v bytes are still reserved", inFlight)
	}
}

// TestAbortedHandlers: http.ErrAbortHandler is not recovered.
func TestAbortedHandlers(t *testing.T) {
	handler := &endpoint[json.RawMessage, json.RawMessage]{gate: governedGate(t), kind: "judged",
		judge: func(context.Context, *snapshot.Snapshot, *request[json.RawMessage, json.RawMessage]) verdict.Verdict {
			panic(http.ErrAbortHandler)
		}}
	defer func() {
		if cause, ok := recover().(error); !ok || !errors.Is(cause, http.ErrAbortHandler) {
			t.Errorf("the server sees %v, want http.ErrAbortHandler", cause)
		}
	}()
	post(t, handler, reviewOf(t, "admin", false, nil, []byte("{}")))
}

// valueOf returns the value of a counter or gauge that has a label value, "" for one without labels.
func valueOf(t *testing.T, registry *prometheus.Registry, name, label string) (value float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			found := label == ""
			for _, pair := range m.GetLabel() {
				found = found || pair.GetValue() == label
			}
			if family.GetName() == name && found {
				value += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return value
}
