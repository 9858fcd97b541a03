package apply

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// Verb returns the verb of a write that makes one state of an object another one. Nil is for an object that does not
// exist.
func Verb(live, object *unstructured.Unstructured) string {
	switch {
	case live == nil:
		return Create
	case object == nil:
		return Delete
	}
	return Patch
}

// Do makes the live state of an object another one: it creates the object, sends the difference, to a subresource if one
// is named, or deletes it. The new state receives the identity and the version in the response.
func (w *Writer) Do(ctx context.Context, live, object *unstructured.Unstructured, subresource ...string) (err error) {
	switch Verb(live, object) {
	case Create:
		err = w.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) && object.GroupVersionKind() == snapshot.Namespaces.GroupVersionKind {
			err = nil // another client was first, with the same result
		}
		w.Metrics.Wrote(Create, object.GetKind(), err)
	case Delete:
		err = w.Delete(ctx, live)
	case Patch:
		err = w.update(ctx, live, object, subresource...)
		w.Metrics.Wrote(Patch, object.GetKind(), err)
	}
	return err
}

func (w *Writer) update(ctx context.Context, live, object *unstructured.Unstructured, subresource ...string) error {
	live, err := w.whole(ctx, live, object)
	if err != nil {
		return err
	}
	fields, err := difference(live.Object, object.Object)
	if err != nil {
		return err
	}
	head := Head(snapshot.KindOf(object.GroupVersionKind()), client.ObjectKeyFromObject(object))
	head.ResourceVersion = live.GetResourceVersion()
	if err := w.patch(ctx, head, fields, subresource...); err != nil {
		return err
	}
	object.SetUID(head.UID)
	object.SetResourceVersion(head.ResourceVersion)
	return nil
}

// whole returns a live object with those fields of its spec that change and are too large for the snapshot: a merge patch
// removes what is known to be in them. A patch that changes nothing returns them, if the object has not changed.
func (w *Writer) whole(ctx context.Context, live, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before, _ := live.Object["spec"].(map[string]any) // of another type: it has no fields
	after, _ := object.Object["spec"].(map[string]any)
	var stored *unstructured.Unstructured
	for field, value := range before {
		if !stream.Withheld(value) || reflect.DeepEqual(value, after[field]) {
			continue
		}
		if stored == nil {
			stored = live.DeepCopy()
			nothing := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, live.GetResourceVersion())
			if err := w.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, nothing)); err != nil {
				return nil, err
			}
			live = live.DeepCopy()
		}
		content, _, err := unstructured.NestedFieldNoCopy(stored.Object, "spec", field)
		if err == nil {
			err = unstructured.SetNestedField(live.Object, content, "spec", field)
		}
		if err != nil {
			return nil, err
		}
	}
	return live, nil
}

// Done waits until the snapshot shows what Do has written.
func (w *Writer) Done(ctx context.Context, live, object *unstructured.Unstructured) error {
	written, version := live, ""
	if object != nil {
		written, version = object, object.GetResourceVersion()
	}
	kind := snapshot.KindOf(written.GroupVersionKind())
	return w.Store.Wait(ctx, kind, version,
		func(s *snapshot.Snapshot) bool { return s.Shows(kind, written, object == nil) })
}
