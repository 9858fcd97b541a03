// Package serve runs the gate: webhook server, snapshot feed, health and metrics, and an orderly end.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// shutdownTimeout bounds requests that are in flight when the listeners close.
const shutdownTimeout = 20 * time.Second

// Run serves until the context ends, then drains.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	log, level, err := newLogger(&o, os.Stderr)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	if err := limitMemory(); err != nil {
		return err
	}

	config, err := (&cli.Kubeconfig{File: o.Kubeconfig}).Load()
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next} })
	if err := registerWebhooks(ctx, config, &o, log.WithName("register")); err != nil {
		return err
	}
	known, err := newCallers(&o, time.Now)
	if err != nil {
		return err
	}
	// Who probes readiness has seen that this replica is ready; without probes it counts as ready.
	ready := make(chan struct{})
	wasReady := sync.OnceFunc(func() { close(ready) })
	if o.HealthAddress == "0" {
		wasReady()
	}
	recorder, err := newEvents(config, time.Now, log.WithName("events"))
	if err != nil {
		return err
	}
	source, upkeep, err := certificates(config, &o, known.tokens, ready, recorder, time.Now, log)
	if err != nil {
		return err
	}
	timeout := shutdownTimeout
	mgr, err := manager.New(config, manager.Options{
		Logger:                  log,
		Metrics:                 metricsOptions(&o, source, logLevel{level, log.WithName("log")}, time.Now),
		HealthProbeBindAddress:  "0", // see addHealth
		GracefulShutdownTimeout: &timeout,
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	server, err := newWebhookServer(ctx, o.WebhookAddress, source, known, log)
	if err != nil {
		return err
	}
	if err := addGate(ctx, mgr, config, &o, server.mux, source, known, recorder, wasReady, log); err != nil {
		return err
	}
	runnables := []manager.Runnable{&server.Server, known, recorder}
	for _, r := range upkeep {
		runnables = append(runnables, untilShutdown{r, ctx})
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("add %T: %w", r, err)
		}
	}
	log.Info("serving", "webhooks", o.WebhookAddress, "health", o.HealthAddress, "metrics", o.MetricsAddress, "approvalMode", o.ApprovalMode, "olmIdentity", o.OLMIdentity[0])
	if err := mgr.Start(server.drain(ctx, o.DrainDelay, o.DrainTimeout, log)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	return nil
}

// addGate wires snapshot, handlers and health into the manager. It calls wasReady for each probe that is answered with ready. Once
// shutdownContext is done the process is not ready any more.
func addGate(
	shutdownContext context.Context, mgr manager.Manager, config *rest.Config, o *Options, mux *http.ServeMux, source certs.Source, known *callers,
	reported *events.Recorder, wasReady func(), log logr.Logger,
) error {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	authorization, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	authentication, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	self := &identity{client: authentication.SelfSubjectReviews(), log: log.WithName("identity")}
	if err := mgr.Add(self); err != nil {
		return fmt.Errorf("add %T: %w", self, err)
	}
	olm, candidates, err := addOLMIdentity(mgr, config, authorization.SubjectAccessReviews(), o, time.Now, log.WithName("olm-identity"))
	if err != nil {
		return err
	}
	key, err := certs.NewSigningKey(dynamicClient, o.Namespace, log.WithName("marks"))
	if err != nil {
		return err
	}
	if o.Ordering {
		if err := mgr.Add(key); err != nil {
			return fmt.Errorf("add %T: %w", key, err)
		}
	}
	store := &snapshot.Store{}
	recorder := panics.NewRecorder(metrics.Registry, log.WithName("panics"))
	defined, err := addDefinition(mgr, dynamicClient, o, log.WithName("definition"))
	if err != nil {
		return err
	}
	grants, err := o.grants()
	if err != nil {
		return err
	}
	feed, catalogs, err := addReaders(shutdownContext, mgr, config, dynamicClient, defined.Versions(), store, recorder, reported, key.Key, self.Username, grants, o, log)
	if err != nil {
		return err
	}
	budget := inflight.NewBudget(metrics.Registry)
	gate, err := admission.New(admission.Options{
		Store:         store,
		Metrics:       admission.NewMetrics(metrics.Registry, store, time.Now),
		Budget:        budget,
		Panics:        recorder,
		Authorizer:    admission.SubjectAccessReviews{Client: authorization.SubjectAccessReviews()},
		Authenticated: known.authenticated,
		Exposed:       known.exposed,
		Key:           key.Key,
		OLM:           olm,
		Candidates:    candidates,
		Identity:      self.Username,
		Catalogs:      catalogs,
		ApprovalMode:  rules.ApprovalMode(o.ApprovalMode),
		Grants:        grants,
		Events:        reported,
		Log:           log.WithName("admission"),
		Now:           time.Now,
	})
	if err != nil {
		return err
	}
	for path, handler := range gate.Handlers() {
		known.handle(mux, path, handler)
	}
	converter, err := conversion.NewWebhook(conversion.Options{Budget: budget, Panics: recorder, Log: log.WithName("conversion")})
	if err != nil {
		return err
	}
	mux.Handle(conversion.Path, instrumented(conversion.Path, converter))
	ready := &health{log: log.WithName("health"), ready: wasReady, checks: map[string]func() error{
		"snapshot": func() error {
			if store.Load() == nil && !feed.AwaitsConversion() {
				return errors.New("policies and operators are still being read")
			}
			return nil
		},
		"watches": func() error {
			if stale := store.Stale(); len(stale) > 0 && !feed.AwaitsConversion() {
				return fmt.Errorf("the watch of %s shows no progress, so policies and operators may have changed since", snapshot.Names(stale))
			}
			return nil
		},
		"marks": func() error {
			if o.Ordering && len(key.Key()) == 0 {
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
			if shutdownContext.Err() != nil {
				return errors.New("the process is stopping")
			}
			return nil
		},
	}, notes: map[string]func() string{"olm-identity": func() string { return cmp.Or(olm.State().Problem, candidates.Note()) },
		"operatorpolicies": defined.Note}}
	metrics.Registry.MustRegister(ready.gauge())
	return addHealth(shutdownContext, mgr, o.HealthAddress, ready, store)
}
