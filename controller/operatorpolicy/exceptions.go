package operatorpolicy

import (
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// reportExceptions records an event on a policy for each exception that ends soon or has ended, and exports when the
// first one in force ends.
func (r *reconciler) reportExceptions(p *operatorpolicy.Policy) {
	now := r.Now()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	r.Metrics.ExceptionEnd(policyv1beta2.Kind, name, p.Exceptions().End(now))
	state := p.Exceptions().At(now)
	regarding := p.Reference()
	regarding.UID = p.Object.UID
	r.Events.Exceptions(*regarding, state.Ending, state.Ended)
}
