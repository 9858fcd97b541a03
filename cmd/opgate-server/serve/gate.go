package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// addGate adds snapshot, controllers, handlers and health. It calls wasReady for each probe that is answered with
// ready. Once the process is to stop it is not ready any more.
func (p *process) addGate(source certs.Source, known *callers, wasReady func()) error {
	olm, candidates, err := p.addOLMIdentity()
	if err != nil {
		return err
	}
	defined, err := p.addDefinition()
	if err != nil {
		return err
	}
	feed, catalogs, err := p.addReaders(defined.Versions())
	if err != nil {
		return err
	}
	if err := p.addLeader(feed, catalogs); err != nil {
		return err
	}
	budget := inflight.NewBudget(metrics.Registry)
	gate := admission.New(admission.Options{
		Store:         p.store,
		Metrics:       admission.NewMetrics(metrics.Registry, p.store, p.now),
		Budget:        budget,
		Panics:        p.panics,
		Authorizer:    admission.SubjectAccessReviews{Client: p.authorization.SubjectAccessReviews()},
		Authenticated: known.authenticated,
		Exposed:       known.exposed,
		Key:           p.key.Key,
		OLM:           olm,
		Candidates:    candidates,
		Identity:      p.user.Username,
		Catalogs:      catalogs,
		ApprovalMode:  rules.ApprovalMode(p.options.ApprovalMode),
		Grants:        p.grants,
		Unbacked:      p.options.unbacked(),
		Events:        p.events,
		Log:           p.log.WithName("admission"),
		Now:           p.now,
	})
	for path, handler := range gate.Handlers() {
		known.register(p.manager.GetWebhookServer(), path, handler)
	}
	p.manager.GetWebhookServer().Register(conversion.Path, conversion.NewWebhook(conversion.Options{Budget: budget,
		Panics: p.panics, Log: p.log.WithName("conversion")}))
	notes := map[string]func() string{
		"olm-identity":     func() string { return cmp.Or(olm.State().Problem, candidates.Note()) },
		"operatorpolicies": defined.Note,
	}
	ready := &health{log: p.log.WithName("health"), ready: wasReady, checks: p.checks(feed, source, olm), notes: notes}
	metrics.Registry.MustRegister(ready.gauge())
	return addHealth(p.shutdown, p.manager, p.options.HealthAddress, ready, p.store)
}

// checks returns what has to be so for this replica to be ready.
func (p *process) checks(feed *snapshot.Feed, source certs.Source, olm *olmidentity.Identity) map[string]func() error {
	return map[string]func() error{
		"snapshot": func() error {
			if p.store.Load() == nil && !feed.AwaitsConversion() {
				return errors.New("policies and operators are still being read")
			}
			return nil
		},
		"watches": func() error {
			if stale := p.store.Stale(); len(stale) > 0 && !feed.AwaitsConversion() {
				return fmt.Errorf("the watch of %s shows no progress, so policies and operators may have changed since",
					snapshot.Names(stale))
			}
			return nil
		},
		"marks": func() error {
			if p.options.Ordering && len(p.key.Key()) == 0 {
				return errors.New("the key that marks of Policies are signed with is not known")
			}
			return nil
		},
		"certificate": func() error {
			if !source.Healthy() {
				return errors.New("there is no valid serving certificate")
			}
			return nil
		},
		"olm-identity": func() error {
			// A rejected identity does not make the pod unready: everything is judged, OLM's writes like all others.
			if s := olm.State(); s.Reason == olmidentity.Unverified {
				return errors.New(s.Problem)
			}
			return nil
		},
		"operatorpolicies": func() error { return nil }, // for its note
		"draining": func() error {
			if p.shutdown.Err() != nil {
				return errors.New("the process is stopping")
			}
			return nil
		},
	}
}

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

// Reviews serves the endpoints of reviews as Run does, without an API server: the snapshot is the caller's, every
// request counts as the API server's, and no user has rights. "make bench" measures it. It calls listening with the
// address and with the CA that clients must trust, PEM-encoded, and serves until the context ends.
func Reviews(
	ctx context.Context, o Options, store *snapshot.Store, listening func(address net.Addr, ca []byte) error,
) error {
	log := newLogger(&o, os.Stderr)
	ctrl.SetLogger(log)
	if err := limitMemory(); err != nil {
		return err
	}
	account, err := olmidentity.Parse(o.OLMIdentity[0])
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.WebhookAddress)
	if err != nil {
		return err
	}
	source, ca, err := certs.SelfSigned(host)
	if err != nil {
		return err
	}
	known := &callers{tokens: &certs.Callers{Now: time.Now}}
	server, err := newWebhookServer(ctx, &o, source, known, log)
	if err != nil {
		return err
	}
	gate := admission.New(admission.Options{
		Store:         store,
		Metrics:       admission.NewMetrics(metrics.Registry, store, time.Now),
		Budget:        inflight.NewBudget(metrics.Registry),
		Panics:        panics.NewRecorder(metrics.Registry, log.WithName("panics")),
		Authorizer:    noRights{},
		Authenticated: func(*http.Request) bool { return true },
		OLM:           olmidentity.New(account),
		ApprovalMode:  rules.ApprovalMode(o.ApprovalMode),
		Log:           log.WithName("admission"),
		Now:           time.Now,
	})
	for path, handler := range gate.Handlers() {
		known.register(server, path, handler)
	}
	if err := listening(server.connections.listener.Addr(), ca); err != nil {
		return err
	}
	return server.Start(ctx)
}

// noRights answers for an API server that is not there.
type noRights struct{}

func (noRights) May(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	return false, errors.New("there is no API server")
}
