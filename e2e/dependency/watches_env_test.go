package dependency

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// watched are Watches that run, what they ask of the API server, and whom they tell.
type watched struct {
	*watches.Watches
	admin    *harness.Client
	requests *requestLog

	mu       sync.Mutex
	notified map[types.NamespacedName]int
	news     map[types.NamespacedName]chan struct{}
	ended    chan error
	stop     context.CancelFunc
}

// watchAs runs Watches as a user until the test ends.
func watchAs(t *testing.T, c *cluster.Cluster, config *rest.Config, o watches.Options) *watched {
	t.Helper()
	admin, err := harness.NewClient(c, cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{
		admin:    admin,
		requests: &requestLog{},
		notified: map[types.NamespacedName]int{},
		news:     map[types.NamespacedName]chan struct{}{},
		ended:    make(chan error, 1),
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next, w.requests} })
	if o.Client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	o.Notify = func(owner types.NamespacedName) {
		w.mu.Lock()
		w.notified[owner]++
		w.mu.Unlock()
		select {
		case w.newsOf(owner) <- struct{}{}:
		default:
		}
	}
	w.Watches = watches.New(o)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(t.Context())
	w.define(ctx, t, config)
	// Names that nothing can have are not watched. Their owner is notified once Start has come to their kind, which would
	// notify the owners of a test as well.
	w.Set(starting, []watches.Target{watchedTarget("Widget", "shop", ""), watchedTarget("Gadget", "", "")})
	go func() { w.ended <- w.Start(ctx) }()
	t.Cleanup(func() { w.end(t) })
	w.untilNotified(t, starting, 2)
	w.Set(starting, nil)
	return w
}

// Set sets the targets of an owner, of which none is older than others.
func (w *watched) Set(owner types.NamespacedName, targets []watches.Target) {
	w.Watches.Set(owner, time.Time{}, targets)
}

// Observe returns the state of a target that exceeds no limits.
func (w *watched) Observe(target watches.Target) dependency.Observed {
	return w.Watches.Observe(types.NamespacedName{}, target)
}

// define passes the CustomResourceDefinitions on, as the snapshot does, and returns when all have been read.
func (w *watched) define(ctx context.Context, t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := stream.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kind, reader := snapshot.CustomResourceDefinitions, snapshot.Reader{}
	read := func(raw []byte) (runtime.Object, error) { return reader.Read(kind, raw), nil }
	informer := cache.NewSharedIndexInformer(client.Selecting(kind.GroupVersionResource(), "", "", read, nil),
		&snapshot.Object{}, 0, cache.Indexers{})
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.Define(nil, obj.(*snapshot.Object)) },
		UpdateFunc: func(old, obj any) { w.Define(old.(*snapshot.Object), obj.(*snapshot.Object)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			w.Define(obj.(*snapshot.Object), nil)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		t.Fatal(ctx.Err())
	}
}

// end stops the Watches and wants nothing of theirs left.
func (w *watched) end(t *testing.T) {
	t.Helper()
	w.stop()
	select {
	case err := <-w.ended:
		if err != nil {
			t.Error(err)
		}
		w.ended <- nil // it may be ended once more
	case <-speed.After(harness.WaitTimeout):
		t.Error("the watches do not end")
	}
	var open []string
	if err := harness.Poll(context.WithoutCancel(t.Context()), harness.WaitTimeout,
		func(context.Context) (bool, error) {
			open = w.requests.open("")
			return len(open) == 0, nil
		}); err != nil {
		t.Errorf("requests outlive the watches: %v", open)
	}
}

func (w *watched) newsOf(owner types.NamespacedName) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news[owner] == nil {
		w.news[owner] = make(chan struct{}, 1)
	}
	return w.news[owner]
}

// toldTimes is how often an owner was notified of an object.
func (w *watched) toldTimes(owner types.NamespacedName) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notified[owner]
}

// untilNotified waits until an owner has been notified so often in all, and fails if it was more often. A change can be
// observed before it is notified.
func (w *watched) untilNotified(t *testing.T, owner types.NamespacedName, times int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s is notified %d times", owner, times), func(context.Context) error {
		if n := w.toldTimes(owner); n < times {
			return fmt.Errorf("it was notified %d times", n)
		}
		return nil
	})
	if n := w.toldTimes(owner); n > times {
		t.Errorf("%s was notified %d times, want %d", owner, n, times)
	}
}

// until waits until a condition holds, and checks it only after a notification of the owner: it fails without one.
func (w *watched) until(t *testing.T, owner types.NamespacedName, what string, is func() bool) {
	t.Helper()
	timeout := speed.After(harness.WaitTimeout)
	for !is() {
		select {
		case <-w.newsOf(owner):
		case <-timeout:
			t.Fatalf("%s was not told that %s", owner, what)
		}
	}
}

