package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/stolostron/go-template-utils/v7/pkg/templates"
	"github.com/stolostron/kubernetes-dependency-watches/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	klogv1 "k8s.io/klog"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/lookup"
)

// session resolves the templates of one policy with the library's resolver and watches what they look up.
//
// Each policy has a watcher of its own, although one could serve all: the library holds one lock while it waits
// for the API server, so a lookup that hangs would block every other policy; and only ending the watcher
// removes a resource that is not served any more.
type session struct {
	id        client.ObjectIdentifier
	resolver  *templates.TemplateResolver
	watcher   *lookups
	transport *transport
	cancel    context.CancelFunc // ends requests
	stop      context.CancelFunc // ends the watcher
	stopped   chan struct{}
	// spoilt is set when the watcher may have cached a failure.
	spoilt atomic.Bool
}

// openSession returns a session, whose lookups find nothing in a reserved namespace. Changed is called when an object
// that was looked up changed.
func openSession(
	ctx context.Context, config *rest.Config, base http.RoundTripper, reserved string, key types.NamespacedName,
	changed func(),
) (templateSession, error) {
	// Not the process's context: watches must be stopped before requests and the watcher end.
	ctx = context.WithoutCancel(ctx)
	requests, cancel := context.WithCancel(ctx)
	s := &session{
		id: client.ObjectIdentifier{Group: policyv1beta2.GroupVersion.Group,
			Version: policyv1beta2.GroupVersion.Version,
			Kind:    "OperatorPolicy", Namespace: key.Namespace, Name: key.Name},
		transport: &transport{base: base, ctx: requests, lost: changed},
		cancel:    cancel,
		stopped:   make(chan struct{}),
	}
	httpClient := &http.Client{Transport: s.transport}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, httpClient)
	discoveryClient, failed := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err := errors.Join(err, failed); err != nil {
		cancel()
		return nil, fmt.Errorf("make a client for templates: %w", err)
	}
	reconciler := reconcile.TypedFunc[client.ObjectIdentifier](
		func(context.Context, client.ObjectIdentifier) (reconcile.Result, error) {
			changed()
			return reconcile.Result{}, nil
		})
	watcher := client.NewWithClients(dynamicClient, discoveryClient, reconciler, &client.Options{
		DisableInitialReconcile: true,
		EnableCache:             true,
		// The resource of a kind does not change; with a second discovery, a policy whose lookups
		// are all served from the cache could fail because the API server is unavailable.
		ObjectCacheOptions: client.ObjectCacheOptions{GVKToGVRCacheTTL: 10 * 365 * 24 * time.Hour},
	})
	s.watcher = &lookups{DynamicWatcher: watcher, reserved: reserved}
	s.resolver, err = templates.NewResolverWithDynamicWatcher(s.watcher, templates.Config{SkipBatchManagement: true})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make a template resolver: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	s.stop = stop
	started := watcher.Started()
	go func() {
		defer close(s.stopped)
		_ = watcher.Start(watching) // it never returns an error
	}()
	<-started
	return s, nil
}

func (s *session) lost() bool { return s.transport.gone.Load() || s.spoilt.Load() }

// interrupt cancels requests in progress: the libraries pass no context. The session cannot be used afterwards.
func (s *session) interrupt() {
	s.spoilt.Store(true)
	s.cancel()
}

// close waits for the watches to end. A request in progress, which the library holds a lock for, is ended after a second.
func (s *session) close() {
	late := time.AfterFunc(time.Second, s.cancel)
	_ = s.resolver.UncacheWatcher(s.id) // it returns an error only for what is not watched
	late.Stop()
	s.cancel()
	s.stop()
	<-s.stopped
}

func (s *session) resolve(ctx context.Context, scope scope, parts []part) (answers []answer, retry bool) {
	defer context.AfterFunc(ctx, s.interrupt)()
	l := &limits{ctx: ctx}
	s.watcher.scope, s.watcher.limits = scope, l
	if err := s.resolver.StartQueryBatch(s.id); err != nil {
		return all(parts, err.Error()), true
	}
	functions := l.functions()
	for _, p := range parts {
		value, err := s.resolvePart(l, functions, &p)
		if err == nil {
			answers = append(answers, answer{value: value})
			continue
		}
		answers = append(answers, answer{problem: s.problem(&p, err)})
		if mayPass(err) {
			retry = true
			if !apierrors.IsForbidden(err) {
				s.spoilt.Store(true) // the watcher caches for a long time that discovery of a kind failed
			}
		}
	}
	if err := s.resolver.EndQueryBatch(s.id); err != nil {
		return all(parts, err.Error()), true
	}
	if err := l.inTime(); err != nil {
		return all(parts, err.Error()), true
	}
	return answers, retry
}

func (s *session) resolvePart(l *limits, functions template.FuncMap, p *part) (any, error) {
	raw, err := json.Marshal(p.written)
	if err != nil {
		return nil, err
	}
	text, err := templates.JSONToYAML(raw)
	if err != nil {
		return nil, err
	}
	limited, err := l.bounded(string(text))
	if err != nil {
		return nil, parseError{err}
	}
	result, err := s.resolver.ResolveTemplate([]byte(limited), nil, &templates.ResolveOptions{
		InputIsYAML: true, Watcher: &s.id, CustomFunctions: functions, DenylistFunctions: slices.Clone(refused)})
	if err == nil && len(result.ResolvedJSON) > maxOutput {
		err = limitErrorf("it resolves to more than 1 MiB")
	}
	var value any
	if err == nil {
		err = json.Unmarshal(result.ResolvedJSON, &value)
	}
	if err != nil {
		// The library quotes the whole template before the cause.
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		if limit := limitError(""); errors.As(err, &limit) {
			err = limit
		}
		return nil, err
	}
	return value, nil
}

