package constraint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
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
func (r *Controller) reconcileOperators(
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
func (r *Controller) write(ctx context.Context, a virtual.Action) (reason string, err error) {
	object, verb := cmp.Or(a.Object, a.Live), apply.Verb(a.Live, a.Object)
	err = r.Writer.Do(ctx, a.Live, a.Object)
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
	return "", r.Writer.Done(ctx, a.Live, a.Object)
}

// wanted caches the virtual operators that the Constraints of a snapshot require. They are built once for all
// namespaces, and rebuilt only for Constraints that changed. The zero value is ready for use.
type wanted struct {
	// missing is why no virtual operator may be written; empty if it may.
	missing   string
	mu        sync.Mutex
	current   *snapshot.Snapshot
	automatic []olm.Property
	made      map[string]madeOperator // by Constraint
	operators []*virtual.Operator
}

// madeOperator is a virtual operator, nil if the Constraint requires none, and what it was built from.
type madeOperator struct {
	object     *constraintv1.Constraint
	definition *constraint.Definition
	operator   *virtual.Operator
}

// by returns the virtual operators that the Constraints of a snapshot require, sorted by Constraint.
func (w *wanted) by(current *snapshot.Snapshot) []*virtual.Operator {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == current {
		return w.operators
	}
	automatic := virtual.Automatic(current.Constraints())
	last := w.made
	if !reflect.DeepEqual(automatic, w.automatic) {
		last = nil
	}
	w.current, w.automatic, w.made, w.operators = current, automatic, map[string]madeOperator{}, nil
	for _, object := range current.ConstraintObjects() {
		_, definition := find(current, object.Name)
		if definition == nil {
			continue
		}
		m := last[object.Name]
		if m.object != object || m.definition != definition {
			m = madeOperator{object, definition, virtual.Of(object, definition, automatic)}
			if m.operator != nil && m.operator.Problem == nil && w.missing != "" {
				m.operator.Problem = &virtual.Problem{Reason: virtual.ReasonNotGranted, Message: w.missing}
			}
		}
		w.made[object.Name] = m
		if m.operator != nil {
			w.operators = append(w.operators, m.operator)
		}
	}
	return w.operators
}

// of returns the virtual operator that one Constraint requires, nil if it requires none.
func (w *wanted) of(current *snapshot.Snapshot, name string) *virtual.Operator {
	for _, o := range w.by(current) {
		if o.Constraint == name {
			return o
		}
	}
	return nil
}
