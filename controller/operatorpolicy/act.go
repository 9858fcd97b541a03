package operatorpolicy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
)

// act carries out the actions of an outcome until one fails, and updates its conditions accordingly. It waits until the
// snapshot shows each write, so that nothing is done twice.
func (r *reconciler) act(
	ctx context.Context, op *policyv1beta2.OperatorPolicy, out *compliance.Outcome,
) (acted bool, err error) {
	for _, a := range out.Actions {
		object := &unstructured.Unstructured{Object: a.Live}
		if a.Object != nil {
			object = (&unstructured.Unstructured{Object: a.Object}).DeepCopy()
		}
		err := r.writer.Do(ctx, string(a.Verb), &unstructured.Unstructured{Object: a.Live}, object)
		logger := log.FromContext(ctx).WithValues("policy", client.ObjectKeyFromObject(op), "verb", a.Verb,
			"kind", object.GetKind(), "namespace", object.GetNamespace(), "name", object.GetName())
		if err != nil {
			if reason := apierrors.ReasonForError(err); a.Failed != nil && !outdated(err) && reason != "" {
				out.Replace(a.Failed(err.Error()))
			}
			return acted, fmt.Errorf("%s %s %s/%s for OperatorPolicy %s/%s: %w", a.Verb, object.GetKind(),
				object.GetNamespace(), object.GetName(), op.Namespace, op.Name, err)
		}
		logger.Info("written")
		acted = true
		if a.Verb == compliance.UpdateStatus {
			r.Metrics.intervention.Inc()
		}
		out.Replace(a.Done.For(object.GetName(), string(object.GetUID())))
		if err := r.writer.Done(ctx, string(a.Verb), object); err != nil {
			return acted, err
		}
	}
	return acted, nil
}

// outdated reports whether an action failed because another client has written the object since it was observed. What
// is reported of it stays as it was observed, until the next evaluation.
func outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
