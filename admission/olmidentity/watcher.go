package olmidentity

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
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

// Authorizer reports whether a user has a right.
type Authorizer interface {
	May(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error)
}

// Options configure a Watcher. All fields but Log and AcknowledgedNamespace are required.
type Options struct {
	// Identity is updated.
	Identity *Identity
	// Client reads the ServiceAccount, its namespace and Opgate's.
	Client dynamic.Interface
	// Rights reviews what the account may do.
	Rights Authorizer
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
	// objects are namespace and serviceAccount. There are none for a user.
	objects                   []*watched.Object
	namespace, serviceAccount *watched.Object
	// failure is why one of them was last not read.
	failure atomic.Pointer[error]
	changed chan struct{} // holds one token
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
	w.namespace = watched.New(o.Client, namespaces, "", account.Namespace, w.notify, o.Log)
	w.serviceAccount = watched.New(o.Client, serviceAccounts, account.Namespace, account.Name, w.notify, o.Log)
	w.objects = []*watched.Object{w.namespace, w.serviceAccount}
	return w
}

// Start updates the identity until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, o := range w.objects {
		o.Failed = func(err error) {
			w.failure.Store(&err)
			w.notify(nil)
		}
		running.Go(func() { _ = o.Start(ctx) })
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

func (w *Watcher) notify(any) { signal.Put(w.changed) }

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
	if w.objects == nil {
		return w.verifyUser(ctx)
	}
	account := w.options.Identity.Account()
	switch err := w.failure.Load(); {
	case w.namespace.Synced() && w.serviceAccount.Synced():
	case err != nil:
		return failed(*err), 0
	default:
		return State{Reason: Unverified, Problem: account.String() + " is still being read"}, 0
	}
	e := evidence{account: account, namespace: w.namespace.Get(), serviceAccount: w.serviceAccount.Get(),
		home: w.options.Namespace, acknowledged: w.options.AcknowledgedNamespace}
	if e.namespace != nil && e.namespace.GetUID() != e.acknowledged && w.installed.IsZero() {
		home, err := w.options.Client.Resource(namespaces).Get(ctx, w.options.Namespace, metav1.GetOptions{})
		if err != nil {
			return failed(fmt.Errorf("read namespace %s of Opgate: %w", w.options.Namespace, err)), retryInterval
		}
		w.installed = home.GetCreationTimestamp().Time
	}
	e.installed = w.installed
	state, fits := e.examine()
	if !fits || w.entitled == e.serviceAccount.GetUID() {
		return state, 0
	}
	switch entitled, err := w.mayEscalate(ctx, e.serviceAccount.GetUID(), "system:serviceaccounts",
		"system:serviceaccounts:"+account.Namespace); {
	case err != nil:
		return failed(err), retryInterval
	case !entitled:
		return State{Reason: RightsMissing, Problem: "service account " + account.String() +
			" may not escalate ClusterRoles, as OLM may: " +
			"it is not the account of an OLM that is installed"}, rightsInterval
	}
	w.entitled = e.serviceAccount.GetUID()
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
	return w.options.Rights.May(ctx, &authenticationv1.UserInfo{Username: w.options.Identity.Account().Username(),
		UID: string(uid), Groups: append(groups, "system:authenticated")}, Escalate())
}

// Escalate is the right that distinguishes OLM from users that are not cluster admin.
func Escalate() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"}
}

// evidence is what an identity is judged by. The API server writes or computes all of it, so a tenant cannot forge any.
type evidence struct {
	account Account
	// namespace and serviceAccount are nil where they do not exist.
	namespace, serviceAccount *unstructured.Unstructured
	// home is the name of Opgate's own namespace, installed its age.
	home      string
	installed time.Time
	// acknowledged is the UID of a namespace that an administrator acknowledged; "" for none.
	acknowledged types.UID
}

// HowToFind is a command that prints the user name that OLM writes as.
const HowToFind = "kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator -o " +
	`jsonpath='{range .items[*]}system:serviceaccount:{.metadata.namespace}:{.spec.template.spec.serviceAccountName}{"\n"}{end}'`

// examine returns the state that follows from the objects, and reports whether they fit. An account that fits is
// trusted once it has OLM's rights as well.
func (e *evidence) examine() (State, bool) {
	reject := func(reason Reason, format string, args ...any) (State, bool) {
		return State{Reason: reason, Problem: fmt.Sprintf(format, args...)}, false
	}
	const rename = "; --olm-identity (olm.identity of the chart) has to name the account that OLM runs as, the serviceAccountName of Deployment olm-operator" +
		", or, on a hosted control plane, the user that it authenticates as"
	switch {
	case e.namespace == nil:
		return reject(NamespaceMissing, "namespace %s of OLM does not exist"+rename, e.account.Namespace)
	case e.younger():
		return reject(NamespaceYounger,
			"namespace %s of OLM is younger than %s of Opgate; an administrator who has installed OLM there "+
				"acknowledges it with --olm-namespace-uid=%s (olm.namespaceUID of the chart)", e.account.Namespace, e.home,
			e.namespace.GetUID())
	case e.serviceAccount == nil || e.serviceAccount.GetDeletionTimestamp() != nil:
		return reject(ServiceAccountMissing, "service account %s of OLM does not exist"+rename, e.account)
	}
	return State{Reason: Trusted, UID: e.serviceAccount.GetUID()}, true
}

// younger reports whether the namespace was created after Opgate's and is not acknowledged. Both times have a
// resolution of one second: a namespace of the same second counts as older.
func (e *evidence) younger() bool {
	return e.namespace.GetUID() != e.acknowledged && e.namespace.GetCreationTimestamp().After(e.installed)
}
