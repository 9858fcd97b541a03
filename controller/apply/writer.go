// Package apply sends the writes of controllers and waits until the snapshot shows them, so that nothing is decided,
// and done, a second time. Every patch applies only to the state that was judged, and its response is limited to
// metadata: objects may be large.
package apply

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/snapshot"
)

// Writer sends the writes of a controller.
type Writer struct {
	Client client.Client
	// Store is waited for.
	Store *snapshot.Store
	// Metrics count the writes.
	Metrics *Metrics
}

// Head returns an object for requests whose response is only metadata.
func Head(kind *snapshot.Kind, key types.NamespacedName) *metav1.PartialObjectMetadata {
	head := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	head.SetGroupVersionKind(kind.GroupVersionKind)
	return head
}

// Merge returns a merge patch.
func Merge(patch map[string]any) client.Patch {
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err) // it contains only strings, booleans and lists of them
	}
	return client.RawPatch(types.MergePatchType, data)
}

// Outdated reports whether a write failed because the object has changed or was deleted since it was read. Controllers
// ignore that: the event of the change enqueues the object.
func Outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// Patch patches an object, or a subresource of it, which receives the metadata in the response.
func (w *Writer) Patch(
	ctx context.Context, head *metav1.PartialObjectMetadata, patch client.Patch, subresource ...string,
) error {
	err := w.patch(ctx, head, patch, subresource...)
	w.Metrics.Wrote(Patch, head.Kind, err)
	return err
}

func (w *Writer) patch(
	ctx context.Context, head *metav1.PartialObjectMetadata, patch client.Patch, subresource ...string,
) error {
	if len(subresource) > 0 {
		return w.Client.SubResource(subresource[0]).Patch(ctx, head, patch)
	}
	return w.Client.Patch(ctx, head, patch)
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

// Status writes the status of an object if it differs, and waits until the snapshot shows it, since the next status is
// computed from it. Concerns is what the object concerns. The patch applies only to the resourceVersion of the object,
// or to any if that is empty. Written is false, without an error, if the object has changed or was deleted since.
func (w *Writer) Status(ctx context.Context, kind *snapshot.Kind, concerns snapshot.Subject, object metav1.Object,
	before, after any) (written bool, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	head := Head(kind, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
	patch, err := difference(object.GetResourceVersion(), before, after)
	if err != nil {
		return false, fmt.Errorf("compare the status of %s %s: %w", kind.Kind, client.ObjectKeyFromObject(head), err)
	}
	switch err := w.Patch(ctx, head, patch, "status"); {
	case Outdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the status of %s %s: %w", kind.Kind, client.ObjectKeyFromObject(head), err)
	}
	return true, w.Patched(ctx, kind, concerns, head)
}

// difference returns a merge patch of a status that applies only to one version of the object; to any for "".
func difference(resourceVersion string, before, after any) (client.Patch, error) {
	old, err := json.Marshal(map[string]any{"status": before})
	if err != nil {
		return nil, err
	}
	changed := map[string]any{"status": after}
	if resourceVersion != "" {
		changed["metadata"] = map[string]any{"resourceVersion": resourceVersion}
	}
	now, err := json.Marshal(changed)
	if err != nil {
		return nil, err
	}
	data, err := jsonpatch.CreateMergePatch(old, now)
	return client.RawPatch(types.MergePatchType, data), err
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
