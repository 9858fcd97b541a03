package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// bundleManager writes the caBundles and the Secret; ownerManager applies the reference to the namespace.
	bundleManager = "opgate-certs"
	ownerManager  = "opgate-owner"
	// injected is what tells cert-manager to write the caBundles of an object.
	injected = "cert-manager.io/inject-ca-from"
)

// registration is an object by which the API server calls us. It belongs to the release: it is never created
// here, nor are entries added to it.
type registration struct {
	kind     schema.GroupVersionKind
	resource string
	name     string
	// label is what metrics call it.
	label string
	// verb begins the paths of its endpoints; empty for an object whose path is constant.
	verb string
	// owned is whether it has to go with the namespace that Opgate lives in.
	owned bool
	// bundles gives the caBundle of each place that we are called from.
	bundles func(u *unstructured.Unstructured) []caller

	*object
}

// caller is a place that we are called from.
type caller struct {
	bundle []byte
	path   string // of the bundle, as a JSON pointer
}

func registrations() []*registration {
	admission := func(kind, resource, label, verb string) *registration {
		return &registration{kind: schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind},
			resource: resource, name: "opgate", label: label, verb: verb, owned: true, bundles: webhooks}
	}
	return []*registration{
		admission("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "mutate"),
		admission("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validatingwebhookconfiguration", "validate"),
		{kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			resource: "customresourcedefinitions", name: "operatorpolicies.policy.open-cluster-management.io",
			label: "customresourcedefinition", bundles: conversionWebhook},
	}
}

// webhooks reads the entries of a webhook configuration.
func webhooks(u *unstructured.Unstructured) []caller {
	entries, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	var callers []caller
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		callers = append(callers, caller{bundleOf(entry, "clientConfig"), fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i)})
	}
	return callers
}

// conversionWebhook reads the conversion of a CustomResourceDefinition, which may have none by webhook.
func conversionWebhook(u *unstructured.Unstructured) []caller {
	conversion, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion")
	if conversion["strategy"] != "Webhook" {
		return nil
	}
	return []caller{{bundleOf(conversion, "webhook", "clientConfig"), "/spec/conversion/webhook/clientConfig/caBundle"}}
}

func bundleOf(fields map[string]any, path ...string) []byte {
	text, _, _ := unstructured.NestedString(fields, append(path, "caBundle")...)
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil // the API server does not store such a thing
	}
	return bundle
}

// callers are the places that we are called from as last seen; none if the object is not there.
func (r *registration) callers() []caller {
	if held := r.get(); held != nil {
		return r.bundles(held)
	}
	return nil
}

// outdated tells whether a caBundle is not what it should be. Where cert-manager is told to write them they are
// its own: it adds its CA to those that are there, so that a change of modes is an overlap.
func (r *registration) outdated(bundle []byte) bool {
	if held := r.get(); held == nil || held.GetAnnotations()[injected] != "" {
		return false
	}
	for _, c := range r.callers() {
		if !bytes.Equal(c.bundle, bundle) {
			return true
		}
	}
	return false
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value"`
}

// write sets the caBundles, and reports whether it did.
func (r *registration) write(ctx context.Context, bundle []byte) (bool, error) {
	held := r.get()
	if held == nil {
		return false, nil
	}
	var operations []operation
	for _, c := range r.bundles(held) {
		operations = append(operations, operation{"add", c.path, base64.StdEncoding.EncodeToString(bundle)})
	}
	return r.patch(ctx, held, "write caBundle of", operations)
}

// endpoints are where the object makes the API server call, as last seen.
func (r *registration) endpoints() []endpoint {
	held := r.get()
	if held == nil || r.verb == "" {
		return nil
	}
	entries, _, _ := unstructured.NestedSlice(held.Object, "webhooks")
	var endpoints []endpoint
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		if endpoint, ok := readEndpoint(entry, r.verb, fmt.Sprintf("/webhooks/%d/clientConfig", i)); ok {
			endpoints = append(endpoints, endpoint)
		}
	}
	return endpoints
}

// token is the one that all endpoints have in common, "" if there is none.
func (r *registration) token() string {
	var token string
	for i, e := range r.endpoints() {
		if i > 0 && e.token() != token {
			return ""
		}
		token = e.token()
	}
	return token
}

// route makes the API server call every endpoint by a token, or by none, and reports whether it did.
func (r *registration) route(ctx context.Context, token string) (bool, error) {
	held := r.get()
	if held == nil {
		return false, nil
	}
	var operations []operation
	for _, e := range r.endpoints() {
		operations = append(operations, operation{"add", e.pointer, e.at(token)})
	}
	return r.patch(ctx, held, "write the paths of", operations)
}

// patch changes the object, and reports whether it did. It does not if the object is not the one that was last
// seen: a replica that was paused must not put back what the one that leads since then has replaced.
//
// It is no server-side apply: who applies a part of an entry keeps it when the release drops the entry, and then
// the API server refuses the release.
func (r *registration) patch(ctx context.Context, held *unstructured.Unstructured, what string, operations []operation) (bool, error) {
	operations = append([]operation{{"replace", "/metadata/resourceVersion", held.GetResourceVersion()}}, operations...)
	patch, err := json.Marshal(operations)
	if err != nil {
		return false, err
	}
	_, err = r.client.Patch(ctx, r.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: bundleManager})
	return r.wrote(what, err)
}

// unowned tells whether the object would stay behind when a namespace goes.
func (r *registration) unowned(namespace types.UID) bool {
	held := r.get()
	if held == nil || !r.owned {
		return false
	}
	for _, owner := range held.GetOwnerReferences() {
		if owner.UID == namespace {
			return false
		}
	}
	return true
}

// own makes a namespace an owner of the object, and tells whether it did.
func (r *registration) own(ctx context.Context, namespace string, uid types.UID) (bool, error) {
	held := r.get()
	if held == nil {
		return false, nil
	}
	// Without the UID, server-side apply would create an object that is not there, resourceVersion or not.
	patch := &unstructured.Unstructured{Object: map[string]any{}}
	patch.SetGroupVersionKind(r.kind)
	patch.SetName(r.name)
	patch.SetUID(held.GetUID())
	patch.SetResourceVersion(held.GetResourceVersion())
	patch.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uid}})
	_, err := r.client.Apply(ctx, r.name, patch, metav1.ApplyOptions{FieldManager: ownerManager, Force: true})
	return r.wrote("make the namespace an owner of", err)
}

// wrote tells whether a write was done. That the object has changed or is gone is no error: the watch tells of it.
func (r *registration) wrote(what string, err error) (bool, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s %s %s: %w", what, r.kind.Kind, r.name, err)
	}
	return true, nil
}
