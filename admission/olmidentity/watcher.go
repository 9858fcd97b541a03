package olmidentity

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

const (
	// retryInterval is the pause before a failed request is retried.
	retryInterval = 2 * time.Second
	// rightsInterval is the interval between reviews of an account that lacks OLM's rights: RBAC changes cannot be
	// watched per account.
	rightsInterval = 10 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
)

var (
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// Options configure a Watcher. All fields but Log and AcknowledgedNamespace are required.
type Options struct {
	// Identity is updated.
	Identity *Identity
	// Metadata reads the ServiceAccount, its namespace and Opgate's.
	Metadata metadata.Interface
	// Rights reviews what the account may do.
	Rights authorizationclient.SubjectAccessReviewInterface
	// Namespace is the namespace that Opgate runs in. A namespace of OLM that is younger is not trusted.
	Namespace string
	// AcknowledgedNamespace is the UID of a namespace that is trusted however young it is. Default: none.
	AcknowledgedNamespace types.UID
	// Log logs changes at V(0). Default: none.
	Log logr.Logger
}

// Watcher verifies an identity when the process starts, and again whenever its ServiceAccount or namespace changes. A
// user is verified once.
type Watcher struct {
	options Options
	// namespace and serviceAccount are nil for a user, of whom there is no object.
	namespace, serviceAccount *object
	changed                   chan struct{} // holds one token
	// installed is when Opgate's namespace was created; zero until it is known.
	installed time.Time
	// entitled is the ServiceAccount that was found to have OLM's rights.
	entitled types.UID
}

// NewWatcher returns a watcher. Start runs it.
func NewWatcher(o Options) *Watcher {
	w := &Watcher{options: o, changed: make(chan struct{}, 1)}
	account := o.Identity.Account()
	if !account.IsServiceAccount() {
		return w
	}
	w.namespace = w.follow(namespaces, "", account.Namespace)
	w.serviceAccount = w.follow(serviceAccounts, account.Namespace, account.Name)
	return w
}

// Start updates the identity until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	for _, o := range w.objects() {
		stop, err := o.run(ctx, w.notify)
		if err != nil {
			return fmt.Errorf("watch %s: %w", o.name, err)
		}
		defer stop()
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		case <-retry.C:
		}
		state, again := w.verify(ctx)
		w.set(state)
		retry.Stop()
		if again > 0 {
			retry.Reset(again)
		}
	}
}

// objects are what is watched.
func (w *Watcher) objects() []*object {
	if w.namespace == nil {
		return nil
	}
	return []*object{w.namespace, w.serviceAccount}
}

func (w *Watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// set stores a state, and logs it where it changed.
func (w *Watcher) set(s State) {
	last := w.options.Identity.State()
	w.options.Identity.Set(s)
	if last == s {
		return
	}
	log := w.options.Log.WithValues("identity", w.options.Identity.Account().Username(), "reason", s.Reason)
	switch s.Reason {
	case Trusted:
		log.Info("OLM identity trusted", "uid", s.UID, "group", s.Group)
	case Unverified:
		log.Info("OLM identity not verified yet, retrying", "problem", s.Problem)
	default:
		log.Info("OLM identity rejected", "problem", s.Problem)
	}
}

// verify returns the state, and after which time to verify again although nothing changed; zero for never.
func (w *Watcher) verify(ctx context.Context) (State, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if w.namespace == nil {
		return w.verifyUser(ctx)
	}
	for _, o := range w.objects() {
		if o.synced() {
			continue
		}
		if err := o.failure.Load(); err != nil {
			return failed(*err), 0
		}
		return State{Reason: Unverified, Problem: o.name + " is still being read"}, 0
	}
	account := w.options.Identity.Account()
	e := evidence{account: account, namespace: w.namespace.get(), serviceAccount: w.serviceAccount.get(),
		home: w.options.Namespace, acknowledged: w.options.AcknowledgedNamespace}
	if e.namespace != nil && e.namespace.UID != e.acknowledged && w.installed.IsZero() {
		home, err := w.options.Metadata.Resource(namespaces).Get(ctx, w.options.Namespace, metav1.GetOptions{})
		if err != nil {
			return failed(fmt.Errorf("read namespace %s of Opgate: %w", w.options.Namespace, err)), retryInterval
		}
		w.installed = home.CreationTimestamp.Time
	}
	e.installed = w.installed
	state, fits := e.examine()
	if !fits || w.entitled == e.serviceAccount.UID {
		return state, 0
	}
	switch entitled, err := w.mayEscalate(ctx, e.serviceAccount.UID, "system:serviceaccounts",
		"system:serviceaccounts:"+account.Namespace); {
	case err != nil:
		return failed(err), retryInterval
	case !entitled:
		return State{Reason: RightsMissing, Problem: "service account " + account.String() +
			" may not escalate ClusterRoles, as OLM may: " +
			"it is not the account of an OLM that is installed"}, rightsInterval
	}
	w.entitled = e.serviceAccount.UID
	return state, 0
}

// failed returns the state after an error: Unreadable where a permission is missing, Unverified where the request is
// retried.
func failed(err error) State {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
		return State{Reason: Unreadable, Problem: err.Error()}
	}
	return State{Reason: Unverified, Problem: err.Error()}
}

