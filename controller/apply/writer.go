// Package apply is how controllers write, one version of an object at a time: a merge patch of what differs where others
// write as well, and the whole object where only Opgate does. It waits until the snapshot shows a write, so that nothing
// is decided, and done, a second time.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
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

// difference returns what a merge patch changes to make one status of an object another one.
func difference(before, after any) (fields map[string]any, err error) {
	of := func(status any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": status}}
	}
	patch, err := client.MergeFrom(of(before)).Data(of(after))
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
	fields, err := difference(before, after)
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
// is named, or deletes it. The new state receives the response.
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
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if len(subresource) > 0 {
		return w.Client.SubResource(subresource[0]).Patch(ctx, object, patch)
	}
	return w.Client.Patch(ctx, object, patch)
}

// whole returns a live object with those fields of its spec that change and are too large for the snapshot: a merge patch
// removes what is known to be in them. A patch that changes nothing returns them, if the object has not changed.
func (w *Writer) whole(ctx context.Context, live, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before, _ := live.Object["spec"].(map[string]any) // of another type: it has no fields
	after, _ := object.Object["spec"].(map[string]any)
	large := slices.DeleteFunc(slices.Collect(maps.Keys(before)), func(field string) bool {
		return !stream.Withheld(before[field]) || reflect.DeepEqual(before[field], after[field])
	})
	if len(large) == 0 {
		return live, nil
	}
	stored := live.DeepCopy()
	nothing := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, live.GetResourceVersion())
	if err := w.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, nothing)); err != nil {
		return nil, err
	}
	content, _ := stored.Object["spec"].(map[string]any)
	live = live.DeepCopy()
	for _, field := range large {
		live.Object["spec"].(map[string]any)[field] = content[field]
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

// Approve approves a plan only if it is in the state that was judged: if OLM or another replica has changed it since,
// the error is Outdated. It returns the metadata in the response.
func (w *Writer) Approve(ctx context.Context, plan *olm.InstallPlan) (*metav1.PartialObjectMetadata, error) {
	head := Version(snapshot.InstallPlans, &plan.Metadata)
	err := w.patch(ctx, head, map[string]any{"spec": map[string]any{"approved": true}})
	w.Metrics.approved(err)
	if err != nil {
		return nil, fmt.Errorf("approve InstallPlan %s: %w", plan.Metadata.Key(), err)
	}
	return head, nil
}

// Approved waits until the snapshot shows approvals, so that none is sent twice.
func (w *Writer) Approved(ctx context.Context, plans []*metav1.PartialObjectMetadata) error {
	for _, plan := range plans {
		if err := w.Patched(ctx, snapshot.InstallPlans, snapshot.InNamespace(plan.Namespace), plan); err != nil {
			return err
		}
	}
	return nil
}

// Resync makes OLM resolve the namespace of a Subscription again. OLM treats an unsatisfiable resolution as final: it
// resolves again when a Subscription, an OperatorGroup or the namespace changes, or after 15 minutes, but not when a
// ClusterServiceVersion changes. If the Subscription has changed since it was read, the error is Outdated.
func (w *Writer) Resync(ctx context.Context, sub *olm.Subscription, now time.Time) error {
	return w.Patch(ctx, Version(snapshot.Subscriptions, &sub.Metadata), map[string]any{"metadata": map[string]any{
		"annotations": rules.ResyncRequest(now.UTC().Format(time.RFC3339))}})
}
