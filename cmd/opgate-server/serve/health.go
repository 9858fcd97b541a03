package serve

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/opgate/opgate/internal/inflight"
)

// health are checks by name. Each returns the reason why it fails.
type health struct {
	checks map[string]func() error
	// notes are problems, by the name of a check that passes all the same; "" for none.
	notes map[string]func() string
	log   logr.Logger
	last  atomic.Pointer[string]
	// ready is called for each answer that the process is ready. Default: nothing.
	ready func()
}

// ServeHTTP answers 200 if no check fails, else 503, always with the result of each check. The reasons are no secrets.
// A change is logged, once.
func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var lines, reasons []string
	for _, name := range slices.Sorted(maps.Keys(h.checks)) {
		if err := h.checks[name](); err != nil {
			reasons = append(reasons, name+": "+err.Error())
			lines = append(lines, fmt.Sprintf("[-]%s failed: %v", name, err))
			continue
		}
		line := fmt.Sprintf("[+]%s ok", name)
		if note := h.notes[name]; note != nil && note() != "" {
			line += ", but: " + note()
		}
		lines = append(lines, line)
	}
	state := strings.Join(reasons, "; ")
	if last := h.last.Swap(&state); last == nil || *last != state {
		h.log.Info("readiness changed", "ready", state == "", "reason", state)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if state != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else if h.ready != nil {
		h.ready()
	}
	fmt.Fprintln(w, strings.Join(lines, "\n")) //nolint:gosec // plain text, of which no client chooses a part
}

// gauge returns the metric opgate_ready, evaluated at each scrape.
func (h *health) gauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_ready",
		Help: "Whether this replica is ready to answer reviews (1) or not (0).",
	}, func() float64 {
		for _, check := range h.checks {
			if check() != nil {
				return 0
			}
		}
		return 1
	})
}

// addHealth serves /healthz (the process runs), /readyz (it judges) and /snapshot (what it has seen).
func addHealth(ctx context.Context, mgr manager.Manager, address string, ready, snapshot http.Handler) error {
	if address == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/readyz", ready)
	mux.Handle("/snapshot", snapshot)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	server := &manager.Server{Name: "health", Listener: inflight.Listener(listener), Server: &http.Server{Handler: mux,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add the health server: %w", err)
	}
	return nil
}