// verifyUser verifies a user that is no ServiceAccount. There is no object, and so no age: that an administrator has
// named the user is all the evidence besides rights. A name without rights of its own, such as system:admin, is allowed
// by a group.
func (w *Watcher) verifyUser(ctx context.Context) (State, time.Duration) {
	switch entitled, err := w.mayEscalate(ctx, ""); {
	case err != nil:
		return failed(err), retryInterval
	case entitled:
		return State{Reason: Trusted}, 0
	}
	return State{Reason: Trusted, Group: masters}, 0
}

// mayEscalate reports whether the account, with groups, may grant rights that it does not have. OLM may, since it
// creates the roles of operators. Such an account is cluster admin already, so that trusting it adds nothing to what it
// can do. The webhook configurations check the same at each request, in matchConditions.
func (w *Watcher) mayEscalate(ctx context.Context, uid types.UID, groups ...string) (bool, error) {
	username := w.options.Identity.Account().Username()
	review, err := w.options.Rights.Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: username, UID: string(uid), Groups: append(groups, "system:authenticated"),
			ResourceAttributes: Escalate(),
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may escalate ClusterRoles: %w", username, err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// Escalate is the right that distinguishes OLM from users that are not cluster admin.
func Escalate() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"}
}

// object is the metadata of one watched object.
type object struct {
	name     string
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	failure  atomic.Pointer[error]
	log      logr.Logger
}

// follow returns an object that is watched once it runs; the namespace is "" for cluster-scoped objects.
func (w *Watcher) follow(resource schema.GroupVersionResource, namespace, name string) *object {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := metadatainformer.NewFilteredMetadataInformer(w.options.Metadata, resource, namespace, 0, nil,
		func(options *metav1.ListOptions) {
			options.FieldSelector = only
		}).Informer()
	return &object{name: name, informer: informer, synced: informer.HasSynced, log: w.options.Log}
}

// run watches the object until the context ends, and calls changed after each change, after the first list, and after
// each error. The returned function waits for the end.
func (o *object) run(ctx context.Context, changed func()) (wait func(), err error) {
	err = o.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		o.log.Info("watch interrupted, retrying with backoff", "name", o.name, "error", err.Error())
		o.failure.Store(&err)
		changed()
	})
	if err != nil {
		return nil, err
	}
	handled, err := o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	o.synced = handled.HasSynced
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.informer.RunWithContext(ctx)
	}()
	go func() { // a list without the object is no event
		if cache.WaitForCacheSync(ctx.Done(), o.synced) {
			changed()
		}
	}()
	return func() { <-done }, nil
}

// get returns the object as last observed, nil if it does not exist.
func (o *object) get() *metav1.PartialObjectMetadata {
	for _, current := range o.informer.GetStore().List() {
		return current.(*metav1.PartialObjectMetadata)
	}
	return nil
}
