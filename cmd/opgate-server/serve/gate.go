package serve

import (
	"cmp"
	"errors"
	"fmt"

	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// addGate adds snapshot, controllers, handlers and health. It calls wasReady for each probe that is answered with
// ready. Once the process is to stop it is not ready any more.
func (p *process) addGate(source certs.Source, known *callers, wasReady func()) error {
	authorization, err := authorizationclient.NewForConfig(p.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	olm, candidates, err := p.addOLMIdentity(authorization.SubjectAccessReviews())
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
	gate, err := admission.New(admission.Options{
		Store:         p.store,
		Metrics:       admission.NewMetrics(metrics.Registry, p.store, p.now),
		Budget:        budget,
		Panics:        p.panics,
		Authorizer:    admission.SubjectAccessReviews{Client: authorization.SubjectAccessReviews()},
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
	if err != nil {
		return err
	}
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
