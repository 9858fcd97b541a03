package compliance

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
)

// reasonEscaped is for what OLM wrote while no replica answered, and admission would have refused.
const reasonEscaped = "InstalledDuringOutage"

// escaped adds the ClusterServiceVersions that were installed while Opgate was not running to the condition on
// ClusterServiceVersions.
func (e *evaluation) escaped(out Outcome) Outcome {
	if len(e.Escaped) == 0 {
		return out
	}
	for i := range out.Conditions {
		if f := &out.Conditions[i]; f.Type == TypeClusterServiceVersion {
			f.Status, f.Reason = metav1.ConditionFalse, reasonEscaped
			f.Message = text.Truncate(strings.Join(e.Escaped, "; "), foreignText) + "; " + f.Message
		}
	}
	return out
}
