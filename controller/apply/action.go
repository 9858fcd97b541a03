package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// The verbs of actions. Update and Patch are the same, counted by the name that the controller uses.
const (
	Create       = "create"
	Update       = "update"
	Patch        = "patch"
	UpdateStatus = "update status"
	Delete       = "delete"
)

// Do carries out an action: it creates an object, sends the difference between two states of it, or deletes the live
// one. Updates and deletions apply only to the live state; of large objects only some fields of that are stored. The
// object receives the identity and the version in the response.
func (w *Writer) Do(ctx context.Context, verb string, live, object *unstructured.Unstructured) error {
	err := w.do(ctx, verb, live, object)
	w.Metrics.Wrote(verb, object.GetKind(), err)
	return err
}

func (w *Writer) do(ctx context.Context, verb string, live, object *unstructured.Unstructured) error {
	switch verb {
	case Create:
		err := w.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) && object.GroupVersionKind() == snapshot.Namespaces.GroupVersionKind {
			return nil // another client was first, with the same result
		}
		return err
	case Update, Patch:
		return w.update(ctx, live, object)
	case UpdateStatus:
		return w.update(ctx, live, object, "status")
	case Delete:
		uid, version := live.GetUID(), live.GetResourceVersion()
		return client.IgnoreNotFound(w.Client.Delete(ctx, live,
			client.Preconditions{UID: &uid, ResourceVersion: &version}))
	}
	return fmt.Errorf("verb %q is not known", verb)
}

func (w *Writer) update(ctx context.Context, live, object *unstructured.Unstructured, subresource ...string) error {
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if whole := replaced(live, object); len(whole) > 0 {
		patch = replacing(live, whole)
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	head := Head(snapshot.KindOf(object.GroupVersionKind()), client.ObjectKeyFromObject(object))
	if err := w.patch(ctx, head, client.RawPatch(patch.Type(), data), subresource...); err != nil {
		return err
	}
	object.SetUID(head.UID)
	object.SetResourceVersion(head.ResourceVersion)
	return nil
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

// replaced returns the fields of the spec that change and are too large to be stored. A merge patch cannot remove what
// they contain.
func replaced(live, object *unstructured.Unstructured) map[string]any {
	before, _ := live.Object["spec"].(map[string]any) // of another type: it has no fields
	after, _ := object.Object["spec"].(map[string]any)
	whole := map[string]any{}
	for field, value := range before {
		if stream.Withheld(value) && !reflect.DeepEqual(value, after[field]) {
			whole[field] = after[field]
		}
	}
	return whole
}

// replacing returns a patch that replaces those fields. Other differences are found when the patched object is
// observed.
func replacing(live *unstructured.Unstructured, fields map[string]any) client.Patch {
	var operations []verdict.PatchOperation
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		o := verdict.PatchOperation{Op: "replace", Path: "/spec/" + field, Value: fields[field]}
		if o.Value == nil {
			o.Op = "remove"
		}
		operations = append(operations, o)
	}
	return Locked(live.GetResourceVersion(), operations)
}

// Locked returns a JSON patch that applies only to one version of the object. Writing the expected resourceVersion
// fails with a conflict if the object has changed; a JSON patch test would fail as a patch that cannot be processed.
func Locked(resourceVersion string, operations []verdict.PatchOperation) client.Patch {
	lock := verdict.PatchOperation{Op: "replace", Path: "/metadata/resourceVersion", Value: resourceVersion}
	data, err := json.Marshal(slices.Concat([]verdict.PatchOperation{lock}, operations))
	if err != nil {
		panic(err) // built from decoded JSON
	}
	return client.RawPatch(types.JSONPatchType, data)
}
