package resolve

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// workers is how many policies are resolved at once.
	workers = 4
	// maxOverdue is how many resolutions that did not end in time may still be running before no more are
	// begun.
	maxOverdue = 8
	// overdueAfter is when a resolution is given up.
	overdueAfter = 20 * time.Second
)

// Packages tells what catalogs say of packages; *packages.Cache does. It must tell PackageChanged what changed.
type Packages interface {
	Get(pkg string, catalog olm.Catalog) *catalog.Package
}

// Options configure a Resolver.
type Options struct {
	// Config reaches the API server. Required.
	Config *rest.Config
	// Packages suggests namespaces. Default: no package is ever known.
	Packages Packages
	// DefaultNamespace is for policies without a namespace whose package suggests none. Default: there is
	// none, and such policies have a problem.
	DefaultNamespace string
	// Publish takes each new resolution, one at a time for each policy. It must return at once and must not
	// call Forget. Required.
	Publish func(key types.NamespacedName, r snapshot.Completion)
	// Log takes changes of what is resolved at V(0). Default: none.
	Log logr.Logger
}

// Resolver completes policies. All its methods may be called at any time, from any goroutine; nothing is
// resolved before Start.
type Resolver struct {
	o    Options
	open func(ctx context.Context, key types.NamespacedName, changed func()) (templateSession, error)
	// queue holds the policies to be resolved; its rate limiter is the pause before a retry.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// publishing is held while a resolution is handed out, so that none comes after Forget.
	publishing sync.Mutex

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	// sessions are opened and closed by whoever handles the policy, which is one worker at a time.
	sessions map[types.NamespacedName]*held
	overdue  int
}

// templateSession resolves the templates of one policy.
type templateSession interface {
	// resolve resolves parts and says whether trying again later may help.
	resolve(ctx context.Context, parts []part) (answers []answer, retry bool)
	// lost tells whether what is watched is not watched any more.
	lost() bool
	// interrupt ends requests that are under way; the session is of no more use.
	interrupt()
	// close ends the session. No resolve may be running.
	close()
}

// answer is what became of a part.
type answer struct {
	value   any
	problem string
}

// entry is what is known of a policy.
type entry struct {
	op *policyv1beta2.OperatorPolicy
	// namespace was filled in for the generation of a policy, and stays until it has another.
	namespace  string
	generation int64
	uid        types.UID
	// waitsFor is the package whose namespace is missing.
	waitsFor  string
	published *snapshot.Completion
}

// held is the session of a policy.
type held struct {
	templateSession
	// late is set while a resolution that was given up still runs in it.
	late bool
}

// New makes a resolver. Start runs it.
func New(o Options) (*Resolver, error) {
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	config := rest.CopyConfig(o.Config)
	config.Timeout = 0 // it would end watches as well; sessions bound each request themselves
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for templates: %w", err)
	}
	silenceLibrary()
	return newResolver(o, func(ctx context.Context, key types.NamespacedName, changed func()) (templateSession, error) {
		return openSession(ctx, config, client.Transport, key, changed)
	}), nil
}

func newResolver(o Options, open func(context.Context, types.NamespacedName, func()) (templateSession, error)) *Resolver {
	return &Resolver{o: o, open: open, entries: map[types.NamespacedName]*entry{}, sessions: map[types.NamespacedName]*held{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry))}
}

// Policy takes a policy, or its new state, and returns at once. What it means comes through Publish, and
// again whenever that changes. A policy that is complete as it is comes back as it is.
func (r *Resolver) Policy(op *policyv1beta2.OperatorPolicy) {
	key := types.NamespacedName{Namespace: op.Namespace, Name: op.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil {
		e = &entry{}
		r.entries[key] = e
	}
	last := e.op
	e.op = op.DeepCopy()
	if last != nil && last.UID == op.UID && last.Generation == op.Generation &&
		maps.Equal(last.Labels, op.Labels) && maps.Equal(last.Annotations, op.Annotations) {
		return // only its status is new
	}
	r.queue.Forget(key)
	r.queue.Add(key)
}

// Forget drops a policy and its watches. Nothing of it is published any more when it returns.
func (r *Resolver) Forget(key types.NamespacedName) {
	r.publishing.Lock()
	defer r.publishing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, key)
	r.queue.Forget(key)
	r.queue.Add(key) // to close its session, which may be in use now
}

// PackageChanged resolves the policies again that wait for what a catalog says of a package.
func (r *Resolver) PackageChanged(pkg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.entries {
		if e.waitsFor == pkg && pkg != "" {
			r.queue.Add(key)
		}
	}
}

// NeedLeaderElection is false: every replica judges, so every replica needs policies that are complete.
func (r *Resolver) NeedLeaderElection() bool { return false }

// Start resolves until the context ends.
func (r *Resolver) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for r.handleNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
	r.mu.Lock()
	sessions := r.sessions
	r.sessions = map[types.NamespacedName]*held{}
	r.mu.Unlock()
	var closing sync.WaitGroup
	for _, h := range sessions {
		if !h.late {
			closing.Go(h.close)
		}
	}
	closing.Wait()
	return nil
}
