package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// Usage are the objects of a definition, as far as the user may list them.
type Usage struct {
	// Count is how many there are, at least that many if More is set.
	Count int
	More  bool
	// First are the first ones, as NAMESPACE/NAME, or NAME for objects without a namespace.
	First []string
	// Namespace is set if those of this namespace alone were counted, since the user may not list the others.
	Namespace string
}

// Usage counts the objects of a definition in all namespaces or, where the user may not list these, in one. It reads
// their metadata, and one page of it. The error names what may not be listed, or what does not exist.
func (r *Reader) Usage(ctx context.Context, of v1alpha1.CRDDescription, namespace string, first int) (*Usage, error) {
	resource := schema.ParseGroupResource(of.Name).WithVersion(of.Version)
	definition, err := r.objects.Resource(definitions).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		resource.Version = servedVersion(definition)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the definition does not exist")
	case !apierrors.IsForbidden(err):
		return nil, fmt.Errorf("read the definition: %w", explained(err, r.config.Host))
	case of.Version == "":
		return nil, fmt.Errorf("this user may not get %s", definitions.GroupResource())
	}
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	usage := &Usage{First: []string{}}
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: int64(first)})
	if apierrors.IsForbidden(err) && namespace != "" {
		usage.Namespace = namespace
		list, err = client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: int64(first)})
	}
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("this user may not %s", Right{Verb: "list", Resource: resource.GroupResource()})
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not serve %s", text.Name(resource.GroupResource().String()))
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", text.Name(resource.Resource), explained(err, r.config.Host))
	}
	for i := range list.Items[:min(len(list.Items), first)] {
		name := list.Items[i].Name
		if ns := list.Items[i].Namespace; ns != "" {
			name = ns + "/" + name
		}
		usage.First = append(usage.First, name)
	}
	usage.Count = len(list.Items)
	if rest := list.RemainingItemCount; rest != nil {
		usage.Count += int(*rest)
	} else {
		usage.More = list.Continue != ""
	}
	return usage, nil
}

// servedVersion returns a version of a definition that is served, the stored one if it is; "" for none.
func servedVersion(definition *unstructured.Unstructured) (name string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		stored, _ := version["storage"].(bool)
		if named, _ := version["name"].(string); name == "" || stored {
			name = named
		}
	}
	return name
}

// Labelled returns the names of the definitions with OLM's label of an operator, which those have that a deletion would
// be refused of. Without the right to list definitions there are none, and an error.
func (r *Reader) Labelled(ctx context.Context, component string) ([]string, error) {
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ofOperator := metav1.ListOptions{LabelSelector: metakey.ComponentPrefix + component}
	list, err := client.Resource(definitions).List(ctx, ofOperator)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("this user may not %s", Right{Verb: "list", Resource: definitions.GroupResource()})
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", definitions.Resource, explained(err, r.config.Host))
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return names, nil
}
