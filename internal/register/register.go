// Package register applies the objects through which the API server calls Opgate, where no client applies them as Helm
// and kubectl do: OLM rejects webhooks for its own kinds in a bundle, so that a pod that OLM runs has to bring them
// itself.
package register

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/metakey"
)

// fieldManager owns what the manifests say. Nothing in them is written by package certs, so applying them again takes
// nothing away.
const fieldManager = "opgate-register"

var (
	admission = admissionregistrationv1.SchemeGroupVersion
	// resources are those of the kinds that can be registered. All else is for any user who installs Opgate.
	resources = map[schema.GroupVersionKind]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: "customresourcedefinitions",
		admission.WithKind("MutatingWebhookConfiguration"):                               "mutatingwebhookconfigurations",
		admission.WithKind("ValidatingWebhookConfiguration"):                             "validatingwebhookconfigurations",
	}
	// clusterRoles is the kind that may own webhook configurations: OLM deletes the ClusterRoles of an operator that is
	// removed.
	clusterRoles = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
)

// Options configure Apply. All fields are required.
type Options struct {
	Client dynamic.Interface
	// Directory holds the manifests, in files that end in .yaml and are applied in the order of their names.
	Directory string
	// Namespace is the one of Opgate. Webhooks that call another one are rejected.
	Namespace string
	// Owner is the ClusterRole that webhook configurations are deleted with.
	Owner string
	Log   logr.Logger
}

// Apply applies the manifests. It leaves an object alone that a later version of Opgate has applied: during an upgrade a
// pod of the version before may start again. It returns an error, and applies nothing, if a manifest cannot be used or
// the owner does not exist: without one, webhooks would stay when Opgate is removed, and refuse all that they are for.
func Apply(ctx context.Context, o Options) error {
	objects, err := read(o.Directory)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	role, err := o.Client.Resource(clusterRoles).Get(ctx, o.Owner, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("register: read the owner of the webhook configurations, ClusterRole %s, which is part of the bundle: %w",
			o.Owner, err)
	}
	for _, object := range objects {
		if object.GroupVersionKind().GroupVersion() != admission {
			continue
		}
		if err := wantNamespace(object, o.Namespace); err != nil {
			return fmt.Errorf("register: %w", err)
		}
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: role.GetAPIVersion(), Kind: role.GetKind(),
			Name: role.GetName(), UID: role.GetUID()}})
	}
	for _, object := range objects {
		if err := o.apply(ctx, object); err != nil {
			return fmt.Errorf("register: %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// read returns the objects in the files of a directory. It is an error if one is of a kind that cannot be registered.
func read(directory string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // the directory is an option of the process
		if err != nil {
			return nil, err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if _, known := resources[object.GroupVersionKind()]; !known || object.GetName() == "" {
				return nil, fmt.Errorf("%s: %s %s %q cannot be registered: want a CustomResourceDefinition or a webhook configuration, with its name",
					file, object.GetAPIVersion(), object.GetKind(), object.GetName())
			}
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s holds no manifest in files that end in .yaml", directory)
	}
	return objects, nil
}

// wantNamespace returns an error if a webhook configuration calls another namespace. Opgate's namespace is not judged,
// so one that is shared with other operators would exempt these.
func wantNamespace(configuration *unstructured.Unstructured, namespace string) error {
	entries, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if called, _, _ := unstructured.NestedString(entry, "clientConfig", "service", "namespace"); called != namespace {
			return fmt.Errorf("%s %s calls namespace %s, this process runs in %s: install the bundle in namespace %s, "+
				"which must hold nothing else, since it is not judged", configuration.GetKind(), configuration.GetName(),
				called, namespace, called)
		}
	}
	return nil
}

// apply applies an object unless it is of a later version.
func (o *Options) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind, version := object.GroupVersionKind(), object.GetLabels()[metakey.Version]
	client := o.Client.Resource(kind.GroupVersion().WithResource(resources[kind]))
	log := o.Log.WithValues("kind", object.GetKind(), "name", object.GetName())
	current, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && later(current.GetLabels()[metakey.Version], version) {
		log.Info("left as a later version has registered it", "version", current.GetLabels()[metakey.Version])
		return nil
	}
	// By force: these objects may have been applied by Helm or kubectl before, or come from another controller.
	if _, err := client.Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return err
	}
	log.Info("registered", "version", version)
	return nil
}

// later reports whether version a is later than b; false if either is no version.
func later(a, b string) bool {
	first, err := semver.ParseTolerant(a)
	second, err2 := semver.ParseTolerant(b)
	return err == nil && err2 == nil && first.GT(second)
}
