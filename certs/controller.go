package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
)

const (
	// resyncPeriod bounds timers, which do not advance while the machine sleeps. A resync sends no requests to the
	// API server.
	resyncPeriod         = time.Minute
	firstRetry, maxRetry = time.Second, 30 * time.Second
)

// Controller writes the Secret, the caBundles, the entries of the webhooks and their paths with the tokens. Only the
// replica that leads does, but for paths, and for the first CA where no leader keeps one: see bootstrap. Unless Options disable it, the webhook configurations are owned by Opgate's namespace,
// so that they are deleted with it: without a server they would refuse writes forever.
type Controller struct {
	options Options
	source  Source
	// Only where certificates are self-managed, otherwise nil.
	secret    *watched.Object
	published *watched.Object // ConfigMap opgate-ca
	ca        *sharedCA
	// registrations are watched by every replica, since each has to accept the current tokens.
	registrations []*registration
	reading       sync.Mutex // orders updates of the tokens as they were read
	// synced report whether everything was read once that is written.
	synced []cache.InformerSynced

	// queue is the leader's.
	queue manager.Queue[item]
	// routes triggers a reconciliation of paths. Its capacity is 1: changes are coalesced.
	routes chan struct{}

	// What follows is of the leader, which has one worker. owner is the UID of Opgate's namespace, "" until it was read;
	// ownerRefused is whether the API server does not let owners be changed.
	owner        types.UID
	ownerRefused bool
}

// item is the only item of the queue: everything is compared.
type item struct{}

// NewController returns a controller for certificates that Opgate does not manage itself; see NewManaged. Start runs what
// every replica does, AddTo adds what the leader does to a manager.
func NewController(o Options, source Source) *Controller {
	k := &Controller{options: o, source: source, routes: make(chan struct{}, 1)}
	if o.Callers != nil {
		o.Callers.added = k.routes
	}
	for _, of := range []struct {
		group, kind, name, verb string
		entries                 []webhooks.Entry
	}{
		{"admissionregistration.k8s.io", "MutatingWebhookConfiguration", "opgate", "mutate", o.Webhooks.Mutating},
		{"admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "opgate", "validate", o.Webhooks.Validating},
		{"apiextensions.k8s.io", "CustomResourceDefinition", "operatorpolicies.policy.open-cluster-management.io", "", nil},
	} {
		if of.verb == "" && o.ExternalDefinition {
			continue
		}
		r := k.newRegistration(schema.GroupVersionKind{Group: of.group, Version: "v1", Kind: of.kind}, of.name,
			of.verb, of.entries)
		k.registrations, k.synced = append(k.registrations, r), append(k.synced, r.Synced)
	}
	return k
}

// Start watches the registrations and keeps their paths until the context is cancelled.
func (k *Controller) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range k.registrations {
		running.Go(func() { r.Informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		select {
		case <-k.options.Ready:
			k.enqueue()
		case <-ctx.Done():
		}
	})
	if k.secret != nil {
		running.Go(func() { k.bootstrap(ctx) })
	}
	k.keepPaths(ctx)
	return nil
}

const (
	// bootstrapAfter is how long a replica waits until the leader has a CA and has the API server trust it.
	bootstrapAfter = 10 * time.Second
	// bootstrapEvery is how often it looks then, and bootstrapFor how long.
	bootstrapEvery, bootstrapFor = time.Second / 4, 15 * time.Second
)

// bootstrap makes the first CA, and has the API server trust it, where no leader does: while the source of certificates
// changes from cert-manager, a replica leads that keeps no CA, and it stays until this one is ready.
func (k *Controller) bootstrap(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) || signal.Sleep(ctx, bootstrapAfter) != nil {
		return
	}
	distrusted := func(r *registration) bool {
		live := r.Get()
		return live != nil && len(clients(live)) > 0 && !k.trusted(r)
	}
	_ = wait.PollUntilContextTimeout(ctx, bootstrapEvery, bootstrapFor, true, func(ctx context.Context) (bool, error) {
		if !slices.ContainsFunc(k.registrations, distrusted) {
			return true, nil
		}
		bundle, err := k.keepCA(ctx)
		for _, r := range k.registrations {
			if live := r.Get(); live != nil && bundle != nil {
				wanted := live.DeepCopy()
				setBundles(wanted, bundle)
				_, failed := k.write(ctx, r, live, wanted)
				err = errors.Join(err, failed)
			}
		}
		if err != nil {
			k.options.Log.Error(err, "no CA made while no leader keeps one")
		}
		return false, nil
	})
}

// AddTo adds the controller to the manager of the leader. It must be called before Start.
func (k *Controller) AddTo(mgr ctrl.Manager) error {
	_, err := k.queue.AddTo(mgr, "certs", controller.TypedOptions[item]{Reconciler: k,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, maxRetry)})
	k.enqueue()
	return err
}

// enqueue triggers a reconciliation of the leader.
func (k *Controller) enqueue() { k.queue.Add(item{}) }

