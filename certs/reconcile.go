package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconcile writes what differs from the desired state.
func (k *Controller) Reconcile(ctx context.Context, _ item) (reconcile.Result, error) {
	if !cache.WaitForCacheSync(ctx.Done(), k.synced()...) {
		return reconcile.Result{}, nil // this replica leads no more
	}
	var next time.Time // when only time changes what is desired
	var failed []error
	if k.secret != nil {
		stored, again, err := k.reconcileSecret(ctx)
		next, failed = again, append(failed, err)
		if stored != nil {
			failed = append(failed, k.reconcileBundles(ctx, stored))
		}
	}
	failed = append(failed, k.reconcileFields(ctx), k.reconcileOwners(ctx))
	k.updateMetrics()
	k.reportSelectors()
	after := resyncPeriod
	if !next.IsZero() {
		after = min(after, max(next.Sub(k.options.Now()), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(failed...)
}

// synced report whether everything was read once that is written.
func (k *Controller) synced() []cache.InformerSynced {
	var all []cache.InformerSynced
	for _, r := range k.registrations {
		all = append(all, r.Synced)
	}
	if k.secret != nil {
		all = append(all, k.secret.Synced, k.published.Synced)
	}
	return all
}

// reconcileSecret writes the Secret if it differs from the desired state, else returns it: caBundles are written from
// what is stored, never from what is about to be stored.
func (k *Controller) reconcileSecret(ctx context.Context) (stored *corev1.Secret, next time.Time, err error) {
	current, err := k.secret.secret()
	if err != nil {
		return nil, next, err
	}
	now, lifetimes := k.options.Now(), k.options.Lifetimes
	in := &input{now: now, lifetimes: lifetimes, stored: decode(current), remembered: k.ca.current.Load(),
		fresh: func() (*authority, error) { return newAuthority(now, lifetimes.CA) }}
	for _, r := range k.registrations {
		for _, c := range r.callers() {
			certs, _ := decodeBundle(c.bundle) // other content is overwritten
			in.registered = append(in.registered, certs)
		}
	}
	wanted, done, err := decide(in)
	if err != nil {
		return nil, next, err
	}
	secret, changed, err := encode(&wanted, k.options.Namespace, current)
	if err != nil {
		return nil, next, err
	}
	next = wanted.nextCheck(now, lifetimes)
	if !changed {
		return current, next, nil
	}
	written, err := k.writeSecret(ctx, secret)
	if conflicted(err) || apierrors.IsNotFound(err) {
		return nil, next, nil // the watch delivers the current Secret
	}
	if err != nil {
		return nil, next, fmt.Errorf("write Secret %s/%s: %w", k.options.Namespace, secretName, err)
	}
	if s := decode(written); s.signs(now) {
		k.ca.use(s)
	}
	k.options.Log.Info("wrote CA Secret", "done", done, "problems", problemsOf(in.stored))
	return nil, next, nil
}

func problemsOf(s *state) []string {
	if s == nil {
		return nil
	}
	return s.problems
}

func (k *Controller) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	if err := k.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	u, err := k.secret.write(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), secret)
	if err != nil {
		return nil, err
	}
	return toSecret(u)
}

// reconcileBundles copies the bundle of the Secret to every caBundle, and to the ConfigMap. Before the first write it
// reads the Secret again: a replica that was paused may have missed that another one leads.
func (k *Controller) reconcileBundles(ctx context.Context, stored *corev1.Secret) error {
	bundle := stored.Data[keyBundle]
	var outdated []*registration
	for _, r := range k.registrations {
		if current := r.Get(); current != nil && len(r.bundles(current)) == 0 && !k.reported[r.label] {
			k.reported[r.label] = true
			k.options.Log.Info("object has no webhook, skipped", "kind", r.kind.Kind, "name", r.name)
		}
		if r.outdated(bundle) {
			outdated = append(outdated, r)
		}
	}
	configMap, publish, err := k.published.configMap(k.options.Namespace, string(bundle))
	failed := []error{err}
	if len(outdated) > 0 || publish {
		if current, err := k.isCurrent(ctx, stored); !current || err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	for _, r := range outdated {
		if err := k.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.write(ctx, bundle); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(k.reported, r.label)
			k.options.Log.Info("wrote caBundle", "kind", r.kind.Kind, "name", r.name)
		}
	}
	if publish {
		failed = append(failed, k.publish(ctx, configMap))
	}
	return errors.Join(failed...)
}

// isCurrent reports whether the Secret is still what was observed; otherwise the watch will deliver it.
func (k *Controller) isCurrent(ctx context.Context, stored *corev1.Secret) (bool, error) {
	live, err := k.secret.Client.Get(ctx, secretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Secret %s/%s: %w", k.options.Namespace, secretName, err)
	}
	return live.GetResourceVersion() == stored.ResourceVersion, nil
}

// publish writes the ConfigMap.
func (k *Controller) publish(ctx context.Context, configMap *corev1.ConfigMap) error {
	if err := k.limiter.Wait(ctx); err != nil {
		return err
	}
	_, err := k.published.write(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"), configMap)
	if conflicted(err) || apierrors.IsNotFound(err) {
		return nil // the watch delivers the current one
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.options.Namespace, secretName, err)
	}
	k.options.Log.Info("published the CA", "configMap", secretName)
	return nil
}

// reconcileOwners adds the namespace as an owner of the webhook configurations, or removes it.
func (k *Controller) reconcileOwners(ctx context.Context) error {
	if k.owner == "" {
		namespace, err := k.client.Resource(namespacesResource).Get(ctx, k.options.Namespace, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read namespace %s, which is to own the webhook configurations: %w", k.options.Namespace,
				err)
		}
		k.owner = namespace.GetUID()
	}
	var failed []error
	for _, r := range k.registrations {
		if k.refused[r.label] || !r.owned || r.Get() == nil || r.ownedBy(k.owner) != k.options.Unowned {
			continue
		}
		if err := k.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.setOwned(ctx, k.options.Namespace, k.owner, !k.options.Unowned); {
		case apierrors.IsForbidden(err):
			// Some clusters require the right to delete an object for changing its owners. Retrying would not help.
			k.refused[r.label] = true
			k.options.Log.Error(err, "owner not changed", "kind", r.kind.Kind, "name", r.name)
		case err != nil:
			failed = append(failed, err)
		case written:
			k.options.Log.Info("changed owner", "kind", r.kind.Kind, "name", r.name,
				"ownedByNamespace", !k.options.Unowned)
		}
	}
	return errors.Join(failed...)
}

// updateMetrics updates the metrics of the registrations.
func (k *Controller) updateMetrics() {
	for _, r := range k.registrations {
		if len(r.callers()) == 0 && r.Get() != nil {
			k.options.Metrics.unused(r.label)
			continue
		}
		k.options.Metrics.registered(r.label, len(changedFields(r.Get(), r.entries)) == 0 && k.trusted(r))
	}
}