// untilSeen waits until a target is seen for a reason; without a reason, until it is seen in a state.
func (w *watched) untilSeen(
	t *testing.T, owner types.NamespacedName, target watches.Target, reason dependency.Reason, state dependency.State,
) {
	t.Helper()
	var last dependency.Observed
	defer func() {
		if t.Failed() {
			t.Logf("last it was %+v", last)
		}
	}()
	w.until(t, owner, fmt.Sprintf("%s is %s%s", target, reason, state), func() bool {
		last = w.Observe(target)
		return last.Reason == reason && last.State == state
	})
}

// put creates an object as soon as its kind is served.
func (w *watched) put(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	putWatched(t, w.admin, u)
}

func putWatched(t *testing.T, admin *harness.Client, u *unstructured.Unstructured) {
	t.Helper()
	resource := watchedResource(admin, u)
	harness.Eventually(t, "create "+u.GetKind()+" "+u.GetName(), func(ctx context.Context) error {
		_, err := resource.Create(ctx, u, metav1.CreateOptions{})
		return err
	})
}

func (w *watched) delete(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if err := w.of(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patch merges a patch into an object.
func (w *watched) patch(t *testing.T, u *unstructured.Unstructured, patch string) {
	t.Helper()
	if _, err := w.of(u).Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return watchedResource(w.admin, u)
}

func watchedResource(admin *harness.Client, u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := u.GroupVersionKind()
	resource := admin.Resource(schema.GroupVersionResource{
		Group:    gvk.Group,
		Version:  gvk.Version,
		Resource: strings.ToLower(gvk.Kind) + "s",
	})
	if u.GetNamespace() == "" {
		return resource
	}
	return resource.Namespace(u.GetNamespace())
}

const watchedGroup = "watched.example.com"

// watchedCRD defines a kind of watchedGroup with versions, the first of which is stored.
func watchedCRD(kind, scope string, labels map[string]any, versions ...string) *unstructured.Unstructured {
	lower := strings.ToLower(kind)
	var served []any
	for i, version := range versions {
		served = append(served, map[string]any{"name": version, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
				"x-kubernetes-preserve-unknown-fields": true}}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": lower + "s." + watchedGroup, "labels": labels},
		"spec": map[string]any{"group": watchedGroup, "scope": scope,
			"names": map[string]any{"kind": kind, "plural": lower + "s"}, "versions": served}}}
}

// watchedObject is an object of watchedGroup in version v1.
func watchedObject(kind, namespace, name string, state dependency.State) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": watchedGroup + "/v1", "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"large": strings.Repeat("x", 10_000)}}}
	u.SetNamespace(namespace)
	if state != dependency.Unknown {
		u.Object["status"] = map[string]any{"compliant": string(state)}
	}
	return u
}

func watchedTarget(kind, namespace, name string) watches.Target {
	return watches.Target{Ref: dependency.Ref{Group: watchedGroup, Kind: kind, Namespace: namespace, Name: name}}
}

// allowed waits until a user has a right.
func allowed(t *testing.T, config *rest.Config, to authorizationv1.ResourceAttributes) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &to}}
	harness.Eventually(t, "the right to "+to.Verb+" "+to.Resource, func(ctx context.Context) error {
		answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !answer.Status.Allowed {
			return fmt.Errorf("not allowed: %s", answer.Status.Reason)
		}
		return nil
	})
}

// requestLog has the requests of a client.
type requestLog struct {
	mu  sync.Mutex
	all []*loggedRequest
}

type loggedRequest struct {
	text string
	open bool
}

// of returns the requests that name something.
func (l *requestLog) of(what string) []string {
	return l.some(func(r *loggedRequest) bool { return strings.Contains(r.text, what) })
}

// open returns those whose answers are still being read.
func (l *requestLog) open(what string) []string {
	return l.some(func(r *loggedRequest) bool { return r.open && strings.Contains(r.text, what) })
}

func (l *requestLog) some(which func(*loggedRequest) bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, r := range l.all {
		if which(r) {
			texts = append(texts, r.text)
		}
	}
	slices.Sort(texts)
	return texts
}

// recorder notes the requests that it passes on.
type recorder struct {
	next http.RoundTripper
	log  *requestLog
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	noted := &loggedRequest{text: req.Method + " " + req.URL.Path + "?" + req.URL.Query().Encode(), open: true}
	r.log.mu.Lock()
	r.log.all = append(r.log.all, noted)
	r.log.mu.Unlock()
	done := func() {
		r.log.mu.Lock()
		noted.open = false
		r.log.mu.Unlock()
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &closing{resp.Body, done}
	return resp, nil
}

// closing is a body that tells when it is closed.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}
