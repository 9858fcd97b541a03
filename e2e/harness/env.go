package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/reaper"
	"github.com/opgate/opgate/e2e/internal/slots"
)

// Env is a control plane with Opgate in front of it, and clients.
type Env struct {
	*cluster.Cluster
	// Gate is the process that answers at present.
	Gate    *cluster.Gate
	Clients map[cluster.User]*Client
	// options are those that Restart or StartGate started it with.
	options cluster.GateOptions
}

func newEnv(c *cluster.Cluster) (*Env, error) {
	e := &Env{Cluster: c, Clients: map[cluster.User]*Client{}}
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant, cluster.OLM} {
		var err error
		if e.Clients[user], err = NewClient(c, user); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// programsVariable is the environment variable with a directory that has the programs of this checkout, so that each
// package of tests does not link them again. Without it they are built.
const programsVariable = "OPGATE_E2E_PROGRAMS"

// programs are the binaries that all clusters of this process run. Linking one takes seconds each time.
var (
	programs = cluster.Programs{Built: os.Getenv(programsVariable), Log: os.Stderr}
	// makePrograms makes their directory, and removePrograms removes it.
	makePrograms   = sync.OnceValue(makeProgramsDir)
	removePrograms = func() error { return nil }
)

func makeProgramsDir() (err error) {
	if programs.Dir, err = os.MkdirTemp("", "opgate-e2e-"); err != nil {
		return err
	}
	dismiss, err := reaper.Start(context.Background(), programs.Dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(programs.Dir))
	}
	removePrograms = func() error { return errors.Join(os.RemoveAll(programs.Dir), dismiss()) }
	return nil
}

// Opgate returns the binary of the commands.
func Opgate(t testing.TB, c *cluster.Cluster) string {
	t.Helper()
	binary, err := c.Programs().Opgate(context.WithoutCancel(t.Context())) // a cleanup may be the first to need it
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// OpenShiftVersion is the version that the shared cluster states it is.
const OpenShiftVersion = "4.19.3"

// ContainerMemory is the memory limit of the chart, in bytes, under which hostile tests run Opgate.
const ContainerMemory = 512 << 20

// Shared returns an environment that the tests of a package share, with Opgate running. The first call starts it. Each
// test has it to itself until it ends, while others run on other clusters; so Shared calls t.Parallel, and the test
// must not. It leaves neither policies nor objects behind. It may leave an Opgate with other options, or none: the next
// test starts another.
func Shared(t testing.TB) *Env {
	t.Helper()
	return sharedWith(t, cluster.GateOptions{})
}

// SharedWithoutBackstop is Shared for a test of what only the webhooks answer: the API server holds nothing by itself.
func SharedWithoutBackstop(t testing.TB) *Env {
	t.Helper()
	return sharedWith(t, cluster.GateOptions{WithoutBackstop: true})
}

func sharedWith(t testing.TB, opts cluster.GateOptions) *Env {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		test.Parallel()
	}
	e := withoutOLM.take(t, startWithoutOLM).Env
	if !e.runs(opts) {
		e.Restart(t, opts)
	}
	return e
}

// runs reports whether Opgate runs, with these options.
func (e *Env) runs(opts cluster.GateOptions) bool {
	if e.Gate == nil || !reflect.DeepEqual(e.options, opts) {
		return false
	}
	select {
	case <-e.Gate.Exited():
		return false
	default:
		return true
	}
}

// Restart stops Opgate if it runs, and starts another.
func (e *Env) Restart(t testing.TB, opts cluster.GateOptions) {
	t.Helper()
	if e.Gate != nil {
		if _, err := e.Gate.Stop(); err != nil {
			t.Error(err)
		}
	}
	e.StartGate(t, opts)
}

// StartGate starts Opgate where none runs.
func (e *Env) StartGate(t testing.TB, opts cluster.GateOptions) {
	t.Helper()
	gate, err := e.StartOpgate(context.WithoutCancel(t.Context()), opts)
	if err != nil {
		t.Fatal(err)
	}
	e.Gate, e.options = gate, opts
}

// StartWithoutGate starts a cluster for one test alone.
func StartWithoutGate(t testing.TB) *Env {
	t.Helper()
	return Start(t, cluster.Options{Audit: true, Log: os.Stderr})
}

// Start is StartWithoutGate for tests that need other options. They need the audit log, which shows at the end that
// Opgate used no right that it is not shipped with.
func Start(t testing.TB, opts cluster.Options) *Env {
	t.Helper()
	e := StartUnchecked(t, opts)
	t.Cleanup(func() {
		if err := checkLeastPrivilege(e.Cluster); err != nil {
			t.Error(err)
		}
	})
	return e
}

