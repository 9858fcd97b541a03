package serve

import (
	"context"
	"fmt"
	"sync"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
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
)

// addLeader adds the controller of certificates, if there is one, those that the options ask for, and the election of
// the replica that runs them all. One that has led ends: it stops what the leader does at once, and drains.
func (p *process) addLeader(feed *snapshot.Feed, known *packages.Cache) error {
	log := p.log.WithName("loop")
	lost := sync.OnceFunc(func() {
		log.Info("this replica leads no more, it drains and ends")
		p.stop(nil)
	})
	lease, err := manager.NewLease(p.config, p.options.Namespace, p.replica, lost, p.now)
	if err != nil {
		return err
	}
	mgr, err := manager.New(p.config, lease, metrics.Registry, log)
	if err != nil {
		return err
	}
	controllers := p.controllers(lease, known)
	if len(controllers) == 0 {
		return nil
	}
	for _, c := range controllers {
		if err := c.AddTo(mgr); err != nil {
			return fmt.Errorf("add %T: %w", c, err)
		}
	}
	if p.certificates != nil {
		if err := p.add(untilShutdown{p.certificates, p.shutdown}); err != nil {
			return err
		}
	}
	if p.options.BackgroundLoop { // certificates and the backstop need none of the kinds that only the leader reads
		if err := mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error { feed.Lead(); return nil })); err != nil {
			return fmt.Errorf("add the kinds of the leader: %w", err)
		}
	}
	return p.add(untilShutdown{ctrlmanager.RunnableFunc(func(ctx context.Context) error {
		switch err := mgr.Start(ctx); {
		case err != nil:
			p.stop(fmt.Errorf("lead: %w", err))
		case ctx.Err() == nil:
			lost()
		}
		return nil
	}), p.shutdown})
}

// controllers returns what runs on the leader.
func (p *process) controllers(lease *manager.Lease, known *packages.Cache) (all []manager.Controller) {
	o, named := p.options, namedMetrics(p.options)
	held := backstop.NewMetrics(metrics.Registry)
	writes := apply.NewMetrics(metrics.Registry)
	shared := func(name string) apply.Shared {
		return apply.Shared{Writer: apply.Writer{Store: p.store, Metrics: writes}, Events: p.events,
			Log: p.log.WithName(name), Now: p.now}
	}
	if p.certificates != nil {
		all = append(all, p.certificates)
	}
	// With the loop, off deletes what was written before.
	if mode := backstop.Mode(o.Backstop); mode != backstop.Compiled && (o.BackgroundLoop || mode != backstop.Off) {
		all = append(all, &backstop.Controller{Shared: shared("backstop"), Mode: mode, OLM: o.OLMIdentity,
			User: p.user.Username, Namespace: o.Namespace, ApprovalMode: rules.ApprovalMode(o.ApprovalMode),
			ExcludedNamespaces: p.unjudged(), Metrics: held})
	}
	if !o.BackgroundLoop {
		return all
	}
	leading := func() *snapshot.Snapshot {
		if lease.Leads() {
			return p.store.Load()
		}
		return nil
	}
	constraint.RegisterMetrics(metrics.Registry, named, leading, p.now)
	unreviewed := &escape.Controller{Shared: shared("escapes"), Lease: lease, Streams: p.streams, ExcludedNamespaces: p.unjudged()}
	unreviewed.RegisterMetrics(metrics.Registry, leading)
	constraints := &constraint.Controller{Shared: shared("constraints"), Escaped: unreviewed.ByConstraint, Grants: p.grants}
	enqueue := func(string) {}
	if !o.externalDefinition() { // else the owner of the definition acts on policies
		loop := &operatorpolicy.Controller{Shared: shared("loop"), Packages: known,
			Metrics: operatorpolicy.NewMetrics(metrics.Registry, named, leading), Escaped: unreviewed.ByPolicy, Identity: p.replica, Ungoverned: rules.UngovernedMode(o.Ungoverned),
			Grants: p.grants, Key: p.key.Key, HistoryLength: o.StatusHistoryLength}
		enqueue, all = loop.Enqueue, append(all, loop)
	}
	unreviewed.Changed = func(namespace string) {
		enqueue(namespace)
		constraints.Everything()
	}
	all = append(all, constraints, unreviewed,
		&installed.Controller{Shared: shared("installed"), Namespace: o.Namespace},
		&catalogs.Controller{Shared: shared("catalogs"), Streams: p.streams, Namespace: o.Namespace})
	if o.Reports {
		all = append(all, &report.Controller{Shared: shared("reports")})
	}
	if o.Ordering {
		all = append(all, &policy.Controller{Store: p.store, PendingGuards: dependency.PendingGuards(o.PendingGuards),
			Gatekeeper: o.GatekeeperTemplates, Grants: p.grants, ExcludedNamespaces: p.unjudged(), Key: p.key.Key,
			Metrics: policy.NewMetrics(metrics.Registry, leading), Writes: writes, Events: p.events,
			Log: p.log.WithName("ordering"), Now: p.now})
	}
	return all
}
