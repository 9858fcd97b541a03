package certs

import (
	"context"
	"errors"
	"slices"
	"time"
)

// reconcilePaths writes paths that end in a token. Where the API server authenticates by certificate, it only fills in
// the paths that manifests leave out: a token that another replica has written, as during a change of flags, is
// harmless there.
func (k *Controller) reconcilePaths(ctx context.Context) error {
	var failed []error
	for _, r := range k.registrations {
		if k.routed(r) {
			continue
		}
		if err := k.limiter.Wait(ctx); err != nil {
			return err
		}
		var token string
		if k.options.Callers != nil {
			token = newToken()
			k.options.Callers.expect(token)
		}
		switch written, err := r.route(ctx, token); {
		case err != nil:
			failed = append(failed, err)
		case written:
			k.options.Log.Info("wrote paths", "kind", r.kind.Kind, "name", r.name)
		}
	}
	return errors.Join(failed...)
}

// routed reports whether all paths are as they should be.
func (k *Controller) routed(r *registration) bool {
	endpoints := r.endpoints()
	if k.options.Callers == nil {
		return !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.path != e.expected && e.token() == "" })
	}
	token := r.token()
	return len(endpoints) == 0 || token != "" && !k.options.Callers.expired(r.label, token)
}

// keepPaths keeps the paths until the context is cancelled, and replaces tokens that may have been shown to users. Every
// replica does so, since only the one that was called knows; one that writes last, or first, is as good as the other.
func (k *Controller) keepPaths(ctx context.Context) {
	for ctx.Err() == nil {
		next := resyncPeriod
		if err := k.reconcilePaths(ctx); err != nil && ctx.Err() == nil {
			k.options.Log.Error(err, "paths of webhooks not written, retrying", "after", firstRetry.String())
			next = firstRetry
		}
		if k.options.Callers != nil {
			if due, found := k.options.Callers.exposedInUse(); found {
				// Not before the watch shows the token that was just written.
				next = min(next, max(due.Sub(k.options.Now()), firstRetry))
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-k.routes:
		case <-timer.C:
		}
		timer.Stop()
	}
}
