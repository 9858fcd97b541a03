package operatorpolicy

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
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// act carries out the actions of an outcome until one fails, and updates its findings accordingly. It waits until the
// snapshot shows each write, so that nothing is done twice.
func (r *reconciler) act(ctx context.Context, op *policyv1beta2.OperatorPolicy, out *compliance.Outcome) (acted bool, err error) {
	for _, a := range out.Actions {
		object := &unstructured.Unstructured{Object: a.Live}
		if a.Object != nil {
			object = (&unstructured.Unstructured{Object: a.Object}).DeepCopy()
		}
		err := r.do(ctx, a, object)
		r.Metrics.Wrote(string(a.Verb), object.GetKind(), err)
		logger := log.FromContext(ctx).WithValues("policy", client.ObjectKeyFromObject(op), "verb", a.Verb,
			"kind", object.GetKind(), "namespace", object.GetNamespace(), "name", object.GetName())
		if err != nil {
			if reason := apierrors.ReasonForError(err); a.Failed != nil && !apierrors.IsConflict(err) && reason != "" {
				out.Replace(a.Failed(err.Error()))
			}
			return acted, fmt.Errorf("%s %s %s/%s for OperatorPolicy %s/%s: %w", a.Verb, object.GetKind(), object.GetNamespace(), object.GetName(), op.Namespace, op.Name, err)
		}
		logger.Info("written")
		acted = true
		out.Replace(a.Done.For(object.GetName(), string(object.GetUID())))
		kind := snapshot.KindOf(object.GroupVersionKind())
		if err := r.Store.Wait(ctx, func(s *snapshot.Snapshot) bool { return s.Shows(kind, object, a.Verb == compliance.Delete) }); err != nil {
			return acted, err
		}
	}
	return acted, nil
}

// do sends one write. The object is filled in from the response.
func (r *reconciler) do(ctx context.Context, a compliance.Action, object *unstructured.Unstructured) error {
	live := &unstructured.Unstructured{Object: a.Live}
	switch a.Verb {
	case compliance.Create:
		err := r.client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) && object.GroupVersionKind() == gvkNamespace {
			return nil // another client was first, with the same result
		}
		return err
	case compliance.Update:
		return r.patch(live, object, func(answer client.Object, patch client.Patch) error { return r.client.Patch(ctx, answer, patch) })
	case compliance.UpdateStatus:
		err := r.patch(live, object, func(answer client.Object, patch client.Patch) error {
			return r.client.Status().Patch(ctx, answer, patch)
		})
		if err == nil {
			r.Metrics.intervention.Inc()
		}
		return err
	case compliance.Delete:
		uid, version := live.GetUID(), live.GetResourceVersion()
		return client.IgnoreNotFound(r.client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	}
	return fmt.Errorf("verb %q is not known", a.Verb)
}

// patch sends the difference between two states of an object, of which only some fields are stored, if it has not changed since. The
// response is limited to metadata: the object may be large.
func (r *reconciler) patch(live, object *unstructured.Unstructured, send func(client.Object, client.Patch) error) error {
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if whole := replaced(live, object); len(whole) > 0 {
		patch = replacing(live, whole)
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	answer := headOnly(object.GroupVersionKind())
	answer.SetNamespace(object.GetNamespace())
	answer.SetName(object.GetName())
	if err := send(answer, client.RawPatch(patch.Type(), data)); err != nil {
		return err
	}
	object.SetUID(answer.GetUID())
	object.SetResourceVersion(answer.GetResourceVersion())
	return nil
}

// replaced returns the fields of the spec that change and are too large to be stored. A merge patch cannot remove what they contain.
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

// replacing returns a patch that replaces those fields. Other differences are found when the patched object is observed.
func replacing(live *unstructured.Unstructured, fields map[string]any) client.Patch {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	operations := []operation{{"replace", "/metadata/resourceVersion", live.GetResourceVersion()}}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		operations = append(operations, operation{"replace", "/spec/" + field, fields[field]})
	}
	data, err := json.Marshal(operations)
	if err != nil {
		panic(err) // built from decoded JSON
	}
	return client.RawPatch(types.JSONPatchType, data)
}
