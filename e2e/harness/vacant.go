package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/slots"
	"github.com/opgate/opgate/e2e/olm"
)

// room is an environment that tests of a package take turns in, each of them alone. It is started when the first test
// takes it.
type room struct {
	turn sync.Mutex
	once sync.Once
	env  *OLMEnv
	end  func() error
	err  error
}

// The environments of a package, without OLM and with it. To start a control plane costs more than most tests do, so
// that others are for tests that need options of the API server.
var withoutOLM, withOLM room

// storedPackageManifests are objects where tests define that kind (PackageManifests); elsewhere nothing serves them.
var storedPackageManifests = schema.GroupVersionResource{Group: "packages.operators.coreos.com", Version: "v1",
	Resource: "packagemanifests"}

// VacantOptions are those of the control planes that tests of a package take turns in. That with OLM states no version of
// OpenShift. A package may set others in its TestMain.
var VacantOptions = cluster.Options{Audit: true, OpenShift: OpenShiftVersion, Log: os.Stderr}

// Vacant returns an environment in which Opgate does not run, and in which nothing is stored that it would judge by.
// The first call starts it. Tests that use it may be parallel: each has it to itself until it ends. Then Opgate is
// stopped, and what was written is removed.
func Vacant(t testing.TB) *Env {
	t.Helper()
	e := withoutOLM.take(t, startWithoutOLM)
	vacate := func() {
		e.vacate(t, Policies, policySets, Subscriptions, InstallPlans, OperatorPolicies, Constraints,
			ClusterServiceVersions, OperatorGroups, Resources["CatalogSource"], storedPackageManifests)
	}
	if e.Gate != nil { // of Shared
		vacate()
	}
	t.Cleanup(vacate)
	return e.Env
}

// VacantOLM is Vacant with an OLM, and a catalog with these packages. ClusterServiceVersions that are installed stay
// when a test ends, since OLM does nothing with them any more, and removing them costs it as many requests as
// installing them did. Those for all namespaces are removed: OLM would copy them into the namespaces of the next test.
// So are those that are not installed yet: OLM sends a hundred requests a second for one whose Deployment does not
// become available.
func VacantOLM(t testing.TB, packages []olm.Package) *OLMEnv {
	t.Helper()
	e := withOLM.take(t, func(ctx context.Context) (*OLMEnv, func() error, error) {
		opts := VacantOptions
		opts.OpenShift = ""
		e, stop, err := startVacant(ctx, opts)
		if err != nil {
			return nil, stop, err
		}
		if e.OLM, err = olm.Start(ctx, e.Cluster, olm.Options{Packages: packages, Log: os.Stderr}); err != nil {
			return nil, stop, err
		}
		return e, func() error { return errors.Join(e.OLM.Stop(), stop()) }, nil
	})
	t.Cleanup(func() { e.vacate(t, Subscriptions, InstallPlans, OperatorPolicies, Constraints) })
	return e
}

// take waits until it is free. The test has it until it ends.
func (r *room) take(t testing.TB, start func(context.Context) (*OLMEnv, func() error, error)) *OLMEnv {
	t.Helper()
	r.turn.Lock()
	t.Cleanup(r.turn.Unlock)
	slots.Take(t)
	r.once.Do(func() { r.env, r.end, r.err = start(context.WithoutCancel(t.Context())) })
	if r.err != nil {
		t.Fatal(r.err)
	}
	observe(t, r.env.Cluster)
	return r.env
}

func (r *room) stop() error {
	if r.end == nil {
		return nil
	}
	return r.end()
}

func startWithoutOLM(ctx context.Context) (e *OLMEnv, stop func() error, err error) {
	return startVacant(ctx, VacantOptions)
}

// startVacant starts a control plane. The caller must call stop, whatever the error.
func startVacant(ctx context.Context, opts cluster.Options) (e *OLMEnv, stop func() error, err error) {
	c, stopCluster, err := runCluster(ctx, opts)
	if err != nil {
		return nil, stopCluster, err
	}
	e = &OLMEnv{}
	if e.Env, err = newEnv(c); err != nil {
		return nil, stopCluster, err
	}
	return e, func() error { // the check first: it reads a log that is removed
		return errors.Join(checkLeastPrivilege(c), stopCluster())
	}, nil
}

// asked are the resources by which the API server asks Opgate, or judges by itself.
var asked = []string{
	"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
	"mutatingadmissionpolicybindings", "mutatingadmissionpolicies",
	"validatingadmissionpolicybindings", "validatingadmissionpolicies",
}

// vacate stops Opgate, and removes what the API server asks it by, all objects of some kinds, operators for all
// namespaces, and those that are not installed yet.
func (e *OLMEnv) vacate(t testing.TB, resources ...schema.GroupVersionResource) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if e.Gate != nil {
		if _, err := e.Gate.Stop(); err != nil {
			t.Error(err)
		}
		e.Gate = nil
	}
	// Opgate converts policies no more.
	if err := e.SetConversion(ctx, apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.NoneConverter,
	}); err != nil {
		t.Error(err)
	}
	admin := e.Clients[cluster.Admin]
	for _, resource := range asked {
		kind := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
		err := admin.Resource(kind).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // not all versions of Kubernetes serve all of them
			t.Error(err)
		}
	}
	// The API server goes on calling webhooks until it sees that they are gone.
	var last error
	err := Poll(ctx, WaitTimeout, func(ctx context.Context) (bool, error) {
		last = e.removeObjects(ctx, resources)
		return last == nil, nil
	})
	if err != nil {
		t.Error(errors.Join(err, last))
	}
}

// removeObjects deletes all objects of some kinds, and the operators that are for all namespaces, or not installed yet.
func (e *OLMEnv) removeObjects(ctx context.Context, resources []schema.GroupVersionResource) error {
	groups, err := e.Clients[cluster.Admin].Resource(OperatorGroups).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list OperatorGroups: %w", err)
	}
	everywhere := map[string]bool{}
	for i := range groups.Items {
		selected, _, _ := unstructured.NestedStringSlice(groups.Items[i].Object, "status", "namespaces")
		everywhere[groups.Items[i].GetNamespace()] = slices.Equal(selected, []string{metav1.NamespaceAll})
	}
	for _, resource := range resources {
		if err := e.remove(ctx, resource, func(*unstructured.Unstructured) bool { return true }); err != nil {
			return err
		}
	}
	return e.remove(ctx, ClusterServiceVersions, func(csv *unstructured.Unstructured) bool {
		phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
		return everywhere[csv.GetNamespace()] || phase == "Pending" || phase == "InstallReady" || phase == "Installing"
	})
}

// remove deletes those objects of a kind that are selected, in all namespaces.
func (e *OLMEnv) remove(
	ctx context.Context, resource schema.GroupVersionResource, selected func(*unstructured.Unstructured) bool,
) error {
	client := e.Clients[cluster.Admin].Resource(resource)
	list, err := client.List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // of a kind that nothing serves
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		if !selected(u) {
			continue
		}
		err := client.Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s/%s: %w", resource.Resource, u.GetNamespace(), u.GetName(), err)
		}
	}
	return nil
}
