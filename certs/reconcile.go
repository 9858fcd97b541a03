package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leadership is the state of a replica for as long as it leads.
type leadership struct {
	*Controller
	// owner is the UID of Opgate's namespace; "" until it was read.
	owner types.UID
	// refused are the objects whose owners may not be changed, reported those that were logged as skipped, waiting
	// those that were logged as without effect yet, by label.
	refused, reported, waiting map[string]bool
	// selectors are those that were logged as exempting namespaces, by label of the object.
	selectors map[string][]string
}

// reconcile writes what differs from the desired state. It returns when to reconcile again; zero if only events matter.
func (l *leadership) reconcile(ctx context.Context) (time.Time, error) {
	var next time.Time
	var failed []error
	if l.secret != nil {
		stored, again, err := l.reconcileSecret(ctx)
		next, failed = again, append(failed, err)
		if stored != nil {
			failed = append(failed, l.reconcileBundles(ctx, stored))
		}
	}
	failed = append(failed, l.reconcileFields(ctx), l.reconcileOwners(ctx))
	l.updateMetrics()
	l.reportSelectors()
	return next, errors.Join(failed...)
}

// reconcileSecret writes the Secret if it differs from the desired state, else returns it: caBundles are written from
// what is stored, never from what is about to be stored.
func (l *leadership) reconcileSecret(ctx context.Context) (stored *corev1.Secret, next time.Time, err error) {
	current, err := l.secret.secret()
	if err != nil {
		return nil, next, err
	}
	now, lifetimes := l.options.Now(), l.options.Lifetimes
	in := &input{now: now, lifetimes: lifetimes, stored: decode(current), remembered: l.ca.current.Load(),
		fresh: func() (*authority, error) { return newAuthority(now, lifetimes.CA) }}
	for _, r := range l.registrations {
		for _, c := range r.callers() {
			certs, _ := decodeBundle(c.bundle) // other content is overwritten
			in.registered = append(in.registered, certs)
		}
	}
	wanted, done, err := decide(in)
	if err != nil {
		return nil, next, err
	}
	secret, changed, err := encode(&wanted, l.options.Namespace, current)
	if err != nil {
		return nil, next, err
	}
	next = wanted.nextCheck(now, lifetimes)
	if !changed {
		return current, next, nil
	}
	written, err := l.writeSecret(ctx, secret)
	if conflicted(err) || apierrors.IsNotFound(err) {
		return nil, next, nil // the watch delivers the current Secret
	}
	if err != nil {
		return nil, next, fmt.Errorf("write Secret %s/%s: %w", l.options.Namespace, secretName, err)
	}
	if s := decode(written); s.signs(now) {
		l.ca.use(s)
	}
	l.options.Log.Info("wrote CA Secret", "done", done, "problems", problemsOf(in.stored))
	return nil, next, nil
}

func problemsOf(s *state) []string {
	if s == nil {
		return nil
	}
	return s.problems
}

func (l *leadership) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	if err := l.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	u, err := l.secret.write(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), secret)
	if err != nil {
		return nil, err
	}
	return toSecret(u)
}

// reconcileBundles copies the bundle of the Secret to every caBundle, and to the ConfigMap. Before the first write it
// reads the Secret again: a replica that was paused may have missed that another one leads.
func (l *leadership) reconcileBundles(ctx context.Context, stored *corev1.Secret) error {
	bundle := stored.Data[keyBundle]
	var outdated []*registration
	for _, r := range l.registrations {
		if current := r.Get(); current != nil && len(r.bundles(current)) == 0 && !l.reported[r.label] {
			l.reported[r.label] = true
			l.options.Log.Info("object has no webhook, skipped", "kind", r.kind.Kind, "name", r.name)
		}
		if r.outdated(bundle) {
			outdated = append(outdated, r)
		}
	}
	configMap, publish, err := l.published.configMap(l.options.Namespace, string(bundle))
	failed := []error{err}
	if len(outdated) > 0 || publish {
		if current, err := l.isCurrent(ctx, stored); !current || err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	for _, r := range outdated {
		if err := l.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.write(ctx, bundle); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(l.reported, r.label)
			l.options.Log.Info("wrote caBundle", "kind", r.kind.Kind, "name", r.name)
		}
	}
	if publish {
		failed = append(failed, l.publish(ctx, configMap))
	}
	return errors.Join(failed...)
}

// isCurrent reports whether the Secret is still what was observed; otherwise the watch will deliver it.
func (l *leadership) isCurrent(ctx context.Context, stored *corev1.Secret) (bool, error) {
	live, err := l.secret.Client.Get(ctx, secretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Secret %s/%s: %w", l.options.Namespace, secretName, err)
	}
	return live.GetResourceVersion() == stored.ResourceVersion, nil
}

// publish writes the ConfigMap.
func (l *leadership) publish(ctx context.Context, configMap *corev1.ConfigMap) error {
	if err := l.limiter.Wait(ctx); err != nil {
		return err
	}
	_, err := l.published.write(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"), configMap)
	if conflicted(err) || apierrors.IsNotFound(err) {
		return nil // the watch delivers the current one
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", l.options.Namespace, secretName, err)
	}
	l.options.Log.Info("published the CA", "configMap", secretName)
	return nil
}

// reconcileOwners adds the namespace as an owner of the webhook configurations, or removes it.
func (l *leadership) reconcileOwners(ctx context.Context) error {
	if l.owner == "" {
		namespace, err := l.client.Resource(namespacesResource).Get(ctx, l.options.Namespace, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read namespace %s, which is to own the webhook configurations: %w", l.options.Namespace,
				err)
		}
		l.owner = namespace.GetUID()
	}
	var failed []error
	for _, r := range l.registrations {
		change := r.own
		if l.options.Unowned {
			change = r.disown
		}
		if l.refused[r.label] || !r.owned || r.Get() == nil || r.ownedBy(l.owner) != l.options.Unowned {
			continue
		}
		if err := l.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := change(ctx, l.options.Namespace, l.owner); {
		case apierrors.IsForbidden(err):
			// Some clusters require the right to delete an object for changing its owners. Retrying would not help.
			l.refused[r.label] = true
			l.options.Log.Error(err, "owner not changed", "kind", r.kind.Kind, "name", r.name)
		case err != nil:
			failed = append(failed, err)
		case written:
			l.options.Log.Info("changed owner", "kind", r.kind.Kind, "name", r.name,
				"ownedByNamespace", !l.options.Unowned)
		}
	}
	return errors.Join(failed...)
}

// updateMetrics updates the metrics of the registrations.
func (l *leadership) updateMetrics() {
	for _, r := range l.registrations {
		if len(r.callers()) == 0 && r.Get() != nil {
			l.options.Metrics.unused(r.label)
			continue
		}
		l.options.Metrics.registered(r.label, len(changedFields(r.Get(), r.entries)) == 0 && l.trusted(r))
	}
}
