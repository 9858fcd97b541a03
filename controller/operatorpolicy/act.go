package operatorpolicy

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
)

// act carries out the actions of an outcome until one fails, and updates its conditions accordingly. It waits until the
// snapshot shows each write, so that nothing is done twice.
func (r *reconciler) act(
	ctx context.Context, op *policyv1beta2.OperatorPolicy, out *compliance.Outcome,
) (acted bool, err error) {
	for _, a := range out.Actions {
		live, object := unstructuredOf(a.Live), unstructuredOf(a.Object).DeepCopy()
		var subresource []string
		if a.Status {
			subresource = []string{"status"}
		}
		err := r.writer.Do(ctx, live, object, subresource...)
		verb, about := apply.Verb(live, object), cmp.Or(object, live)
		logger := log.FromContext(ctx).WithValues("policy", client.ObjectKeyFromObject(op), "verb", verb,
			"kind", about.GetKind(), "namespace", about.GetNamespace(), "name", about.GetName())
		if err != nil {
			if reason := apierrors.ReasonForError(err); a.Failed != nil && !outdated(err) && reason != "" {
				out.Replace(a.Failed(err.Error()))
			}
			return acted, fmt.Errorf("%s %s %s/%s for OperatorPolicy %s/%s: %w", verb, about.GetKind(),
				about.GetNamespace(), about.GetName(), op.Namespace, op.Name, err)
		}
		logger.Info("written")
		acted = true
		if a.Status {
			r.Metrics.intervention.Inc()
		}
		out.Replace(a.Done.For(about.GetName(), string(about.GetUID())))
		if err := r.writer.Done(ctx, live, object); err != nil {
			return acted, err
		}
	}
	return acted, nil
}

// unstructuredOf returns an object with this content, nil for none.
func unstructuredOf(content map[string]any) *unstructured.Unstructured {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}

// outdated reports whether an action failed because another client has written the object since it was observed. What
// is reported of it stays as it was observed, until the next evaluation.
func outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
