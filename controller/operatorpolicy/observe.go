package operatorpolicy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/stream"
)

// world is what is observed of a namespace, in the form in which all its policies share it.
type world struct {
	exists        bool
	groups        []compliance.OperatorGroup
	subscriptions []compliance.Subscription
	csvs          []compliance.CSV
	deployments   map[string]compliance.Deployment
}

// observe reads a namespace from the cache; nothing is asked of the API server.
func (r *reconciler) observe(ctx context.Context, namespace string) (*world, error) {
	w := &world{deployments: map[string]compliance.Deployment{}}
	if namespace == "" {
		return w, nil
	}
	ns, err := r.namespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	w.exists = ns != nil && ns.GetDeletionTimestamp() == nil
	for _, kind := range []struct {
		gvk schema.GroupVersionKind
		add func(u *unstructured.Unstructured)
	}{
		{gvkOperatorGroup, func(u *unstructured.Unstructured) {
			w.groups = append(w.groups, compliance.OperatorGroup{Object: object(u, true), GenerateName: u.GetGenerateName()})
		}},
		{gvkSubscription, func(u *unstructured.Unstructured) { w.subscriptions = append(w.subscriptions, subscription(u)) }},
		{gvkCSV, func(u *unstructured.Unstructured) { w.csvs = append(w.csvs, csv(u)) }},
		{gvkDeployment, func(u *unstructured.Unstructured) { w.deployments[u.GetName()] = deployment(u) }},
	} {
		if err := r.each(ctx, kind.gvk, namespace, kind.add); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// namespace gives the metadata of a namespace, nil where there is none.
func (r *reconciler) namespace(ctx context.Context, name string) (client.Object, error) {
	ns := headOnly(gvkNamespace)
	err := r.cache.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// each calls a function with every object of a kind in a namespace, sorted by name. The objects are those of
// the cache and must not be changed.
func (r *reconciler) each(ctx context.Context, gvk schema.GroupVersionKind, namespace string, do func(*unstructured.Unstructured)) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := r.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("read the %ss of namespace %s: %w", gvk.Kind, namespace, err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		do(&list.Items[i])
	}
	return nil
}

// crds gives the CustomResourceDefinitions that OLM marked as those of an operator.
func (r *reconciler) crds(ctx context.Context, label string) ([]compliance.Object, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvkCRD.GroupVersion().WithKind(gvkCRD.Kind + "List"))
	if err := r.cache.List(ctx, list, client.HasLabels{label}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the CustomResourceDefinitions with label %s: %w", label, err)
	}
	var found []compliance.Object
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list.Items {
		m := &list.Items[i]
		o := compliance.Object{Name: m.Name, UID: string(m.UID), Labels: m.Labels, Owned: len(m.OwnerReferences) > 0, Deleting: m.DeletionTimestamp != nil,
			Created: m.CreationTimestamp.UTC().Format(time.RFC3339)}
		o.Content = map[string]any{"apiVersion": gvkCRD.GroupVersion().String(), "kind": gvkCRD.Kind, "metadata": map[string]any{
			"name": m.Name, "uid": string(m.UID), "resourceVersion": m.ResourceVersion, "finalizers": anys(m.Finalizers)}}
		found = append(found, o)
	}
	return found, nil
}

// catalogSource gives a CatalogSource, or nil.
func (r *reconciler) catalogSource(ctx context.Context, c olm.Catalog) *compliance.CatalogSource {
	u := whole(gvkCatalogSource).(*unstructured.Unstructured)
	if c.Name == "" || c.Namespace == "" || r.cache.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, u) != nil {
		return nil // the cache knows all there are, so that it has no other error than that there is none
	}
	return &compliance.CatalogSource{Object: object(u, false), State: text(u, "status", "connectionState", "lastObservedState")}
}

func object(u *unstructured.Unstructured, content bool) compliance.Object {
	o := compliance.Object{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Labels: u.GetLabels(),
		Annotations: u.GetAnnotations(), Owned: owned(u), Deleting: u.GetDeletionTimestamp() != nil,
		Created: u.GetCreationTimestamp().UTC().Format(time.RFC3339)}
	if content {
		o.Content = u.Object
	}
	return o
}

// owned reports whether an object has owners; those that are too many to be kept are some.
func owned(u *unstructured.Unstructured) bool {
	owners, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "ownerReferences")
	return len(u.GetOwnerReferences()) > 0 || stream.Withheld(owners)
}

func subscription(u *unstructured.Unstructured) compliance.Subscription {
	s := compliance.Subscription{
		Object:       object(u, true),
		Package:      text(u, "spec", "name"),
		Channel:      text(u, "spec", "channel"),
		StartingCSV:  text(u, "spec", "startingCSV"),
		Catalog:      olm.Catalog{Namespace: text(u, "spec", "sourceNamespace"), Name: text(u, "spec", "source")},
		InstalledCSV: text(u, "status", "installedCSV"),
		CurrentCSV:   text(u, "status", "currentCSV"),
		State:        text(u, "status", "state"),
		InstallPlan:  text(u, "status", "installPlanRef", "name"),
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another shape, there are none
	for _, entry := range conditions {
		c, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		field := func(name string) string { s, _ := c[name].(string); return s }
		condition := compliance.SubscriptionCondition{Type: field("type"), Status: field("status"), Reason: field("reason"), Message: field("message")}
		if at, err := time.Parse(time.RFC3339, field("lastTransitionTime")); err == nil {
			condition.LastTransitionTime = at
		}
		s.Conditions = append(s.Conditions, condition)
	}
	return s
}

func csv(u *unstructured.Unstructured) compliance.CSV {
	c := compliance.CSV{
		Object:     object(u, true),
		Phase:      text(u, "status", "phase"),
		Reason:     text(u, "status", "reason"),
		Message:    text(u, "status", "message"),
		CopiedFrom: u.GetLabels()[olm.CopiedFromLabel],
	}
	if properties := u.GetAnnotations()[olm.PropertiesAnnotation]; properties != "" {
		if bundle, err := olm.ParseBundle(properties); err == nil {
			c.Package, c.Version = bundle.Package, bundle.Version
		}
	}
	c.Deployments, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "deployments") // put there by decode
	modes, _, _ := unstructured.NestedSlice(u.Object, "spec", "installModes")             // of another shape, there are none
	for _, entry := range modes {
		if mode, ok := entry.(map[string]any); ok {
			name, _ := mode["type"].(string)
			supported, _ := mode["supported"].(bool)
			if c.InstallModes == nil {
				c.InstallModes = map[string]bool{}
			}
			c.InstallModes[name] = supported
		}
	}
	return c
}

// deployment takes one for available when the controller has seen its present generation and all replicas
// that are wanted are there, of that generation, and available (W14).
func deployment(u *unstructured.Unstructured) compliance.Deployment {
	number := func(or int64, fields ...string) int64 {
		if n, ok, err := unstructured.NestedInt64(u.Object, fields...); ok && err == nil {
			return n
		}
		return or
	}
	wanted := number(1, "spec", "replicas")
	return compliance.Deployment{Object: object(u, false), Available: number(0, "status", "observedGeneration") >= u.GetGeneration() &&
		number(0, "status", "unavailableReplicas") == 0 && number(0, "status", "availableReplicas") >= wanted}
}

// text gives a string field, or "" where there is none.
func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...) // of another type, it says nothing
	return s
}

func anys(from []string) []any {
	to := make([]any, len(from))
	for i := range from {
		to[i] = from[i]
	}
	return to
}
