// Package serve runs the gate: webhook server, snapshot feed, health and metrics, and an orderly end.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/controller/staticpolicy"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/internal/register"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
)

// shutdownTimeout bounds requests that are in flight when the listeners close.
const shutdownTimeout = 20 * time.Second

// Run serves until the context ends, or this replica loses the Lease, then drains.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
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

	config, err := connect(ctx, &o, log)
	if err != nil {
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
	source, certController, err := certificates(config, &o, known.tokens, ready, recorder, time.Now, log)
	if err != nil {
		return err
	}
	server, err := newWebhookServer(ctx, o.WebhookAddress, source, known, log)
	if err != nil {
		return err
	}
	timeout := shutdownTimeout
	mgr, err := manager.New(config, manager.Options{
		Logger:                  log,
		Metrics:                 metricsOptions(&o, source, logLevel{level, log.WithName("log")}),
		HealthProbeBindAddress:  "0", // see addHealth
		GracefulShutdownTimeout: &timeout,
		WebhookServer:           server,
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	p, err := newProcess(ctx, stop, mgr, config, &o, recorder, time.Now, log)
	if err != nil {
		return err
	}
	p.certificates = certController
	if err := errors.Join(p.addProbe(), p.addGate(source, known, wasReady),
		p.add(known, recorder, untilShutdown{source, ctx})); err != nil {
		return err
	}
	log.Info("serving", "webhooks", o.WebhookAddress, "health", o.HealthAddress, "metrics", o.MetricsAddress,
		"approvalMode", o.ApprovalMode, "olmIdentity", o.OLMIdentity[0])
	if err := mgr.Start(server.drain(ctx, o.DrainDelay, o.DrainTimeout, log)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	select {
	case err := <-p.failed:
		return err
	default:
		return nil
	}
}

// connect returns the configuration of clients, with which it has registered the webhooks if the options ask for it.
// The ClusterRole that owns the admission policies of the backstop owns them as well.
func connect(ctx context.Context, o *Options, log logr.Logger) (*rest.Config, error) {
	config, err := (&cli.Kubeconfig{File: o.Kubeconfig}).Load()
	if err != nil {
		return nil, err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return longWatches{next} })
	if o.Register == "" {
		return config, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return config, register.Apply(ctx, register.Options{Client: client, Directory: o.Register, Namespace: o.Namespace,
		Owner: backstop.Name, Log: log.WithName("register")})
}

// process is what the parts of a server share.
type process struct {
	options *Options
	config  *rest.Config
	manager manager.Manager
	client  dynamic.Interface
	// shutdown is done once the process is to stop, as SIGTERM and stop make it. Failed receives why it could not lead.
	shutdown context.Context
	stop     func()
	failed   chan error
	store    *snapshot.Store
	// certificates are kept by the leader; nil where they are not of the cluster.
	certificates *certs.Controller
	// key is what the marks of Policies are signed with, user the name that this process writes as, grants what it may
	// do.
	key    *certs.SigningKey
	user   *identity
	grants grant.Set
	// events records on objects that Opgate decides about, panics what they caused.
	events *events.Recorder
	panics *panics.Recorder
	log    logr.Logger
	now    func() time.Time
}

// newProcess returns a process, and adds what determines its user and its key to the manager.
func newProcess(
	shutdown context.Context, stop func(), mgr manager.Manager, config *rest.Config, o *Options,
	reported *events.Recorder, now func() time.Time, log logr.Logger,
) (*process, error) {
	p := &process{options: o, config: config, manager: mgr, shutdown: shutdown, stop: stop,
		failed: make(chan error, 1), store: &snapshot.Store{},
		events: reported,
		panics: panics.NewRecorder(metrics.Registry, log.WithName("panics")), log: log, now: now}
	var err error
	if p.grants, err = o.grants(); err != nil {
		return nil, err
	}
	if p.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if p.user, err = newIdentity(config, log.WithName("identity")); err != nil {
		return nil, err
	}
	if p.key, err = certs.NewSigningKey(p.client, o.Namespace, log.WithName("marks")); err != nil {
		return nil, err
	}
	if o.Ordering {
		err = p.add(p.key)
	}
	return p, errors.Join(err, p.add(p.user))
}

// add adds what the process runs to the manager.
func (p *process) add(runnables ...manager.Runnable) error {
	for _, r := range runnables {
		if err := p.manager.Add(r); err != nil {
			return fmt.Errorf("add %T: %w", r, err)
		}
	}
	return nil
}

// unjudged returns the namespaces that the webhook configurations exclude.
func (p *process) unjudged() []string {
	return slices.Concat([]string{p.options.Namespace}, p.options.ExcludedNamespaces)
}

// addProbe adds what asks for static policies, if that is wanted.
func (p *process) addProbe() error {
	if !p.options.ProbeStaticPolicies {
		return nil
	}
	return p.add(staticpolicy.NewProber(p.manager.GetClient(), p.options.Namespace, p.log.WithName("static-policies"),
		metrics.Registry))
}
