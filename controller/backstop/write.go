package backstop

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/events"
)

// written is an object as it was sent, and as the API server stored it: a later version may set fields that this one
// does not know.
type written struct{ sent, stored *unstructured.Unstructured }

// store writes the objects that differ from what is stored: policies before bindings, which the API server would not
// know what to do with, and deletes the others, bindings first.
func (r *reconciler) store(ctx context.Context, owner *metav1.OwnerReference) error {
	for _, k := range kinds {
		if object := r.compiled.objects[k.key()]; object != nil {
			if err := r.put(ctx, k, object, owner); err != nil {
				return fmt.Errorf("write %s: %w", k.key(), err)
			}
		}
	}
	for _, k := range slices.Backward(kinds) {
		live := r.watches[k.key()].Get()
		if r.compiled.objects[k.key()] != nil || live == nil || live.GetDeletionTimestamp() != nil {
			continue
		}
		delete(r.written, k.key())
		if err := r.writer.Delete(ctx, live); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("delete %s: %w", k.key(), err)
		}
		r.Log.Info("deleted", "kind", k.name, "name", k.object)
	}
	return nil
}

// put creates or updates an object if it differs from what is stored. An object that is being deleted, or has changed
// since it was watched, is left to the event of that.
func (r *reconciler) put(
	ctx context.Context, k kind, object *unstructured.Unstructured, owner *metav1.OwnerReference,
) error {
	live, last := r.watches[k.key()].Get(), r.written[k.key()]
	next := owned.Desired(live, object, owner)
	same := last != nil && reflect.DeepEqual(last.sent, object)
	switch {
	case live == nil:
	case live.GetDeletionTimestamp() != nil:
		return nil
	case owned.Same(live, next):
		r.written[k.key()] = &written{sent: object, stored: object}
		return nil
	case same && owned.Same(live, owned.Desired(live, last.stored, owner)):
		return nil
	}
	switch err := r.writer.Put(ctx, next); {
	case apply.Outdated(err):
		return nil
	case err != nil:
		return err
	}
	stored := object.DeepCopy()
	stored.Object["spec"] = next.Object["spec"]
	r.written[k.key()] = &written{sent: object, stored: stored}
	if same {
		r.reportRestored(next, live == nil)
	} else {
		r.Log.Info("written", "kind", k.name, "name", k.object, "resourceVersion", next.GetResourceVersion())
	}
	return nil
}

// reportRestored reports that an object was restored.
func (r *reconciler) reportRestored(object *unstructured.Unstructured, deleted bool) {
	what := "changed"
	if deleted {
		what = "deleted"
	}
	r.Metrics.restored.Inc()
	r.Log.Info("restored what another client "+what, "kind", object.GetKind(), "name", object.GetName())
	r.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName(),
			UID: object.GetUID()},
		Reason: "BackstopRestored", Action: events.Restore, Warning: true,
		Note: fmt.Sprintf("another client %s this %s, by which the API server refuses what Opgate would; "+
			"Opgate has restored it (--backstop=off removes it)", what, object.GetKind()),
		Occurrence: object.GetResourceVersion(), // each time is worth an event
	})
}

// deleteAll deletes the objects of an earlier mode. Without a right to, no release with that mode is left: the garbage
// collector deletes them with the ClusterRole that granted it.
func (r *reconciler) deleteAll(ctx context.Context) error {
	for _, k := range slices.Backward(kinds) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(k.gvk())
		u.SetName(k.object)
		err := r.writer.Client.Delete(ctx, u)
		switch {
		case err == nil:
			r.writer.Metrics.Wrote(apply.Delete, k.name, nil)
			r.Log.Info("deleted", "kind", k.name, "name", k.object)
		case apierrors.IsForbidden(err):
			return nil
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("delete %s: %w", k.key(), err)
		}
	}
	return nil
}
