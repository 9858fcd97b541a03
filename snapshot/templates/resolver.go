// Package templates completes OperatorPolicies that depend on the cluster, on every replica, so that
// admission and the background loop judge by the same values: template text ({{ ... }}) in spec.versions,
// spec.versionRange, spec.subscription and spec.operatorGroup, and a missing spec.subscription.namespace.
//
// A part is resolved completely or not at all: what cannot be resolved stays as it was written and is a Problem, and
// a policy with problems holds what it governs. A template that resolves to an empty value where that would mean
// "any" (no version, no range, no catalog, no channel) is a problem too.
//
// Templates are those of github.com/stolostron/go-template-utils, which the OperatorPolicy controller of Open Cluster
// Management uses, without the functions whose results differ between replicas (random values, the
// time, generated keys, DNS), those that make long text of little, and without define, block, template and methods with
// arguments. Objects that a template looks up are watched, and a change of one resolves the policy again.
//
// # Permissions
//
// Lookups are made as ServiceAccount opgate-lookups of Opgate's namespace, never with Opgate's own permissions: their
// results appear in the policy's status and in refusals. That account has no permission until an administrator grants
// it, as list and watch of the resource; get alone is not enough, and a rule with resourceNames suffices for lookups by
// name. Whatever is granted, Secrets and Opgate's own namespace cannot be looked up. A forbidden lookup is a problem
// that names the request, and is retried with exponential backoff up to 5 minutes.
//
// # Limits
//
// A policy's template text, loops, output, time and the size of its lookups are bounded, and so are the bytes that its
// functions are given and make; those that make much of little refuse before they do (functions.go). The library bounds neither loops nor output and ends no template, so these are counted by calls
// that are inserted into the text (limits.go).
package templates

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/supply"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// workers is the number of policies that are resolved concurrently.
	workers = 4
	// maxTime is the time limit of a resolution.
	maxTime = 20 * time.Second
)

// Options configure a Resolver.
type Options struct {
	// Config is the configuration of the API client. Required.
	Config *rest.Config
	// Namespace is Opgate's own: lookups are made as its ServiceAccount opgate-lookups, and find nothing in it.
	// Default: lookups are made as the user of Config, which is right only for that user's own commands.
	Namespace string
	// Key returns the key that the marks of policies are signed with, nil while it is not known: then no policy is
	// verified. Default: it is never known.
	Key func() []byte
	// Package returns a package of a catalog, which suggests a namespace; nil while it is not known. It must not wait, and
	// must call PackageChanged for each change. Default: no package is known.
	Package func(pkg string, source olm.Catalog) *catalog.Package
	// DefaultNamespace is for policies without a namespace whose package suggests none. Default: none,
	// and such policies have a problem.
	DefaultNamespace string
	// Publish is called with each new resolution, one at a time for each policy. It must not block. Required.
	Publish func(key types.NamespacedName, r snapshot.Completion)
}

// Resolver completes policies. It is safe for concurrent use; nothing is resolved before Start.
type Resolver struct {
	o    Options
	open func(ctx context.Context, key types.NamespacedName, changed func()) (templateSession, error)
	// queue holds the policies to resolve; its rate limiter is the backoff of retries.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
}

// templateSession resolves the templates of one policy.
type templateSession interface {
	// resolve resolves parts until the context ends, and reports whether a retry may help.
	resolve(ctx context.Context, scope scope, parts []part) (answers []answer, retry bool)
	// lost reports whether the watches of the session have ended.
	lost() bool
	// close ends the session. No resolve may be running.
	close()
}

// answer is the result of a part.
type answer struct {
	value   any
	problem string
}

// entry is the state of a policy.
type entry struct {
	// op is nil once the policy is forgotten.
	op *policyv1beta2.OperatorPolicy
	// session, and the namespace with what it is of, are those of the worker that handles the policy, which is one at a
	// time.
	session templateSession
	// namespace was determined for the generation of a policy, and stays until the generation changes.
	namespace  string
	generation int64
	uid        types.UID
	published  *snapshot.Completion
}

// New returns a resolver. Start runs it.
func New(o Options) (*Resolver, error) {
	config := rest.CopyConfig(o.Config)
	config.Timeout = 0 // a timeout would end watches as well; sessions bound each request themselves
	if o.Namespace != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + o.Namespace + ":" +
			serviceAccount}
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for templates: %w", err)
	}
	silenceLibrary()
	return newResolver(o, func(ctx context.Context, key types.NamespacedName, changed func()) (templateSession, error) {
		return openSession(ctx, config, transport, o.Namespace, key, changed)
	}), nil
}

func newResolver(
	o Options, open func(context.Context, types.NamespacedName, func()) (templateSession, error),
) *Resolver {
	if o.Key == nil {
		o.Key = func() []byte { return nil }
	}
	return &Resolver{o: o, open: open, entries: map[types.NamespacedName]*entry{},
		queue: supply.NewQueue[types.NamespacedName](firstRetry, lastRetry)}
}

// Policy adds or updates a policy. It does not block. The result is passed to Publish, and
// again whenever it changes. A policy that is complete is published unchanged.
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
		return // only its status changed
	}
	r.queue.Forget(key)
	r.queue.Add(key)
}

// Forget removes a policy and its watches. What is being resolved of it may still be published.
func (r *Resolver) Forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[key]; e != nil {
		e.op, e.published = nil, nil
		r.queue.Forget(key)
		r.queue.Add(key) // to close its session, which may be in use now
	}
}

// PackageChanged enqueues the policies whose namespace a package may suggest.
func (r *Resolver) PackageChanged(pkg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.entries {
		if e.published == nil {
			continue
		}
		if sub := &e.published.Policy.Spec.Subscription; sub.Namespace == "" && sub.Name == pkg {
			r.queue.Add(key)
		}
	}
}

// Start resolves until the context ends.
func (r *Resolver) Start(ctx context.Context) error {
	supply.Run(ctx, r.queue, workers, func(key types.NamespacedName) {
		if r.handle(ctx, key) {
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	var closing sync.WaitGroup
	for _, e := range r.entries {
		if e.session != nil {
			closing.Go(e.session.close)
		}
	}
	closing.Wait()
	return nil
}
