package admission

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/opgate/opgate/rules/verdict"
)

// traceHeader has the trace that a request belongs to.
const traceHeader = "traceparent"

// trace begins the span of a review, as a part of the API server's trace, if it has one. Of a client that is not
// authenticated there is none: it could choose which trace is recorded.
func (e *endpoint[New, Old]) trace(
	ctx context.Context, r *http.Request, authenticated bool,
) (context.Context, trace.Span) {
	if !authenticated || r.Header.Get(traceHeader) == "" {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	return e.gate.Tracer.Start(ctx, "review "+e.kind, trace.WithSpanKind(trace.SpanKindServer))
}

// describe sets the keys of a review in the log as attributes of its span.
func describe[New, Old any](span trace.Span, req *request[New, Old], v *verdict.Verdict) {
	if !span.IsRecording() {
		return
	}
	keys := reviewKeys(req, v)
	for i := 0; i < len(keys); i += 2 {
		key := attribute.Key("opgate." + keys[i].(string))
		switch value := keys[i+1].(type) {
		case string:
			span.SetAttributes(key.String(value))
		case []string:
			span.SetAttributes(key.StringSlice(value))
		case bool:
			span.SetAttributes(key.Bool(value))
		case int:
			span.SetAttributes(key.Int(value))
		}
	}
}
