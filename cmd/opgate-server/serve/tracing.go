package serve

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
)

const (
	tracerName = "github.com/opgate/opgate"
	// flushTimeout bounds how long a process that stops waits for its last spans to be received.
	flushTimeout = 5 * time.Second
)

// tracing makes spans and exports them by OTLP over gRPC. Reviews do not wait for that: while the collector does not
// answer, spans are dropped.
type tracing struct {
	tracer   trace.Tracer
	shutdown func(context.Context) error
}

// newTracing returns what makes spans for an endpoint, none for "". What else can be set is read from the variables
// OTEL_* of OpenTelemetry. Only traces that the API server records are continued.
func newTracing(ctx context.Context, endpoint string, log logr.Logger) (*tracing, error) {
	if endpoint == "" {
		return &tracing{noop.NewTracerProvider().Tracer(tracerName), func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	described, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "opgate")), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process for traces: %w", err)
	}
	seldom := &rate.Sometimes{First: 1, Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		seldom.Do(func() { log.Info("spans were not exported", "endpoint", endpoint, "error", err.Error()) })
	}))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	return &tracing{provider.Tracer(tracerName), provider.Shutdown}, nil
}

// Start exports spans until the context ends, and then those that are left.
func (t *tracing) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := t.shutdown(ctx); err != nil {
		otel.Handle(err) // no reason for the process to fail
	}
	return nil
}

// checkEndpoint returns an error for what is no URL of a collector.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Port() == "" ||
		u.User != nil || u.Path != "" || u.RawQuery != "" {
		return errors.New("write a URL with a host and a port alone, such as http://collector.tracing:4317, or https for TLS")
	}
	return nil
}
