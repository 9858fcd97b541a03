// Package serve runs the gate: webhook server, snapshot feed, health and metrics, and an orderly end.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolsevents "k8s.io/client-go/tools/events"
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
	"github.com/opgate/opgate/stream"
)

// shutdownTimeout bounds requests that are in flight when the listeners close.
const shutdownTimeout = 20 * time.Second

// Run serves until the context ends, or this replica loses the Lease, then drains.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := o.Validate(); err != nil {
		return err
	}
	log := newLogger(&o, os.Stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	if err := limitMemory(); err != nil {
		return err
	}

	c, err := connect(&o)
	if err != nil {
		return err
	}
	if o.Register != "" { // the ClusterRole that owns the admission policies of the backstop owns the webhooks as well
		if err := register.Apply(ctx, register.Options{Client: c.dynamic, Directory: o.Register, Namespace: o.Namespace,
			Owner: backstop.Name, Log: log.WithName("register")}); err != nil {
			return err
		}
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
	replica, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this replica: %w", err)
	}
	recorder := events.NewRecorder(events.Options{Sink: &toolsevents.EventSinkImpl{Interface: c.eventSink},
		Instance: replica, Registry: metrics.Registry, Log: log.WithName("events"), Now: time.Now})
	source, certController, err := certificates(c.config, &o, known.tokens, ready, recorder, log)
	if err != nil {
		return err
	}
	server, err := newWebhookServer(ctx, &o, source, known, log)
	if err != nil {
		return err
	}
	mgr, err := manager.New(c.config, manager.Options{
		Logger:                  log,
		Metrics:                 metricsOptions(&o, c, source),
		HealthProbeBindAddress:  "0", // see addHealth
		GracefulShutdownTimeout: new(shutdownTimeout),
		WebhookServer:           server,
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	p := &process{options: &o, clients: c, replica: replica, manager: mgr, shutdown: ctx, stop: stop,
		store: &snapshot.Store{}, certificates: certController,
		user:   &identity{client: c.authentication.SelfSubjectReviews(), log: log.WithName("identity")},
		events: recorder, panics: panics.NewRecorder(metrics.Registry, log.WithName("panics")), log: log, now: time.Now}
	if p.grants, err = o.grants(); err != nil {
		return err
	}
	p.key = certs.NewSigningKey(c.dynamic, o.Namespace, log.WithName("marks"))
	runnables := []manager.Runnable{p.user, known, recorder, untilShutdown{source, ctx}}
	if o.Ordering {
		runnables = append(runnables, p.key)
	}
	if o.ProbeStaticPolicies {
		runnables = append(runnables, staticpolicy.NewProber(mgr.GetClient(), o.Namespace, log.WithName("static-policies"),
			metrics.Registry))
	}
	if err := errors.Join(p.addGate(source, known, wasReady), p.add(runnables...)); err != nil {
		return err
	}
	log.Info("serving", "webhooks", o.WebhookAddress, "health", o.HealthAddress, "metrics", o.MetricsAddress,
		"approvalMode", o.ApprovalMode, "olmIdentity", o.OLMIdentity[0])
	if err := mgr.Start(server.drain(ctx, o.DrainDelay, o.DrainTimeout, log)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("stopped")
	if why := context.Cause(ctx); !errors.Is(why, context.Canceled) {
		return why
	}
	return nil
}

// clients are those of the API server, of one configuration.
type clients struct {
	config         *rest.Config
	dynamic        dynamic.Interface
	metadata       metadata.Interface
	streams        *stream.Client
	authentication authenticationclient.AuthenticationV1Interface
	authorization  authorizationclient.AuthorizationV1Interface
	eventSink      eventsclient.EventsV1Interface
}

// connect returns the clients.
func connect(o *Options) (c clients, err error) {
	if c.config, err = (&cli.Kubeconfig{File: o.Kubeconfig}).Load(); err != nil {
		return c, err
	}
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return longWatches{next} })
	var errs [6]error
	c.dynamic, errs[0] = dynamic.NewForConfig(c.config)
	c.metadata, errs[1] = metadata.NewForConfig(c.config)
	c.streams, errs[2] = stream.NewForConfig(c.config)
	c.authentication, errs[3] = authenticationclient.NewForConfig(c.config)
	c.authorization, errs[4] = authorizationclient.NewForConfig(c.config)
	c.eventSink, errs[5] = eventsclient.NewForConfig(c.config)
	return c, errors.Join(errs[:]...)
}

// process is what the parts of a server share.
type process struct {
	clients
	options *Options
	// replica is the name of this replica.
	replica string
	manager manager.Manager
	// shutdown is done once the process is to stop, as SIGTERM and stop make it: for an error, or none.
	shutdown context.Context
	stop     context.CancelCauseFunc
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

// memoryLimitVariable holds the memory limit of the container in bytes. The chart sets it from the limit itself.
const memoryLimitVariable = "OPGATE_MEMORY_LIMIT"

const (
	// gcPercent makes the collector run when the heap has grown by half. Most of the heap is the snapshot, which lives
	// for long: with the default, which lets it double, a third of the memory of a large cluster would be garbage.
	gcPercent = 50
	// gcGrowth is what the heap grows by at least, in bytes. Half of a small heap is the garbage of two reviews of the
	// largest plans: a fifth of the CPU time of reviews was the collector's.
	gcGrowth = 16 << 20
)

// ballast is never read or written, so it is memory for the collector and none for the kernel: gcPercent of it is
// gcGrowth. A percentage that is set anew after each collection would do the same at rest, and let the heap of a small
// process triple while many large requests arrive at once, before it is set again.
var ballast []byte //nolint:unused // that is its use

// limitMemory sets how often the runtime collects, unless GOGC does, and its soft memory limit, so that it collects
// before the process is OOM-killed. The runtime does not count all that the kernel does, so it gets nine tenths of the
// limit. GOMEMLIMIT, which the runtime reads itself, wins.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, gcGrowth*100/gcPercent)
		debug.SetGCPercent(gcPercent)
	}
	text := os.Getenv(memoryLimitVariable)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%s: %q is not a number of bytes", memoryLimitVariable, text)
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	return nil
}