// StartUnchecked starts a cluster for one test alone, and does not check the rights that Opgate used in it.
func StartUnchecked(t testing.TB, opts cluster.Options) *Env {
	t.Helper()
	e, err := newEnv(StartCluster(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// StartCluster starts a control plane for one test alone.
func StartCluster(t testing.TB, opts cluster.Options) *cluster.Cluster {
	t.Helper()
	slots.Take(t)
	c, stop, err := runCluster(t.Context(), opts)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	owned.add(t, c)
	return c
}

// clusters are those of the tests that run, by the name of the top-level test.
type clusters struct {
	mu     sync.Mutex
	byTest map[string][]*cluster.Cluster
}

var owned = clusters{byTest: map[string][]*cluster.Cluster{}}

func topLevel(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

func (o *clusters) add(t testing.TB, c *cluster.Cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := topLevel(t)
	o.byTest[name] = append(o.byTest[name], c)
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.byTest[name] = slices.DeleteFunc(o.byTest[name], func(other *cluster.Cluster) bool { return other == c })
	})
}

// working returns a context that ends when a cluster of the test cannot do any more what is expected of it.
func working(t testing.TB) (ctx context.Context, cancel func()) {
	owned.mu.Lock()
	defer owned.mu.Unlock()
	ctx = t.Context()
	var cancels []func()
	for _, c := range owned.byTest[topLevel(t)] {
		ctx, cancel = c.Working(ctx)
		cancels = append(cancels, cancel)
	}
	return ctx, func() {
		for _, cancel := range slices.Backward(cancels) {
			cancel()
		}
	}
}

// runCluster starts a control plane, and a reaper for the case that this process cannot stop it. The caller must call
// stop, whatever the error.
func runCluster(ctx context.Context, opts cluster.Options) (c *cluster.Cluster, stop func() error, err error) {
	stop = func() error { return nil }
	if err := makePrograms(); err != nil {
		return nil, stop, err
	}
	opts.Programs = &programs
	opts.Dir, err = os.MkdirTemp("", "opgate-e2e-")
	if err != nil {
		return nil, stop, err
	}
	dismiss, err := reaper.Start(ctx, opts.Dir)
	if err != nil {
		return nil, stop, errors.Join(err, os.RemoveAll(opts.Dir))
	}
	c, err = cluster.Start(ctx, opts)
	if err != nil {
		return nil, dismiss, err
	}
	return c, func() error {
		err := errors.Join(c.Stop(), dismiss())
		if _, there := os.Stat(c.Dir()); !errors.Is(there, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("%s is still there (%w)", c.Dir(), there))
		}
		return err
	}, nil
}

// NewNamespace creates a namespace of the tenant's. No controller deletes namespaces here, so each has a name of its
// own.
func (e *Env) NewNamespace(t testing.TB) string {
	t.Helper()
	name := "shop-" + rand.String(8)
	e.EnsureNamespace(t, name, true)
	return name
}

// EnsureNamespaces creates the namespaces of objects that do not exist yet. They are the tenant's, but for those of
// policies alone.
func (e *Env) EnsureNamespaces(t testing.TB, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		switch {
		case u.GetKind() == "Namespace":
			e.EnsureNamespace(t, u.GetName(), true)
		case u.GetNamespace() != "":
			e.EnsureNamespace(t, u.GetNamespace(), !strings.HasPrefix(u.GetNamespace(), cluster.PolicyNamespace))
		}
	}
}

// Label sets the labels of u on a namespace until the end of the test. The gate observes them after the next sync.
func (e *Env) Label(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	none := map[string]any{}
	for name := range u.GetLabels() {
		none[name] = nil
	}
	patch := func(labels any) error {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		_, err = e.Clients[cluster.Admin].Of(u).Patch(context.WithoutCancel(t.Context()), u.GetName(),
			types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() {
		if err := patch(none); err != nil {
			t.Error(err)
		}
		e.Sync(t)
	})
	if err := patch(u.GetLabels()); err != nil {
		t.Fatal(err)
	}
}

// EnsureNamespace creates a namespace that does not exist yet, for the tenant where tenants is set.
func (e *Env) EnsureNamespace(t testing.TB, name string, tenants bool) {
	t.Helper()
	client := e.Clients[cluster.Admin].Resource(namespaces)
	_, err := client.Get(t.Context(), name, metav1.GetOptions{})
	switch {
	case err == nil:
		return
	case !apierrors.IsNotFound(err):
		t.Fatal(err)
	case tenants:
		err = e.CreateTenantNamespace(context.WithoutCancel(t.Context()), name)
	default:
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(name)
		_, err = client.Create(t.Context(), namespace, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
