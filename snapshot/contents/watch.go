package contents

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/internal/metakey"
)

// Watch returns a function for Options.Watch that watches the metadata of the objects: their contents are read only for
// plans. ConfigMaps are watched in namespaces, each by a watch of its own; nil stands for all.
func Watch(client metadata.Interface, namespaces []string) func(context.Context, func(string, metav1.Object)) {
	return func(ctx context.Context, changed func(string, metav1.Object)) {
		var running sync.WaitGroup
		watch := func(resource schema.GroupVersionResource, namespace, selector string) {
			informer := metadatainformer.NewFilteredMetadataInformer(client, resource, namespace, 0, nil,
				func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
			note := func(object any) {
				if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = gone.Obj
				}
				changed(resource.Resource, object.(metav1.Object))
			}
			_ = informer.SetTransform(onlyIdentity) // fails only for a running informer
			// Adding a handler fails only for a stopped informer.
			_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, DeleteFunc: note,
				UpdateFunc: func(old, now any) {
					if differs(resource, old.(metav1.Object), now.(metav1.Object)) {
						note(now)
					}
				}})
			running.Go(func() { informer.RunWithContext(ctx) })
		}
		watch(definitions, metav1.NamespaceAll, "")
		if namespaces == nil {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, namespace := range namespaces {
			watch(configMaps, namespace, metakey.OLMManaged+"=true")
		}
		running.Wait()
	}
}

// differs reports whether more than the status may have changed. ConfigMaps have no generation.
func differs(resource schema.GroupVersionResource, old, now metav1.Object) bool {
	if resource == definitions {
		return old.GetUID() != now.GetUID() || old.GetGeneration() != now.GetGeneration()
	}
	return old.GetResourceVersion() != now.GetResourceVersion()
}

// onlyIdentity drops the metadata that is not read.
func onlyIdentity(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels, m.OwnerReferences, m.Finalizers = nil, nil, nil, nil, nil
	}
	return object, nil
}
