package constraint

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// nameTaken is the reason for namespaces in which another object has the name of a virtual operator.
const nameTaken = "NameTaken"

// virtualOperators returns the virtual operators of a namespace.
func virtualOperators(current *snapshot.Snapshot, namespace string) []*unstructured.Unstructured {
	var live []*unstructured.Unstructured
	for _, o := range current.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(namespace)) {
		if o.VirtualOperator() {
			live = append(live, o.Unstructured())
		}
	}
	return live
}

// reconcileOperators brings the virtual operators of a namespace to the desired state. It leaves them unchanged until the
// cluster version is known, since they contain the version of Kubernetes.
func (r *reconciler) reconcileOperators(ctx context.Context, current *snapshot.Snapshot, name string, ns *rules.Namespace) error {
	if current.Constraints().Cluster().Version == "" {
		return nil
	}
	operators := r.wanted.by(current)
	decision := virtual.Decide(ns, operators, virtualOperators(current, name))
	reasons := map[string]string{}
	for _, constraint := range decision.Taken {
		reasons[constraint] = nameTaken
	}
	var errs []error
	for _, a := range decision.Actions {
		reason, err := r.write(ctx, a)
		if reason != "" {
			reasons[a.Constraint] = reason
		}
		errs = append(errs, err)
		if err == nil && reason == "" {
			r.add(work{nudge, name}, soonSeen)
			r.add(work{status, a.Constraint}, soon)
		}
	}
	for _, o := range operators {
		reason := reasons[o.Constraint]
		if !r.troubles.set(o.Constraint, name, reason) {
			continue
		}
		if reason == nameTaken {
			r.Log.Info("virtual operator not made: there is another ClusterServiceVersion of its name, without Opgate's label",
				"constraint", o.Constraint, "namespace", name, "name", o.Name)
		}
		r.add(work{status, o.Constraint}, soon)
	}
	return errors.Join(errs...)
}

// write carries out one action and waits until the snapshot shows it, so that it is not done twice. A conflict is no error:
// the change that caused it enqueues the namespace. Otherwise reason says why the object could not be written.
func (r *reconciler) write(ctx context.Context, a virtual.Action) (reason string, err error) {
	object := a.Object
	switch a.Verb {
	case virtual.Create:
		err = r.client.Create(ctx, object)
	case virtual.Patch:
		err = r.client.Patch(ctx, object, client.MergeFromWithOptions(a.Live, client.MergeFromWithOptimisticLock{}))
	case virtual.Delete:
		object = a.Live
		uid, version := object.GetUID(), object.GetResourceVersion()
		err = r.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	r.Wrote(string(a.Verb), olm.KindClusterServiceVersion, err)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil
	case a.Verb == virtual.Create && apierrors.IsAlreadyExists(err):
		return nameTaken, nil
	case err != nil:
		return string(apierrors.ReasonForError(err)), fmt.Errorf("%s virtual operator %s/%s: %w", a.Verb, object.GetNamespace(), object.GetName(), err)
	}
	log.FromContext(ctx).Info("virtual operator written", "verb", a.Verb, "constraint", a.Constraint, "namespace", object.GetNamespace(), "name", object.GetName())
	if a.Verb == virtual.Delete {
		return "", nil // done twice, it has no effect
	}
	return "", r.Store.Wait(ctx, func(s *snapshot.Snapshot) bool {
		return s.Shows(snapshot.ClusterServiceVersions, object, false)
	})
}
