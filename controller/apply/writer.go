// Package apply is how controllers write, one version of an object at a time: a merge patch of what differs where others
// write as well, and the whole object where only Opgate does. It waits until the snapshot shows a write, so that nothing
// is decided, and done, a second time.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// The verbs of writes, by which they are counted.
const (
	Create = "create"
	Update = "update"
	Patch  = "patch"
	Delete = "delete"
)

// Writer sends the writes of a controller.
type Writer struct {
	Client client.Client
	// Store is waited for.
	Store *snapshot.Store
	// Metrics count the writes.
	Metrics *Metrics
}

// Head returns an object for requests whose response is only metadata: objects may be large.
func Head(kind *snapshot.Kind, key types.NamespacedName) *metav1.PartialObjectMetadata {
	head := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	head.SetGroupVersionKind(kind.GroupVersionKind)
	return head
}

// Version is Head for a write that applies to one version of an object.
func Version(kind *snapshot.Kind, object *olm.ObjectMeta) *metav1.PartialObjectMetadata {
	head := Head(kind, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	head.UID, head.ResourceVersion = types.UID(object.UID), object.ResourceVersion
	return head
}

// Outdated reports whether a write failed because the object has changed, or was created or deleted, since it was read.
// Controllers ignore that: the event of the change enqueues the object.
func Outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// Patch merges fields into the version of an object, or of a subresource of it, that the head names, or into any if it
// names none. The head receives the metadata in the response.
func (w *Writer) Patch(
	ctx context.Context, head *metav1.PartialObjectMetadata, fields map[string]any, subresource ...string,
) error {
	err := w.patch(ctx, head, fields, subresource...)
	w.Metrics.Wrote(Patch, head.Kind, err)
	return err
}

func (w *Writer) patch(
	ctx context.Context, head *metav1.PartialObjectMetadata, fields map[string]any, subresource ...string,
) error {
	if version := head.ResourceVersion; version != "" {
		(&unstructured.Unstructured{Object: fields}).SetResourceVersion(version)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, data)
	if len(subresource) > 0 {
		return w.Client.SubResource(subresource[0]).Patch(ctx, head, patch)
	}
	return w.Client.Patch(ctx, head, patch)
}

// difference returns what a merge patch changes to make one state of an object another one.
func difference(before, after any) (fields map[string]any, err error) {
	old, failed := json.Marshal(before)
	now, err := json.Marshal(after)
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(old, now)
	if err != nil {
		return nil, err
	}
	return fields, utiljson.Unmarshal(patch, &fields)
}

// Put creates an object, or replaces the version of it that the object names, and receives what the API server stores.
func (w *Writer) Put(ctx context.Context, object client.Object) error {
	kind, err := w.Client.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	verb := Update
	if object.GetResourceVersion() != "" {
		err = w.Client.Update(ctx, object)
	} else {
		verb, err = Create, w.Client.Create(ctx, object)
	}
	w.Metrics.Wrote(verb, kind.Kind, err)
	return err
}

// Delete deletes the version of an object that the object names. That it does not exist is no error.
func (w *Writer) Delete(ctx context.Context, object client.Object) error {
	kind, err := w.Client.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err = client.IgnoreNotFound(w.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	w.Metrics.Wrote(Delete, kind.Kind, err)
	return err
}

// Status writes the status of an object if it differs, and waits until the snapshot shows it, since the next status is
// computed from it. Concerns is what the object concerns. The patch applies only to the resourceVersion of the object,
// or to any if that is empty. Written is false, without an error, if the object has changed or was deleted since.
func (w *Writer) Status(ctx context.Context, kind *snapshot.Kind, concerns snapshot.Subject, object metav1.Object,
	before, after any) (written bool, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	head := Head(kind, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
	head.ResourceVersion = object.GetResourceVersion()
	fields, err := difference(map[string]any{"status": before}, map[string]any{"status": after})
	if err == nil {
		err = w.Patch(ctx, head, fields, "status")
	}
	switch {
	case Outdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the status of %s %s: %w", kind.Kind, client.ObjectKeyFromObject(head), err)
	}
	return true, w.Patched(ctx, kind, concerns, head)
}

// Patched waits until the snapshot shows a patched object, or that it was deleted or concerns something else.
func (w *Writer) Patched(
	ctx context.Context, kind *snapshot.Kind, concerns snapshot.Subject, head *metav1.PartialObjectMetadata,
) error {
	return w.Store.Wait(ctx, kind, head.ResourceVersion, func(s *snapshot.Snapshot) bool {
		now := s.Object(kind, concerns, client.ObjectKeyFromObject(head))
		return now == nil || now.UID != head.UID || !snapshot.Older(now.ResourceVersion, head.ResourceVersion)
	})
}

// Event sends an event. The caller logs an error: events are best effort.
func (w *Writer) Event(ctx context.Context, event *corev1.Event) error {
	err := w.Client.Create(ctx, event)
	w.Metrics.Wrote(Create, "Event", err)
	return err
}
