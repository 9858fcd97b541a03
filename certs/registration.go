package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// bundleManager is the field manager of the caBundles and the Secret, ownerManager that of the owner references.
	bundleManager = "opgate-certs"
	ownerManager  = "opgate-owner"
)

// registration is an object through which the API server calls us. It belongs to the release: neither it nor its
// entries are created here.
type registration struct {
	kind     schema.GroupVersionKind
	resource string
	name     string
	// label identifies it in metrics.
	label string
	// verb is the first segment of the paths of its endpoints; empty for an object whose path is constant.
	verb string
	// owned is whether Opgate's namespace may be its owner.
	owned bool
	// entries are those of a webhook configuration as they have to be, see owned.
	entries []webhooks.Entry
	// bundles returns the caBundles of an object, one for each client configuration.
	bundles func(u *unstructured.Unstructured) []caller

	*object
}

// caller is the caBundle of a client configuration.
type caller struct {
	bundle []byte
	path   string // of the bundle, as a JSON pointer
}

// registrations returns the objects of a release, without the definition of OperatorPolicy if another program owns it.
func registrations(c *webhooks.Configurations, externalDefinition bool) []*registration {
	admission := func(kind, verb string, entries []webhooks.Entry) *registration {
		label := strings.ToLower(kind)
		return &registration{kind: schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
			Kind: kind}, resource: label + "s", name: "opgate", label: label, verb: verb, owned: true, entries: entries,
			bundles: entryBundles}
	}
	all := []*registration{
		admission("MutatingWebhookConfiguration", "mutate", c.Mutating),
		admission("ValidatingWebhookConfiguration", "validate", c.Validating),
		{kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			resource: "customresourcedefinitions", name: "operatorpolicies.policy.open-cluster-management.io",
			label: "customresourcedefinition", bundles: conversionWebhook},
	}
	if externalDefinition {
		return all[:2]
	}
	return all
}

// entryBundles reads the entries of a webhook configuration.
func entryBundles(u *unstructured.Unstructured) []caller {
	entries, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	var callers []caller
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		callers = append(callers, caller{bundleOf(entry, "clientConfig"),
			fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i)})
	}
	return callers
}

// conversionWebhook reads the conversion of a CustomResourceDefinition, which may not use a webhook.
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
		return nil // the API server does not store this
	}
	return bundle
}

// callers returns the caBundles as last observed; none if the object does not exist.
func (r *registration) callers() []caller {
	if current := r.Get(); current != nil {
		return r.bundles(current)
	}
	return nil
}

// outdated reports whether a caBundle differs from the desired one. Where the annotation makes cert-manager write them,
// it adds its CA to the existing ones, so that CAs overlap when the source of certificates changes.
func (r *registration) outdated(bundle []byte) bool {
	if current := r.Get(); current == nil || current.GetAnnotations()[metakey.InjectedCA] != "" {
		return false
	}
	for _, c := range r.callers() {
		if !bytes.Equal(c.bundle, bundle) {
			return true
		}
	}
	return false
}

// write sets the caBundles, and reports whether it did.
func (r *registration) write(ctx context.Context, bundle []byte) (bool, error) {
	current := r.Get()
	if current == nil {
		return false, nil
	}
	var operations []verdict.PatchOperation
	for _, c := range r.bundles(current) {
		operations = append(operations, verdict.PatchOperation{Op: "add", Path: c.path,
			Value: base64.StdEncoding.EncodeToString(bundle)})
	}
	return r.patch(ctx, current, bundleManager, "write caBundle of", operations)
}

// endpoints returns the paths and URLs of the object as last observed.
func (r *registration) endpoints() []endpoint {
	current := r.Get()
	if current == nil || r.verb == "" {
		return nil
	}
	entries, _, _ := unstructured.NestedSlice(current.Object, "webhooks")
	var endpoints []endpoint
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		if endpoint, ok := readEndpoint(entry, r.verb, fmt.Sprintf("/webhooks/%d/clientConfig", i)); ok {
			endpoints = append(endpoints, endpoint)
		}
	}
	return endpoints
}

// token returns the token that all endpoints have in common, "" if there is none.
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

// route writes the path of every endpoint with a token, or with none for "", and reports whether it did.
func (r *registration) route(ctx context.Context, token string) (bool, error) {
	current := r.Get()
	if current == nil {
		return false, nil
	}
	var operations []verdict.PatchOperation
	for _, e := range r.endpoints() {
		operations = append(operations, verdict.PatchOperation{Op: "add", Path: e.pointer, Value: e.at(token)})
	}
	return r.patch(ctx, current, bundleManager, "write the paths of", operations)
}

// patch modifies the object and reports whether it did. It does not if the object has changed since it was observed, or
// is gone: a replica that was paused must not revert what the current leader has written.
//
// It does not use server-side apply: a field manager that has applied a part of an entry still owns it when the release
// removes the entry, and the API server would then reject the release.
func (r *registration) patch(
	ctx context.Context, current *unstructured.Unstructured, manager, what string, operations []verdict.PatchOperation,
) (bool, error) {
	operations = slices.Insert(operations, 0, verdict.PatchOperation{Op: "replace", Path: "/metadata/resourceVersion",
		Value: current.GetResourceVersion()})
	patch, err := json.Marshal(operations)
	if err != nil {
		return false, err
	}
	_, err = r.Client.Patch(ctx, r.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil // the watch delivers it
	}
	if err != nil {
		return false, fmt.Errorf("%s %s %s: %w", what, r.kind.Kind, r.name, err)
	}
	return true, nil
}

// ownedBy reports whether a namespace is an owner of the object, so that it is deleted with it.
func (r *registration) ownedBy(namespace types.UID) bool {
	current := r.Get()
	return current != nil && slices.ContainsFunc(current.GetOwnerReferences(),
		func(o metav1.OwnerReference) bool { return o.UID == namespace })
}

// setOwned adds a namespace to the owners of the object, or removes it, whichever client has added it, and reports
// whether it did.
func (r *registration) setOwned(ctx context.Context, namespace string, uid types.UID, owned bool) (bool, error) {
	current := r.Get()
	if current == nil {
		return false, nil
	}
	owners := slices.DeleteFunc(current.GetOwnerReferences(),
		func(o metav1.OwnerReference) bool { return o.UID == uid })
	if owned {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uid})
	}
	return r.patch(ctx, current, ownerManager, "change the owners of",
		[]verdict.PatchOperation{{Op: "add", Path: "/metadata/ownerReferences", Value: owners}})
}
