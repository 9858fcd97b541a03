package admission

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestTrace sends reviews in and outside of a trace. A span continues what the API server records, and no one else.
func TestTrace(t *testing.T) {
	s := governed(t)
	existing := slices.Concat(s.Cluster, s.Policies)
	old, object := written(t, s, existing)
	body, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	review := reviewOf(t, s.User, false, old, body)
	const traceID, parentID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, test := range map[string]struct {
		header   string
		stranger bool
		want     bool
	}{
		"recorded":                {header: "00-" + traceID + "-" + parentID + "-01", want: true},
		"not recorded":            {header: "00-" + traceID + "-" + parentID + "-00"},
		"no trace":                {},
		"no header of that form":  {header: "00-" + strings.Repeat("z", 1<<10)},
		"attack: an unknown user": {header: "00-" + traceID + "-" + parentID + "-01", stranger: true},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
				sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))).Tracer("")
			gate, err := New(optionsOf(Options{Store: storeOf(t, existing...), Tracer: tracer,
				Authenticated: func(*http.Request) bool { return !test.stranger }}))
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequest(http.MethodPost, PathValidateInstallPlans, bytes.NewReader(review))
			request.Header.Set("traceparent", test.header)
			answer := httptest.NewRecorder()
			gate.Handlers()[PathValidateInstallPlans].ServeHTTP(answer, request)
			if answer.Code != http.StatusOK {
				t.Fatalf("the answer is %d %s", answer.Code, answer.Body)
			}
			ended := spans.Ended()
			if !test.want {
				if len(ended) > 0 {
					t.Errorf("%d spans are recorded", len(ended))
				}
				return
			}
			if len(ended) != 1 {
				t.Fatalf("%d spans are recorded, want 1", len(ended))
			}
			span := ended[0]
			if span.Name() != "review installplan" || span.SpanContext().TraceID().String() != traceID ||
				span.Parent().SpanID().String() != parentID {
				t.Errorf("span %q of trace %s continues %s", span.Name(), span.SpanContext().TraceID(),
					span.Parent().SpanID())
			}
			for _, want := range []attribute.KeyValue{
				attribute.String("opgate.decision", "Deny"),
				attribute.StringSlice("opgate.rules", []string{"bundle/version"}),
				attribute.StringSlice("opgate.policies", []string{"OperatorPolicy policies/etcd"}),
				attribute.Bool("opgate.authenticated", true),
			} {
				if !slices.Contains(span.Attributes(), want) {
					t.Errorf("it does not have %v: %v", want, span.Attributes())
				}
			}
		})
	}
}
