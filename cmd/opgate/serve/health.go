package serve

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// health are checks by name. Each gives the reason why it fails.
type health struct {
	checks map[string]func() error
	log    logr.Logger
	last   atomic.Pointer[string]
}

// ServeHTTP answers 200 if no check fails, else 503, and always says what each check says. The reasons are no secrets.
// A change is logged, once.
func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var lines, reasons []string
	for _, name := range slices.Sorted(maps.Keys(h.checks)) {
		if err := h.checks[name](); err != nil {
			reasons = append(reasons, name+": "+err.Error())
			lines = append(lines, fmt.Sprintf("[-]%s failed: %v", name, err))
			continue
		}
		lines = append(lines, fmt.Sprintf("[+]%s ok", name))
	}
	state := strings.Join(reasons, "; ")
	if last := h.last.Swap(&state); last == nil || *last != state {
		h.log.Info("readiness changed", "ready", state == "", "reason", state)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if state != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// addHealth serves /healthz (the process runs), /readyz (it judges) and /snapshot (what it has seen).
func addHealth(mgr manager.Manager, address string, ready, snapshot http.Handler) error {
	if address == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/readyz", ready)
	mux.Handle("/snapshot", snapshot)
	server := &manager.Server{Name: "health", Server: &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: readHeaderTimeout}}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add the health server: %w", err)
	}
	return nil
}
