package operatorpolicy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/crds"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/catalogs"
	"github.com/opgate/opgate/controller/operatorpolicy"
	"github.com/opgate/opgate/controller/operatorpolicy/scripttest"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
	"github.com/opgate/opgate/snapshot/templates"
	"github.com/opgate/opgate/stream"
)

// TestReconciler plays the scripts of testdata: the controller reads a snapshot that the feed builds from stored
// objects, and its writes change these. Scripts play the part of OLM. scripttest documents their commands; what
// depends on the API server is in those of e2e/loop.
func TestReconciler(t *testing.T) {
	complete := schemas(t)
	testscript.RunT(inBubble{t}, testscript.Params{
		Dir:             "testdata",
		ContinueOnError: true,
		Setup:           func(script *testscript.Env) error { return start(script, complete) },
		Cmds:            commands(),
	})
}

// inBubble runs each script with a clock of its own, which advances when nothing is left to do.
type inBubble struct{ *testing.T }

// Run runs a script as a subtest.
func (t inBubble) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { f(inBubble{t}) })
	})
}

// Parallel does nothing: Run has done it.
func (inBubble) Parallel() {}

// Verbose returns false: only the log of a script that fails is of interest.
func (inBubble) Verbose() bool { return false }

type playerKey struct{}

// commands are those of the player that start has added to a script.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	for name := range (&scripttest.Player{}).Commands() {
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			ts.Value(playerKey{}).(*scripttest.Player).Commands()[name](ts, neg, args)
		}
	}
	all["stall"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Value(storageKey{}).(*storage).stall(strings.Join(args, ""))
	}
	all["refuse"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Value(storageKey{}).(*storage).refuse(strings.Join(args, ""))
	}
	leader := func(ts *testscript.TestScript) *leadership { return ts.Value(leadershipKey{}).(*leadership) }
	all["down"] = func(ts *testscript.TestScript, _ bool, _ []string) { leader(ts).end() }
	all["up"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(leader(ts).begin(durationOf(ts, args)))
	}
	all["passes"] = func(ts *testscript.TestScript, _ bool, args []string) {
		synctest.Wait()
		time.Sleep(durationOf(ts, args))
		synctest.Wait()
	}
	return all
}

// durationOf returns the duration that is the argument of a command, 0 without one.
func durationOf(ts *testscript.TestScript, args []string) time.Duration {
	if len(args) == 0 {
		return 0
	}
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	return d
}

// storageKey and leadershipKey are those of the storage and of the leader of a script.
type (
	storageKey    struct{}
	leadershipKey struct{}
)

// leadership is the leader of a script. Besides those of scripttest there are the commands
//
//	stall KIND          the watches of a kind deliver nothing more
//	down                the leader is gone
//	up [DURATION]       the next one starts, with a clock that is behind by a duration
//	passes DURATION     time passes
type leadership struct {
	objects *storage
	mapper  meta.RESTMapper
	scheme  *runtime.Scheme
	seen    *contents

	registry *prometheus.Registry
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// begin starts a leader, which knows what is stored alone.
func (l *leadership) begin(behind time.Duration) error {
	mgr, err := manager.New(config(conditional{l.objects}), manager.Options{
		Scheme:         l.scheme,
		Logger:         logr.Discard(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     ctrlconfig.Controller{SkipNameValidation: new(true)}, // the next leader has them again
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return l.mapper, nil },
	})
	if err != nil {
		return err
	}
	store := &snapshot.Store{}
	l.seen.follow(store)
	l.registry = prometheus.NewRegistry()
	if err := addTo(mgr, store, l.registry, ticking(behind)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			panic(err)
		}
	})
	return nil
}

// end stops the leader.
func (l *leadership) end() {
	l.cancel()
	l.running.Wait()
}

// start starts the controller, and what it reads from, until the script ends.
func start(script *testscript.Env, complete func(*unstructured.Unstructured)) error {
	// After all times in scripts that are in the past.
	time.Sleep(time.Until(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)))
	objects, mapper := newStorage(complete)
	script.Values[storageKey{}] = objects
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), policyv1beta2.AddToScheme(scheme)); err != nil {
		return err
	}
	user, err := client.New(config(patient{objects}), client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	script.Defer(cancel)
	for _, name := range []string{"default", "olm", ownNamespace} {
		if err := user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	shared := &contents{}
	leader := &leadership{objects: objects, mapper: mapper, scheme: scheme, seen: shared}
	script.Values[leadershipKey{}] = leader
	script.Defer(func() {
		if err := shared.changed(); err != nil {
			script.T().Fatal(err)
		}
	})
	if err := leader.begin(0); err != nil {
		return err
	}
	script.Defer(leader.end)
	player := &scripttest.Player{
		Context: ctx,
		Admin:   user,
		OLM:     user,
		Poll:    poll,
		Now:     time.Now,
		Scale:   func(d time.Duration) time.Duration { return d },
		Metrics: func(context.Context) (string, error) {
			page, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
			promhttp.HandlerFor(leader.registry, promhttp.HandlerOpts{}).ServeHTTP(page, request)
			return page.Body.String(), nil
		},
	}
	script.Values[playerKey{}] = player
	return player.Setup(script)
}

// ownNamespace is Opgate's.
const ownNamespace = "opgate-system"

// config returns the configuration of a client with a transport.
func config(transport http.RoundTripper) *rest.Config {
	return &rest.Config{
		Host:          "http://storage",
		Transport:     transport,
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

// patient is the transport of scripts: after each write it waits until nothing is left to do, since the watches of two
// kinds have no order.
type patient struct{ *storage }

// RoundTrip answers a request.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.storage.RoundTrip(r)
	if r.Method != http.MethodGet {
		synctest.Wait()
	}
	return response, err
}

// conditional is the transport of the leader, which may have been stopped since it read what it writes. It panics if a
// write would apply to any version of an object, but for a status that reports what was done.
type conditional struct{ *storage }

// RoundTrip answers a request.
func (c conditional) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodPut, http.MethodPatch, http.MethodDelete:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		own := strings.Contains(r.URL.Path, "/operatorpolicies/") && strings.HasSuffix(r.URL.Path, "/status")
		if !own && !bytes.Contains(body, []byte(`resourceVersion"`)) {
			panic(fmt.Sprintf("%s %s has no precondition: %s", r.Method, r.URL.Path, body))
		}
	}
	return c.storage.RoundTrip(r)
}