// registrationChanged accepts the tokens of the current registrations and triggers a reconciliation.
func (k *Controller) registrationChanged(any) {
	defer k.enqueue()
	defer signal.Put(k.routes)
	if k.options.Callers != nil {
		k.reading.Lock()
		defer k.reading.Unlock()
		inUse := map[string]string{}
		for _, r := range k.registrations {
			if r.verb != "" {
				inUse[r.label] = r.token()
			}
		}
		k.options.Callers.update(inUse)
	}
}

// Reconcile writes what differs from the desired state.
func (k *Controller) Reconcile(ctx context.Context, _ item) (reconcile.Result, error) {
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return reconcile.Result{}, nil // this replica leads no more
	}
	after := resyncPeriod // the leader decides anew, since time alone changes what is desired
	var bundle []byte
	failed := []error{k.readOwner(ctx)}
	if k.secret != nil {
		after = min(after, k.options.Lifetimes.Overlap)
		var err error
		bundle, err = k.keepCA(ctx)
		failed = append(failed, err)
	}
	for _, r := range k.registrations {
		failed = append(failed, k.apply(ctx, r, bundle))
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(failed...)
}

// keepCA writes the Secret if it differs from the desired state, else publishes its bundle and returns it: what is about
// to be stored is not published.
func (k *Controller) keepCA(ctx context.Context) ([]byte, error) {
	stored, err := k.reconcileSecret(ctx)
	if stored == nil {
		return nil, err
	}
	bundle := stored.Data[keyBundle]
	return bundle, errors.Join(err, k.publish(ctx, string(bundle)))
}

// reconcileSecret writes the Secret if it differs from the desired state, else returns it.
func (k *Controller) reconcileSecret(ctx context.Context) (*corev1.Secret, error) {
	current, err := secretOf(k.secret)
	if err != nil {
		return nil, err
	}
	now, lifetimes := k.options.Now(), k.options.Lifetimes
	in := &input{now: now, lifetimes: lifetimes, stored: decode(current), remembered: k.ca.current.Load(),
		fresh: func() (*authority, error) { return newAuthority(now, lifetimes.CA) }}
	for _, r := range k.registrations {
		for _, bundle := range r.bundles() {
			certs, _ := decodeBundle(bundle) // other content is overwritten
			in.registered = append(in.registered, certs)
		}
	}
	wanted, done, err := decide(in)
	if err != nil {
		return nil, err
	}
	secret, changed, err := encode(&wanted, k.options.Namespace, current)
	if err != nil {
		return nil, err
	}
	if !changed {
		return current, nil
	}
	written, err := put(ctx, k.secret, secret)
	if written {
		k.options.Log.Info("wrote CA Secret", "done", done, "problems", problemsOf(in.stored))
	}
	return nil, err
}

func problemsOf(s *state) []string {
	if s == nil {
		return nil
	}
	return s.problems
}

// publish writes the bundle into ConfigMap opgate-ca, which has no key: clients other than the API server, such as
// Prometheus, verify Opgate's certificates by it, without a right to a Secret. Other data is kept.
func (k *Controller) publish(ctx context.Context, bundle string) error {
	c := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": k.options.Namespace, "name": secretName,
			"labels": map[string]any{"app.kubernetes.io/name": "opgate"}}}}
	if current := k.published.Get(); current != nil {
		c = current.DeepCopy()
	}
	if stored, _, _ := unstructured.NestedString(c.Object, "data", keyBundle); stored == bundle {
		return nil
	}
	unstructured.RemoveNestedField(c.Object, "binaryData", keyBundle) // the same key in both would be invalid
	if err := unstructured.SetNestedField(c.Object, bundle, "data", keyBundle); err != nil {
		return err
	}
	written, err := put(ctx, k.published, c)
	if written {
		k.options.Log.Info("published the CA", "configMap", secretName)
	}
	return err
}

// readOwner reads the UID of Opgate's namespace, once.
func (k *Controller) readOwner(ctx context.Context) error {
	if k.owner != "" {
		return nil
	}
	namespaces := k.options.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	namespace, err := namespaces.Get(ctx, k.options.Namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s, which is to own the webhook configurations: %w", k.options.Namespace, err)
	}
	k.owner = namespace.GetUID()
	return nil
}

var (
	secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")
	configMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// secretOf returns a watched Secret, nil if it does not exist.
func secretOf(o *watched.Object) (*corev1.Secret, error) {
	current := o.Get()
	if current == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(current.Object, secret); err != nil {
		return nil, errors.New("read the Secret: its content does not have the form of a Secret") // err could show it
	}
	return secret, nil
}

// put creates an object that has no resourceVersion, and otherwise replaces the version that was read. It reports whether
// it did: if another client was faster, the watch delivers what that wrote.
func put(ctx context.Context, o *watched.Object, content any) (bool, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(content)
	if err != nil {
		return false, err
	}
	u := &unstructured.Unstructured{Object: fields}
	if u.GetResourceVersion() == "" {
		_, err = o.Client.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		_, err = o.Client.Update(ctx, u, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil && !apply.Outdated(err) {
		return false, fmt.Errorf("write %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return err == nil, nil
}
