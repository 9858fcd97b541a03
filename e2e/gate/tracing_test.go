package gate

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/opgate/opgate/e2e/harness"
)

// spans are what the API server and Opgate send to a collector.
type spans struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu   sync.Mutex
	byID map[string]*tracev1.Span
}

func collectSpans(t *testing.T) *spans {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &spans{address: listener.Addr().String(), byID: map[string]*tracev1.Span{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)
	return s
}

// Export receives spans.
func (s *spans) Export(
	_ context.Context, request *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.byID[string(span.GetSpanId())] = span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// wantReview waits for the span of a review in a namespace with a decision, and wants it to be within the API server's trace of the
// request.
func (s *spans) wantReview(t *testing.T, name, namespace, decision string) {
	t.Helper()
	harness.Eventually(t, "see the span of a review", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, span := range s.byID {
			if span.GetName() != name || attributeOf(span, "opgate.namespace") != namespace ||
				attributeOf(span, "opgate.decision") != decision {
				continue
			}
			parent := s.byID[string(span.GetParentSpanId())]
			if parent == nil {
				return fmt.Errorf("the span that %q is in is not there yet", name)
			}
			if string(parent.GetTraceId()) != string(span.GetTraceId()) {
				t.Fatalf("%q is in another trace than %q", name, parent.GetName())
			}
			return nil
		}
		return fmt.Errorf("none of %d spans is %q in namespace %s, %s", len(s.byID), name, namespace, decision)
	})
}

func attributeOf(span *tracev1.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
