package constraint

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// nameTaken is the reason for namespaces in which another object has the name of a virtual operator.
const nameTaken = "NameTaken"

// virtualOperators returns the virtual operators of a namespace, as far as Opgate writes them.
func virtualOperators(ns *state.Namespace) []*unstructured.Unstructured {
	var live []*unstructured.Unstructured
	for _, csv := range ns.CSVs() {
		if csv.IsVirtual() {
			live = append(live, written(csv))
		}
	}
	return live
}

// written decodes a virtual operator. The caller may modify it.
func written(csv *olm.CSV) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(csv.Written, &u.Object); err != nil {
		panic(err) // it was encoded from what had been decoded
	}
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	u.SetResourceVersion(csv.Metadata.ResourceVersion)
	return u
}

// reconcileOperators brings the virtual operators of a namespace to the desired state. It leaves them unchanged until
// the cluster version is known, since they contain the version of Kubernetes.
func (r *reconciler) reconcileOperators(
	ctx context.Context, current *snapshot.Snapshot, name string, ns *state.Namespace,
) error {
	if current.Facts().Version == "" {
		return nil
	}
	operators := r.wanted.by(current)
	decision := virtual.Decide(ns, operators, virtualOperators(ns))
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
			r.queue.AddAfter(work{resync, name}, resyncDelay)
			r.queue.AddAfter(work{status, a.Constraint}, writeBatch)
		}
	}
	for _, o := range operators {
		reason := reasons[o.Constraint]
		if !r.writeErrors.set(o.Constraint, name, reason) {
			continue
		}
		if reason == nameTaken {
			r.Log.Info("virtual operator not made: there is another ClusterServiceVersion of its name, without Opgate's label",
				"constraint", o.Constraint, "namespace", name, "name", o.Name)
		}
		r.queue.AddAfter(work{status, o.Constraint}, writeBatch)
	}
	return errors.Join(errs...)
}

// write carries out one action and waits until the snapshot shows it. Otherwise reason says why the object could not be
// written.
func (r *reconciler) write(ctx context.Context, a virtual.Action) (reason string, err error) {
	object, verb := cmp.Or(a.Object, a.Live), apply.Verb(a.Live, a.Object)
	err = r.writer.Do(ctx, a.Live, a.Object)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nameTaken, nil
	case apply.Outdated(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil
	case err != nil:
		return string(apierrors.ReasonForError(err)),
			fmt.Errorf("%s virtual operator %s/%s: %w", verb, object.GetNamespace(), object.GetName(), err)
	}
	log.FromContext(ctx).Info("virtual operator written", "verb", verb, "constraint", a.Constraint,
		"namespace", object.GetNamespace(), "name", object.GetName())
	return "", r.writer.Done(ctx, a.Live, a.Object)
}
