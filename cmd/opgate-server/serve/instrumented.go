package serve

import (
	"net/http"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// instrumented returns a handler that measures a webhook with the metrics controller_runtime_webhook_latency_seconds,
// _requests_total and _requests_in_flight. Only the library's server can wrap a handler with them: it registers the handler
// and is never started.
func instrumented(path string, handler http.Handler) http.Handler {
	mux := http.NewServeMux()
	webhook.NewServer(webhook.Options{WebhookMux: mux}).Register(path, handler)
	measured, _ := mux.Handler(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}})
	return measured
}
