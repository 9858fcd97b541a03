package serve

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// spanCollector receives spans.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	names chan string
}

func (c *spanCollector) Export(
	_ context.Context, request *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.names <- span.GetName()
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// recorded is the context of a trace that the API server records.
func recorded(t *testing.T) context.Context {
	return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// TestTracing sends spans to a collector, the last when the process stops.
func TestTracing(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, received := grpc.NewServer(), &spanCollector{names: make(chan string, 9)}
	collector.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)
	// What is logged is no part of it: the library reports to the last handler what exporters of other tests still do.
	spans, err := newTracing(t.Context(), "http://"+listener.Addr().String(), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{"recorded": recorded(t), "not recorded": t.Context()} {
		_, span := spans.tracer.Start(ctx, name)
		span.End()
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := spans.Start(ctx); err != nil {
		t.Fatal(err)
	}
	close(received.names)
	var got []string
	for name := range received.names {
		got = append(got, name)
	}
	if len(got) != 1 || got[0] != "recorded" {
		t.Errorf("the collector has %q, want the recorded one", got)
	}
}

// TestTracingWithoutCollector ends spans while nothing listens: that takes no time, and the end of the process a while
// at most.
func TestTracingWithoutCollector(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // it accepts, and answers nothing
	logged := make(chan string, 9)
	log := funcr.New(func(_, args string) { logged <- args }, funcr.Options{})
	spans, err := newTracing(t.Context(), "http://"+listener.Addr().String(), log)
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than are kept
		_, span := spans.tracer.Start(recorded(t), "review")
		span.End()
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := spans.Start(ctx); err != nil {
		t.Errorf("the process fails: %v", err)
	}
	select {
	case line := <-logged:
		if !strings.Contains(line, "spans were not exported") {
			t.Errorf("it logs %s", line)
		}
	default:
		t.Error("it logs nothing")
	}
}

// TestNoTracing makes no spans without an endpoint.
func TestNoTracing(t *testing.T) {
	spans, err := newTracing(t.Context(), "", funcr.New(func(_, _ string) {}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, span := spans.tracer.Start(recorded(t), "review"); span.IsRecording() {
		t.Error("a span is recorded")
	}
}
