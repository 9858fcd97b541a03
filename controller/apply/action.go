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

// Do carries out an action: it creates an object, sends the difference between two states of it, or deletes the live
// one. The object receives the identity and the version in the response.
func (w *Writer) Do(ctx context.Context, verb string, live, object *unstructured.Unstructured) (err error) {
	switch verb {
	case Create:
		err = w.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) && object.GroupVersionKind() == snapshot.Namespaces.GroupVersionKind {
			err = nil // another client was first, with the same result
		}
	case Update, Patch:
		err = w.update(ctx, live, object)
	case UpdateStatus:
		err = w.update(ctx, live, object, "status")
	case Delete:
		return w.Delete(ctx, live)
	default:
		return fmt.Errorf("verb %q is not known", verb)
	}
	w.Metrics.Wrote(verb, object.GetKind(), err)
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

// Done waits until the snapshot shows an action.
func (w *Writer) Done(ctx context.Context, verb string, object *unstructured.Unstructured) error {
	kind := snapshot.KindOf(object.GroupVersionKind())
	version := object.GetResourceVersion()
	if verb == Delete {
		version = ""
	}
	return w.Store.Wait(ctx, kind, version,
		func(s *snapshot.Snapshot) bool { return s.Shows(kind, object, verb == Delete) })
}