// addTo adds the controller, and what `opgate-server serve` runs beside it for policies, to a manager.
func addTo(
	mgr manager.Manager, store *snapshot.Store, registry *prometheus.Registry, now func() time.Time,
) error {
	objects, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	streams, err := stream.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	feed := snapshot.NewFeed(snapshot.FeedOptions{Client: streams, Store: store, Namespace: ownNamespace,
		Log: logr.Discard(),
		Now: time.Now, MaxStaleness: 10 * time.Second})
	packages := packages.New(packages.Options{Client: objects, Now: time.Now, Changed: feed.PackageChanged})
	resolver, err := templates.New(templates.Options{Config: mgr.GetConfig(), Package: packages.Get,
		Publish: feed.Completed})
	if err != nil {
		return err
	}
	feed.Completer, feed.Packages = resolver, packages
	feed.SetCluster(facts.Cluster{Version: "1.37.2"})
	feed.Lead()
	writer := apply.Writer{Store: store, Metrics: apply.NewMetrics(registry)}
	loop := &operatorpolicy.Controller{Shared: apply.Shared{Writer: writer, Log: logr.Discard(), Now: now},
		Packages: packages, Metrics: operatorpolicy.NewMetrics(registry, registry, store.Load),
		Key:        func() []byte { return []byte("key") },
		Ungoverned: rules.ApproveUngoverned, HistoryLength: 10, Escaped: func(string, string) []string { return nil }}
	compared := &catalogs.Controller{Shared: apply.Shared{Writer: writer, Log: logr.Discard(), Now: time.Now},
		Streams: streams, Namespace: ownNamespace}
	for _, r := range []manager.Runnable{packages, resolver, feed} {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	return errors.Join(loop.AddTo(mgr), compared.AddTo(mgr))
}

// ticking returns a clock that shows no time twice, as real ones: that of the bubble stands still while something is
// done, and events are named after it. It is behind by a duration.
func ticking(behind time.Duration) func() time.Time {
	var ticks atomic.Int64
	return func() time.Time { return time.Now().Add(time.Duration(ticks.Add(1)) - behind) }
}

// poll checks when nothing is left to do, and then advances the clock, further after a while.
func poll(ctx context.Context, check func(context.Context) (bool, error)) error {
	pause, began := 100*time.Millisecond, time.Now()
	for time.Since(began) < 2*time.Minute {
		synctest.Wait()
		if done, err := check(ctx); done || err != nil {
			return err
		}
		if time.Since(began) > 3*time.Second {
			pause = time.Second
		}
		time.Sleep(pause)
	}
	return context.DeadlineExceeded
}

// schemas returns a function that removes unknown fields and sets defaults, by the schemas of the definitions that
// Opgate and OLM ship.
func schemas(t *testing.T) func(*unstructured.Unstructured) {
	t.Helper()
	data, err := os.ReadFile("../../manifests/crd/policy.open-cluster-management.io_operatorpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, policies); err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupVersionKind]*structuralschema.Structural{}
	convert := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps
	for _, d := range []*apiextensionsv1.CustomResourceDefinition{policies, crds.CatalogSource(),
		crds.ClusterServiceVersion(), crds.InstallPlan(), crds.OperatorCondition(), crds.OperatorGroup(),
		crds.Subscription()} {
		for _, version := range d.Spec.Versions {
			written, internal := version.Schema.OpenAPIV3Schema, &apiextensions.JSONSchemaProps{}
			if err := convert(written, internal, nil); err != nil {
				t.Fatal(err)
			}
			structural, err := structuralschema.NewStructural(internal)
			if err != nil {
				t.Fatal(err)
			}
			all[schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name,
				Kind: d.Spec.Names.Kind}] = structural
		}
	}
	return func(u *unstructured.Unstructured) {
		if structural := all[u.GroupVersionKind()]; structural != nil {
			pruning.Prune(u.Object, structural, true)
			defaulting.Default(u.Object, structural)
		}
	}
}
