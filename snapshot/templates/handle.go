package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// handle completes one policy, publishes the result, and reports whether a retry may help.
func (r *Resolver) handle(ctx context.Context, key types.NamespacedName) (retry bool) {
	r.mu.Lock()
	e := r.entries[key]
	if e == nil {
		r.mu.Unlock()
		return false
	}
	op := e.op
	if op == nil {
		delete(r.entries, key)
	}
	r.mu.Unlock()

	var parts []part
	if op != nil {
		parts = templated(op)
	}
	if e.session != nil && (len(parts) == 0 || e.session.lost()) {
		e.session.close()
		e.session = nil
	}
	if op == nil {
		return false
	}
	completed := op.DeepCopy()
	scope := r.scope(op)
	problems, retry := r.resolveParts(ctx, key, e, scope, parts, completed)
	retry = retry || !scope.unlimited && !scope.verified && len(scope.lookups) > 0 && len(r.o.Key()) == 0
	if ctx.Err() != nil {
		return false // the process is stopping, which may be why it failed
	}
	// If the namespace may depend on a part that failed, the part's problem is enough.
	unresolved := func(p part) bool { return p.Path == "spec.subscription" }
	if op.Spec.Subscription.Namespace == "" && completed.Spec.Subscription.Namespace == "" &&
		!slices.ContainsFunc(templated(completed), unresolved) {
		namespace, again, problem := r.fillIn(e, op, completed)
		if problem != "" {
			problems = append(problems, problem)
		}
		completed.Spec.Subscription.Namespace = namespace
		retry = retry || again
	}
	r.publish(key, e, &snapshot.Completion{Policy: completed, Problems: problems})
	return retry
}

// scope returns what the templates of a policy may look up.
func (r *Resolver) scope(op *policyv1beta2.OperatorPolicy) scope {
	return scope{unlimited: r.o.Namespace == "", namespace: op.Namespace,
		verified: rules.LookupsVerified(r.o.Key(), op), lookups: rules.Lookups(op)}
}

// fillIn returns the namespace of a policy that names none. The first result for a generation is retained: a
// catalog that changes must not move an operator.
func (r *Resolver) fillIn(
	e *entry, op, completed *policyv1beta2.OperatorPolicy,
) (namespace string, retry bool, problem string) {
	if e.generation == op.Generation && e.uid == op.UID {
		namespace = e.namespace
	}
	if namespace == "" {
		namespace = settledNamespace(op)
	}
	if namespace == "" {
		namespace, retry, problem = r.namespace(completed)
	}
	e.namespace, e.generation, e.uid = namespace, op.Generation, op.UID
	return namespace, retry, problem
}

// publish publishes a resolution if it differs from the last one.
func (r *Resolver) publish(key types.NamespacedName, e *entry, found *snapshot.Completion) {
	r.mu.Lock()
	if e.op == nil || e.op.UID != found.Policy.UID || e.op.Generation != found.Policy.Generation ||
		same(found, e.published) {
		r.mu.Unlock()
		return // forgotten, or a newer state is queued, or nothing differs
	}
	e.published = found
	r.mu.Unlock()
	r.o.Publish(key, *found)
}

// resolveParts writes the resolved parts into a policy.
func (r *Resolver) resolveParts(
	ctx context.Context, key types.NamespacedName, e *entry, scope scope, parts []part,
	completed *policyv1beta2.OperatorPolicy,
) (problems []string, retry bool) {
	var here []part
	for _, p := range parts {
		if contains(p.written, "{{hub") {
			problems = append(problems, p.Path+
				" holds a hub template ({{hub ... hub}}), which the hub has to resolve before the policy reaches this cluster")
			continue
		}
		here = append(here, p)
	}
	if len(here) == 0 {
		return problems, false
	}
	if e.session == nil {
		var err error
		if e.session, err = r.open(ctx, key, func() { r.queue.Add(key) }); err != nil {
			return append(problems, here[0].Path+" does not resolve: "+err.Error()), true
		}
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	answers, retry := e.session.resolve(limited, scope, here)
	for i, p := range here {
		if answers[i].problem != "" {
			problems = append(problems, p.Path+" does not resolve: "+answers[i].problem)
			continue
		}
		if err := p.put(completed, answers[i].value); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems, retry
}

func all(parts []part, problem string) []answer {
	return slices.Repeat([]answer{{problem: problem}}, len(parts))
}

const (
	// requestTimeout bounds a lookup, and the start of a watch.
	requestTimeout = 8 * time.Second
	// maxLookup bounds the response of one lookup, since all of it is cached: templates that list a kind
	// without a selector find all objects of the cluster.
	maxLookup = 16 << 20
)

var (
	errTooLarge = errors.New("the lookup finds more than 16 MiB; give a name, a namespace or a selector")
	errNoAnswer = fmt.Errorf("no answer within %s: %w", requestTimeout, context.DeadlineExceeded)
)

// transport sends the requests of one session. The libraries that make them pass no context and no timeout,
// and hold a lock while they wait.
type transport struct {
	base http.RoundTripper
	// ctx ends every request, including watches: those of the libraries have a context that never ends.
	ctx context.Context
	// lost is called when a resource that is watched is not served any more. The library would retry every second.
	lost func()
	gone atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	detach := context.AfterFunc(t.ctx, func() { cancel(nil) })
	timer := time.AfterFunc(requestTimeout, func() { cancel(errNoAnswer) })
	end := func() {
		timer.Stop()
		detach()
		cancel(nil)
	}
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer
		}
		end()
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound && isResource(req.URL.Path) && t.gone.CompareAndSwap(false, true) {
		t.lost()
	}
	watch := req.URL.Query().Has("watch")
	if watch {
		timer.Stop() // a watch has no time limit
	}
	resp.Body = &body{ReadCloser: resp.Body, left: maxLookup, watch: watch, end: end}
	return resp, nil
}

// isResource distinguishes the path of a collection from that of discovery: /api/v1 and /apis/<group>/<version>.
func isResource(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return len(segments) > 3 || len(segments) > 2 && segments[0] == "api"
}

// body ends the request's context when it is closed, and limits what is read of a lookup.
type body struct {
	io.ReadCloser
	left  int
	watch bool
	end   func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.watch {
		if b.left -= n; b.left < 0 {
			return 0, errTooLarge
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
