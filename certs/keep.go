package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// term is what a replica does while it leads.
type term struct {
	*Keeper
	// owner is the namespace that Opgate lives in; "" until it was read.
	owner types.UID
	// refused are the objects whose ownership we may not change, told those of which something was said, by label.
	refused, told map[string]bool
}

// keep brings everything to what it should be now. It gives the next instant at which to look again; zero where
// only events matter.
func (t *term) keep(ctx context.Context) (time.Time, error) {
	var next time.Time
	// Paths first: without a caBundle nothing is called yet, so a configuration that is new never calls by no path.
	failed := []error{t.keepPaths(ctx)}
	if t.secret != nil {
		settled, wake, err := t.keepSecret(ctx)
		next, failed = wake, append(failed, err)
		if settled != nil {
			failed = append(failed, t.keepBundles(ctx, settled))
		}
	}
	failed = append(failed, t.keepOwners(ctx))
	t.show()
	return next, errors.Join(failed...)
}

// keepSecret writes the Secret if it is not as it should be. Otherwise it gives it: caBundles follow what is
// stored, never what is about to be.
func (t *term) keepSecret(ctx context.Context) (settled *corev1.Secret, wake time.Time, err error) {
	current, err := t.secret.secret()
	if err != nil {
		return nil, wake, err
	}
	now, lifetimes := t.options.Now(), t.options.Lifetimes
	in := &input{now: now, lifetimes: lifetimes, stored: decode(current), remembered: t.ca.current.Load(),
		fresh: func() (*authority, error) { return newAuthority(now, lifetimes.CA) }}
	for _, r := range t.registrations {
		for _, c := range r.callers() {
			certs, _ := decodeBundle(c.bundle) // what is not a certificate is nothing to keep
			in.registered = append(in.registered, certs)
		}
	}
	wanted, done, err := decide(in)
	if err != nil {
		return nil, wake, err
	}
	secret, changed, err := encode(&wanted, t.options.Namespace, current)
	if err != nil {
		return nil, wake, err
	}
	wake = wanted.wake(now, lifetimes)
	if !changed {
		return current, wake, nil
	}
	written, err := t.writeSecret(ctx, secret)
	if conflicted(err) || apierrors.IsNotFound(err) {
		return nil, wake, nil // the watch tells what there is
	}
	if err != nil {
		return nil, wake, fmt.Errorf("write Secret %s/%s: %w", t.options.Namespace, secretName, err)
	}
	if s := decode(written); s.signs(now) {
		t.ca.take(s)
	}
	t.options.Log.Info("wrote the Secret of the CA", "done", done, "problems", problemsOf(in.stored))
	return nil, wake, nil
}

func problemsOf(s *state) []string {
	if s == nil {
		return nil
	}
	return s.problems
}

func (t *term) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	if err := t.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if secret.ResourceVersion == "" {
		u, err = t.secret.client.Create(ctx, u, metav1.CreateOptions{FieldManager: bundleManager})
	} else {
		u, err = t.secret.client.Update(ctx, u, metav1.UpdateOptions{FieldManager: bundleManager})
	}
	if err != nil {
		return nil, err
	}
	return toSecret(u)
}

// keepBundles gives every caBundle what the Secret says. Before it writes it makes sure that this is still what
// the Secret says: a replica that was paused may have missed that another one leads.
func (t *term) keepBundles(ctx context.Context, settled *corev1.Secret) error {
	bundle := settled.Data[keyBundle]
	var failed []error
	verified := false
	for _, r := range t.registrations {
		if held := r.get(); held != nil && len(r.bundles(held)) == 0 && !t.told[r.label] {
			t.told[r.label] = true
			t.options.Log.Info("an object does not make the API server call us, it is left alone", "kind", r.kind.Kind, "name", r.name)
		}
		if !r.outdated(bundle) {
			continue
		}
		if !verified {
			live, err := t.secret.client.Get(ctx, secretName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && live.GetResourceVersion() != settled.ResourceVersion {
				return nil // the watch tells of it in a moment
			}
			if err != nil {
				return fmt.Errorf("read Secret %s/%s: %w", t.options.Namespace, secretName, err)
			}
			verified = true
		}
		if err := t.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.write(ctx, bundle); {
		case err != nil:
			failed = append(failed, err)
		case written:
			delete(t.told, r.label)
			t.options.Log.Info("wrote caBundle", "kind", r.kind.Kind, "name", r.name)
		}
	}
	return errors.Join(failed...)
}

// keepPaths makes the API server call by paths that end in a token. Where it authenticates by certificate, it only fills in the
// paths that manifests leave out: a token that another replica has written, as during a change of flags, does no harm there.
func (t *term) keepPaths(ctx context.Context) error {
	var failed []error
	for _, r := range t.registrations {
		if t.routed(r) {
			continue
		}
		if err := t.limiter.Wait(ctx); err != nil {
			return err
		}
		var token string
		if t.options.Callers != nil {
			token = newToken()
			t.options.Callers.expect(token)
		}
		switch written, err := r.route(ctx, token); {
		case err != nil:
			failed = append(failed, err)
		case written:
			t.options.Log.Info("wrote paths", "kind", r.kind.Kind, "name", r.name)
		}
	}
	return errors.Join(failed...)
}

// routed reports whether the API server calls as it should.
func (t *term) routed(r *registration) bool {
	endpoints := r.endpoints()
	if t.options.Callers == nil {
		return !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.path != e.plain && e.token() == "" })
	}
	token := r.token()
	return len(endpoints) == 0 || token != "" && !t.options.Callers.expired(r.label, token)
}

// keepOwners makes the namespace an owner of the webhook configurations.
func (t *term) keepOwners(ctx context.Context) error {
	if t.owner == "" {
		namespace, err := t.client.Resource(namespacesResource).Get(ctx, t.options.Namespace, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read namespace %s, which is to own the webhook configurations: %w", t.options.Namespace, err)
		}
		t.owner = namespace.GetUID()
	}
	var failed []error
	for _, r := range t.registrations {
		if t.refused[r.label] || !r.unowned(t.owner) {
			continue
		}
		if err := t.limiter.Wait(ctx); err != nil {
			return err
		}
		switch written, err := r.own(ctx, t.options.Namespace, t.owner); {
		case apierrors.IsForbidden(err):
			// Some clusters let only those change owners who may delete the object. Asking again would not help.
			t.refused[r.label] = true
			t.options.Log.Error(err, "an object will stay behind if the namespace is deleted first", "kind", r.kind.Kind, "name", r.name)
		case err != nil:
			failed = append(failed, err)
		case written:
			t.options.Log.Info("the namespace owns an object", "kind", r.kind.Kind, "name", r.name)
		}
	}
	return errors.Join(failed...)
}

// show brings the metrics up to date.
func (t *term) show() {
	now := t.options.Now()
	for _, r := range t.registrations {
		callers := r.callers()
		if len(callers) == 0 && r.get() != nil {
			t.options.Metrics.unused(r.label)
			continue
		}
		trusting := len(callers) > 0
		for _, c := range callers {
			trusting = trusting && trusts(c.bundle, t.source, now)
		}
		t.options.Metrics.registered(r.label, trusting)
	}
}