// parseError is an error in the text of a template, before anything is looked up.
type parseError struct{ error }

// mayPass reports whether an error may disappear without a change of the policy or of an object that is watched.
func mayPass(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		// A missing object is watched; a missing resource is not, and has no name in the details.
		details := status.Status().Details
		return !apierrors.IsNotFound(err) || details == nil || details.Name == ""
	}
	var network net.Error
	return errors.Is(err, templates.ErrMissingAPIResource) || errors.As(err, &network) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// inserted is the call that the template as it was written does not have.
const inserted = " | " + outputFunction

// problem returns why a part does not resolve, without the calls that were inserted. An error of a function may
// quote what it was given, so it is shown only where nothing was looked up, or where it is about a lookup that is
// literal in the text of the policy.
func (s *session) problem(p *part, err error) string {
	var (
		limit     limitError
		parsing   parseError
		executing template.ExecError
	)
	shown := err.Error()
	switch {
	case errors.As(err, &limit), errors.As(err, &parsing), len(lookup.Of(p.written)) == 0:
	case s.watcher.scope.literal() && ofLookup(err):
	case errors.As(err, &executing):
		where, _, _ := strings.Cut(shown, ">: ") // what precedes is of the template
		shown = text.Truncate(where, maxProblem/2) + ">: the error is not shown, since it may quote what was looked up"
	case !strings.HasPrefix(shown, "template: "): // else the library does not parse it
		shown = "its result is not YAML"
	}
	return text.Truncate(strings.ReplaceAll(shown, inserted, ""), maxProblem)
}

// ofLookup reports whether an error is one of a lookup, which quotes what was to be looked up and nothing else.
func ofLookup(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) || mayPass(err) || errors.Is(err, client.ErrResourceUnwatchable)
}

// silenceLibrary turns off the log of go-template-utils: it writes to stderr, bypassing our own log, and includes every
// failed template with its error, which may contain what was looked up. Nothing else uses this version of klog.
var silenceLibrary = sync.OnceFunc(func() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klogv1.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klogv1.SetOutput(io.Discard)
})

// serviceAccount is the account, in Opgate's namespace, that lookups are made as. It has the rights that an
// administrator grants to templates and no others.
const serviceAccount = "opgate-lookups"

// lookups is the watcher of a session. Every lookup of a template passes it, and it finds nothing that templates must
// not read.
type lookups struct {
	client.DynamicWatcher
	// reserved is Opgate's own namespace, in which nothing is found whatever the account may read; "" reserves none.
	reserved string
	// scope and limits are those of the resolution.
	scope  scope
	limits *limits
}

// scope is what the templates of a policy may look up.
type scope struct {
	// unlimited scopes are of commands, which make requests with the rights of their own user.
	unlimited bool
	// namespace is the policy's own.
	namespace string
	// verified is set if the policy's author has the right to get all of lookups; else only what is in namespace may be
	// looked up.
	verified bool
	lookups  []lookup.Lookup
}

// literal reports whether every lookup names its object in the text of the template, so that a message that quotes the
// name shows nothing that was looked up.
func (s *scope) literal() bool {
	return !slices.ContainsFunc(s.lookups, func(l lookup.Lookup) bool { return l.Name == "" })
}

// permits fails if a policy's templates must not look up an object or, without a name, all of a kind. What its text
// does not show was not verified, so that a lookup that was not understood is never made.
func (s *scope) permits(resource client.ScopedGVR, namespace, name string) error {
	covered := func(l lookup.Lookup) bool { return l.Covers(resource.GroupResource(), namespace, name) }
	switch {
	case s.unlimited:
	case !slices.ContainsFunc(s.lookups, covered):
		return limitErrorf("it looks up what Opgate did not find in its text; write the kind, namespace and name in the call itself")
	case !s.verified && (!resource.Namespaced || namespace != s.namespace):
		return limitError(rules.UnverifiedLookupText)
	}
	return nil
}

// Get returns one object.
func (l *lookups) Get(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if resource.Namespaced && namespace == "" {
		return nil, limitErrorf("%s has namespaces: write one", gvk.Kind)
	}
	if err := l.scope.permits(resource, namespace, name); err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.Get(watcher, gvk, namespace, name)
	return found, cmp.Or(err, l.limits.lookedUp(found))
}

// List returns the objects of a kind in a namespace or, if that is empty, in all except Opgate's.
func (l *lookups) List(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace string, selector labels.Selector,
) ([]unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if err := l.scope.permits(resource, namespace, ""); err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.List(watcher, gvk, namespace, selector)
	found = slices.DeleteFunc(found, func(o unstructured.Unstructured) bool {
		return resource.Namespaced && o.GetNamespace() == l.reserved
	})
	return found, cmp.Or(err, l.limits.lookedUp(found))
}

// allows returns the resource of a kind, and fails if templates must not look it up there, whatever their policy.
func (l *lookups) allows(gvk schema.GroupVersionKind, namespace string) (resource client.ScopedGVR, err error) {
	resource, err = l.GVKToGVR(gvk)
	switch {
	case err != nil:
		return resource, err
	case resource.Group == "" && resource.Resource == "secrets":
		return resource, limitErrorf("templates of OperatorPolicies cannot look up Secrets")
	case !resource.Namespaced && namespace != "": // which the library would ignore
		return resource, limitErrorf(`%s has no namespace: write ""`, gvk.Kind)
	case namespace != "" && namespace == l.reserved:
		return resource, limitErrorf("templates cannot look up what is in namespace %s, which is Opgate's own",
			namespace)
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return resource, limitErrorf("the namespace of a lookup is not the name of one")
	}
	return resource, nil
}
