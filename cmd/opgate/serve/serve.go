// Package serve runs the gate: webhook server, snapshot feed, health and metrics, and an orderly end.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/cmd/opgate/kubeconfig"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/rules"
)

// shutdownTimeout bounds what is still in flight when the listeners close.
const shutdownTimeout = 20 * time.Second

// Run serves until the context ends, then drains.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	log, flush, err := newLogger(&o)
	if err != nil {
		return err
	}
	defer flush()
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))

	config, err := kubeconfig.Load(o.Kubeconfig)
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next} })
	source, err := certificates(&o)
	if err != nil {
		return err
	}
	var draining atomic.Bool
	mgr, err := newManager(config, &o, source, log)
	if err != nil {
		return err
	}
	if err := addGate(mgr, config, &o, &draining, log); err != nil {
		return err
	}
	if source.Run != nil {
		if err := mgr.Add(everyReplica{source.Run}); err != nil {
			return fmt.Errorf("add the certificate source: %w", err)
		}
	}
	log.Info("serving", "webhooks", o.WebhookAddress, "health", o.HealthAddress, "metrics", o.MetricsAddress, "approvalMode", o.ApprovalMode, "olmIdentities", o.OLMIdentities)
	if err := mgr.Start(drain(ctx, &draining, o.DrainDelay, log)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	return nil
}

// drain gives the manager a context that ends a delay after the process was told to stop. In between,
// readiness fails and every review is still answered (threat G23).
func drain(ctx context.Context, draining *atomic.Bool, delay time.Duration, log logr.Logger) context.Context {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		draining.Store(true)
		log.Info("draining", "delay", delay.String())
		time.AfterFunc(delay, stop)
	})
	return serving
}

func newManager(config *rest.Config, o *Options, source certs.Source, log logr.Logger) (manager.Manager, error) {
	host, port, err := splitAddress(o.WebhookAddress)
	if err != nil {
		return nil, err
	}
	timeout := shutdownTimeout
	mgr, err := manager.New(config, manager.Options{
		Logger:                  log,
		Metrics:                 metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:  "0", // served by healthServer, which also shows the snapshot
		GracefulShutdownTimeout: &timeout,
		WebhookServer: webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			c.GetCertificate = source.GetCertificate
			// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
			c.NextProtos = []string{"http/1.1"}
		}}}),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

// addGate wires snapshot, handlers and health into the manager.
func addGate(mgr manager.Manager, config *rest.Config, o *Options, draining *atomic.Bool, log logr.Logger) error {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	authorization, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	store := &admission.Store{}
	if err := addReaders(mgr, config, dynamicClient, store, o, log); err != nil {
		return err
	}
	gate, err := admission.New(admission.Options{
		Store:         store,
		Metrics:       admission.NewMetrics(metrics.Registry, store, time.Now),
		Authorizer:    admission.SubjectAccessReviews{Client: authorization.SubjectAccessReviews()},
		OLMIdentities: o.OLMIdentities,
		ApprovalMode:  rules.ApprovalMode(o.ApprovalMode),
		Log:           log.WithName("admission"),
		Now:           time.Now,
	})
	if err != nil {
		return err
	}
	server := mgr.GetWebhookServer()
	for path, handler := range gate.Handlers() {
		server.Register(path, handler)
	}
	converter, err := conversion.NewWebhook(log.WithName("conversion"))
	if err != nil {
		return err
	}
	server.Register(conversion.Path, converter)
	return addHealth(mgr, o.HealthAddress, healthChecks{
		"snapshot": func(*http.Request) error {
			if store.Load() == nil {
				return errors.New("policies and operators are still being read")
			}
			return nil
		},
		"webhooks": server.StartedChecker(),
		"draining": func(*http.Request) error {
			if draining.Load() {
				return errors.New("the process is stopping")
			}
			return nil
		},
	}, store)
}

type healthChecks map[string]healthz.Checker

// addHealth serves /healthz (the process runs), /readyz (it judges) and /snapshot (what it has seen).
func addHealth(mgr manager.Manager, address string, ready healthChecks, snapshot http.Handler) error {
	if address == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", http.StripPrefix("/healthz", &healthz.Handler{}))
	mux.Handle("/readyz", http.StripPrefix("/readyz", &healthz.Handler{Checks: ready}))
	mux.Handle("/snapshot", snapshot)
	server := &manager.Server{Name: "health", Server: &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add the health server: %w", err)
	}
	return nil
}

// everyReplica runs something whether or not the replica leads.
type everyReplica struct{ run func(context.Context) error }

func (r everyReplica) Start(ctx context.Context) error { return r.run(ctx) }
func (r everyReplica) NeedLeaderElection() bool        { return false }

func certificates(o *Options) (certs.Source, error) {
	if !o.SelfSigned {
		return certs.Files(o.CertFile, o.KeyFile)
	}
	host, _, err := splitAddress(o.WebhookAddress)
	if err != nil {
		return certs.Source{}, err
	}
	if host == "" {
		host = "localhost"
	}
	source, err := certs.SelfSigned(host)
	if err != nil || o.SelfSignedCA == "" {
		return source, err
	}
	if err := os.WriteFile(o.SelfSignedCA, source.CABundle, 0o600); err != nil {
		return certs.Source{}, fmt.Errorf("write the CA: %w", err)
	}
	return source, nil
}

func newLogger(o *Options) (logr.Logger, func(), error) {
	level, err := zapcore.ParseLevel(o.LogLevel)
	if err != nil {
		return logr.Logger{}, nil, err
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(level)
	config.Encoding = o.LogFormat
	config.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	config.Sampling = nil // a refusal that is not logged cannot be explained later
	config.DisableStacktrace = true
	logger, err := config.Build()
	if err != nil {
		return logr.Logger{}, nil, fmt.Errorf("make the logger: %w", err)
	}
	return zapr.NewLogger(logger), func() { _ = logger.Sync() }, nil // stderr cannot be synced everywhere
}
