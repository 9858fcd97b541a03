package serve

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/backstop"
	"github.com/opgate/opgate/controller/catalogs"
	"github.com/opgate/opgate/controller/constraint"
	"github.com/opgate/opgate/controller/escape"
	"github.com/opgate/opgate/controller/installed"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/operatorpolicy"
	"github.com/opgate/opgate/controller/policy"
	"github.com/opgate/opgate/controller/report"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
	"github.com/opgate/opgate/stream"
)

// leader are the controllers of the replica that leads, and what they share.
type leader struct {
	*process
	// identity is the name of this replica.
	identity    string
	lease       *manager.Lease
	records     *escape.Records
	writes      *apply.Metrics
	named       prometheus.Registerer
	policies    *operatorpolicy.Metrics
	constraints *constraint.Metrics
	controllers []manager.Controller
	errs        []error
}

// with adds a controller.
func (l *leader) with(c manager.Controller, err error) {
	l.controllers, l.errs = append(l.controllers, c), append(l.errs, err)
}

// addLeader adds the controllers that the options ask for, if any, and the election of the replica that runs them.
func (p *process) addLeader(feed *snapshot.Feed, known *packages.Cache) error {
	lease, err := manager.NewLease(p.config, p.options.Namespace)
	if err != nil {
		return err
	}
	identity, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this replica: %w", err)
	}
	named := namedMetrics(p.options)
	l := &leader{process: p, identity: identity, lease: lease, named: named,
		records: escape.NewRecords(lease, metrics.Registry, p.log.WithName("escapes")),
		writes:  apply.NewMetrics(metrics.Registry), policies: operatorpolicy.NewMetrics(metrics.Registry, named),
		constraints: constraint.NewMetrics(metrics.Registry, named)}
	held, leaderMetrics := backstop.NewMetrics(metrics.Registry), manager.NewMetrics(metrics.Registry)
	lead := func() {} // the backstop needs none of the kinds that only the leader reads
	if p.options.BackgroundLoop {
		lead = feed.Lead
		l.withLoop(known, feed.Client)
	}
	// With the loop, off deletes what was written before.
	mode := backstop.Mode(p.options.Backstop)
	if mode != backstop.Compiled && (p.options.BackgroundLoop || mode != backstop.Off) {
		l.with(backstop.New(backstop.Options{Store: p.store, Mode: mode, OLM: p.options.OLMIdentity,
			User: p.user.Username, Namespace: p.options.Namespace,
			ApprovalMode: rules.ApprovalMode(p.options.ApprovalMode), ExcludedNamespaces: p.unjudged(), Metrics: held,
			Writes: l.writes, Events: p.events, Log: p.log.WithName("backstop"), Now: p.now}))
	}
	if err := errors.Join(l.errs...); err != nil || len(l.controllers) == 0 {
		return err
	}
	elected, err := manager.New(manager.Options{Config: p.config, Store: p.store, Lease: lease, Identity: identity,
		Lead: lead, Metrics: leaderMetrics, Controllers: l.controllers, Log: p.log.WithName("loop"), Now: p.now})
	if err != nil {
		return err
	}
	return p.add(untilShutdown{elected, p.shutdown})
}

// withLoop adds the controllers of the background loop.
func (l *leader) withLoop(known *packages.Cache, streams *stream.Client) {
	o := l.options
	enqueue := func(string) {}
	if !o.externalDefinition() { // else the owner of the definition acts on policies
		loop, err := operatorpolicy.New(operatorpolicy.Options{Store: l.store, Packages: known, Metrics: l.policies,
			Writes: l.writes, Events: l.events, Escaped: l.records.ByPolicy, Identity: l.identity,
			Ungoverned: rules.UngovernedMode(o.Ungoverned), Grants: l.grants, Key: l.key.Key, HistoryLength: o.StatusHistoryLength,
			Log: l.log.WithName("loop"), Now: l.now})
		enqueue = loop.Enqueue
		l.with(loop, err)
	}
	l.with(installed.New(installed.Options{Store: l.store, Namespace: o.Namespace, Writes: l.writes,
		Events: l.events, Log: l.log.WithName("installed")}))
	constraints, err := constraint.New(constraint.Options{Store: l.store, Metrics: l.constraints, Writes: l.writes,
		Escaped: l.records.ByConstraint, ExceptionEnd: l.policies.ExceptionEnd, Events: l.events, Grants: l.grants,
		Log: l.log.WithName("constraints"), Now: l.now})
	l.with(constraints, err)
	l.with(escape.New(escape.Options{Store: l.store, Records: l.records,
		ExcludedNamespaces: l.unjudged(), Events: l.events, Writes: l.writes,
		Log: l.log.WithName("escapes"), Now: l.now,
		Changed: func(namespace string) {
			enqueue(namespace)
			constraints.Everything()
		}}))
	l.with(catalogs.New(catalogs.Options{Store: l.store, Client: streams, Namespace: o.Namespace, Writes: l.writes,
		Events: l.events, Log: l.log.WithName("catalogs"), Now: l.now}))
	if o.Reports {
		l.with(report.New(report.Options{Store: l.store, Writes: l.writes, Log: l.log.WithName("reports"), Now: l.now}))
	}
	if o.Ordering {
		l.with(&policy.Controller{Store: l.store, PendingGuards: dependency.PendingGuards(o.PendingGuards),
			Gatekeeper: o.GatekeeperTemplates, Grants: l.grants, ExcludedNamespaces: l.unjudged(), Key: l.key.Key,
			Metrics: policy.NewMetrics(metrics.Registry, l.store), Writes: l.writes, Events: l.events,
			Log: l.log.WithName("ordering"), Now: l.now}, nil)
	}
}
