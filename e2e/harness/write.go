package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/internal/metakey"
)

// Put creates an object and then writes its status, if it has one, and removes the object after the test. It returns
// what is stored.
func (e *Env) Put(t testing.TB, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := e.Create(t.Context(), u)
	t.Cleanup(func() { e.Remove(t, u) })
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// repeated retries a refused step, as OLM does. The gate may not have seen the plan yet.
func repeated(ctx context.Context, u *unstructured.Unstructured, write func() error) error {
	err := write()
	if u.GetKind() != "ClusterServiceVersion" {
		return err
	}
	_ = Poll(ctx, 20*time.Second, func(context.Context) (bool, error) {
		if apierrors.IsForbidden(err) {
			err = write()
		}
		return !apierrors.IsForbidden(err), nil
	})
	return err
}

// Create creates an object and then writes its status, if it has one, as the user who writes them on a real cluster:
// OLM writes plans, ClusterServiceVersions and every status, Opgate virtual operators and its records, an admin the rest.
func (e *Env) Create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	author := e.Clients[cluster.Admin]
	switch kind := u.GetKind(); {
	case u.GetLabels()[metakey.VirtualOperator] != "", (kind == "ConfigMap" || kind == "Lease") && u.GetNamespace() == cluster.OpgateNamespace:
		var err error
		if author, err = e.InPlaceOfOpgate(); err != nil {
			return nil, err
		}
	case kind == "InstallPlan", kind == "ClusterServiceVersion":
		author = e.Clients[cluster.OLM]
	}
	var stored *unstructured.Unstructured
	err := repeated(ctx, u, func() (err error) {
		stored, err = author.Of(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	status, ok := u.Object["status"]
	if !ok {
		return stored, nil
	}
	stored.Object["status"] = status
	stored, err = e.Clients[cluster.OLM].Of(u).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return stored, nil
}

// InPlaceOfOpgate is an admin who acts as Opgate.
func (e *Env) InPlaceOfOpgate() (*Client, error) {
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		return nil, err
	}
	config.Impersonate = cluster.InPlaceOfOpgate
	objects, err := dynamic.NewForConfig(config)
	return &Client{Interface: objects}, err
}

// Remove deletes an object that may not exist. It is for cleaning up, when the context of the test has ended. An
// OperatorPolicy or a Constraint that restricts deletions is edited first, and what it protects is deleted once the API
// server lets it.
func (e *Env) Remove(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	objects, ctx := e.Clients[cluster.Admin].Of(u), context.WithoutCancel(t.Context())
	allow := map[string]string{"OperatorPolicy": `"Allow"`, "Constraint": `{"action":"Allow"}`}[u.GetKind()]
	if _, set, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "deletion"); set && allow != "" {
		_, err := objects.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"spec":{"deletion":`+allow+`}}`),
			metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	var last error
	_ = Poll(ctx, WaitTimeout, func(ctx context.Context) (bool, error) {
		last = client.IgnoreNotFound(objects.Delete(ctx, u.GetName(), metav1.DeleteOptions{}))
		return last == nil || !strings.Contains(last.Error(), HeldByDeletion), nil
	})
	if last != nil {
		t.Error(last)
	}
}

// Stored reads an object as admin; nil where there is none.
func (e *Env) Stored(t testing.TB, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := e.Clients[cluster.Admin].Of(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return stored
}

// Sync waits until the gate judges by what is stored now, if one runs, and with it the API server. After a change of a
// policy that takes one to two seconds.
func (e *Env) Sync(t testing.TB) {
	t.Helper()
	e.SyncGate(t)
	if e.Gate == nil {
		return
	}
	if err := e.Gate.WaitForBackstop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// SyncGate waits until the gate judges by what is stored now, if one runs, but not until the API server judges by
// changes of policies. It is for writes that the backstop leaves to the gate.
func (e *Env) SyncGate(t testing.TB) {
	t.Helper()
	if e.Gate == nil {
		return
	}
	if err := e.Gate.WaitForSnapshot(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// fieldManager is the field manager of the objects that tests apply.
const fieldManager = "test"

// Apply applies objects as an admin.
func (e *Env) Apply(t testing.TB, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		if _, err := e.Clients[cluster.Admin].Of(u).Apply(t.Context(), u.GetName(), u, options); err != nil {
			t.Fatalf("apply %s %s/%s: %v", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
}

// CreateAs creates objects as a user, and leaves them. It returns the last one as it is stored.
func (e *Env) CreateAs(
	t testing.TB, user cluster.User, objects ...*unstructured.Unstructured,
) (stored *unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		var err error
		if stored, err = e.Clients[user].Of(u).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create %s %s/%s as %s: %v", u.GetKind(), u.GetNamespace(), u.GetName(), user, err)
		}
	}
	return stored
}

// Patch merges a patch into an object, or into its subresource, as a user. Of the object only kind and name are read.
func (e *Env) Patch(
	t testing.TB, user cluster.User, u *unstructured.Unstructured, patch string, subresources ...string,
) {
	t.Helper()
	_, err := e.Clients[user].Of(u).Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatalf("patch %s %s/%s as %s: %v", u.GetKind(), u.GetNamespace(), u.GetName(), user, err)
	}
}

// Edit merges a patch into a policy as an admin.
func (e *Env) Edit(t testing.TB, p *unstructured.Unstructured, patch string) {
	t.Helper()
	e.Patch(t, cluster.Admin, p, patch)
}
