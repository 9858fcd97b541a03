package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/rules"
)

// Put creates an object and then writes its status, if it has one, and removes the object after the test. It returns what is
// stored.
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

// Create creates an object and then writes its status, if it has one, as the user who writes them on a real cluster: OLM
// writes plans, ClusterServiceVersions and every status, Opgate virtual operators, an admin the rest.
func (e *Env) Create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	author := e.Clients[cluster.Admin]
	switch kind := u.GetKind(); {
	case u.GetLabels()[rules.VirtualOperatorLabel] != "":
		var err error
		if author, err = e.inPlaceOfOpgate(); err != nil {
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

// inPlaceOfOpgate is an admin who acts as Opgate: requests of Opgate itself are compared with its rights.
func (e *Env) inPlaceOfOpgate() (*Client, error) {
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = cluster.OpgateUserName
	objects, err := dynamic.NewForConfig(config)
	return &Client{Interface: objects}, err
}

// Remove deletes an object that may not exist. It is for cleaning up, when the context of the test has ended.
func (e *Env) Remove(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	err := e.Clients[cluster.Admin].Of(u).Delete(context.WithoutCancel(t.Context()), u.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
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

// Sync waits until the gate judges by what is stored now, if one runs.
func (e *Env) Sync(t testing.TB) {
	t.Helper()
	if e.Gate == nil {
		return
	}
	if err := e.Gate.WaitForSnapshot(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Apply applies objects with kubectl as an admin.
func (e *Env) Apply(t testing.TB, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		Kubectl(t, e.Cluster, cluster.Admin, AsJSON(t, u), "apply", "-f", "-")
	}
}

// Edit merges a patch into a policy as an admin.
func (e *Env) Edit(t testing.TB, p *unstructured.Unstructured, patch string) {
	t.Helper()
	Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", "-n", p.GetNamespace(), p.GetName(), "--type=merge", "--patch", patch)
}
