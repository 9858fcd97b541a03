package compliance

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
)

const (
	reasonNoCRDs        = "RelevantCRDNotFound"
	reasonNoDeployments = "NoRelevantDeployments"
)

// crds lists the CustomResourceDefinitions of the operator. An operator without any is compliant.
func (e *evaluation) crds() Condition {
	f := Condition{Type: TypeCustomResourceDefinition, Status: metav1.ConditionTrue}
	if len(e.CRDs) == 0 {
		f.Reason, f.Message = reasonNoCRDs, "no CustomResourceDefinitions were found for the operator"
		f.Related = e.nothing(kindCustomResourceDefinition, relatedNoCRDs)
		return f
	}
	f.Reason, f.Message = "RelevantCRDFound", "there are CustomResourceDefinitions present for the operator"
	for _, crd := range e.CRDs {
		f.Related = append(f.Related, e.related(kindCustomResourceDefinition, crd.ObjectMeta, policyv1beta2.Compliant,
			relatedFound))
	}
	return f
}

// deployments reports whether the Deployments of the ClusterServiceVersion are available. A missing one counts
// as unavailable.
func (e *evaluation) deployments() Condition {
	f := Condition{Type: TypeDeployment, Status: metav1.ConditionTrue, Reason: reasonNoDeployments}
	switch {
	case e.Grants.Missing(grant.Deployments) != "":
		f.Message = "the health of Deployments is not known: " + e.Grants.Missing(grant.Deployments)
	case e.csv == nil:
		f.Message = "there are no relevant Deployments because the ClusterServiceVersion is missing"
	case len(e.csv.Status.Deployments) == 0:
		f.Message = "there are no relevant Deployments because the ClusterServiceVersion " +
			text.Name(e.csv.Metadata.Name) + " has none"
	default:
		return e.health(slices.Compact(slices.Sorted(slices.Values(e.csv.Status.Deployments))))
	}
	f.Related = e.nothing(kindDeployment, relatedNoDeployments)
	return f
}

func (e *evaluation) health(names []string) Condition {
	tolerated, until := e.config.DeploymentsUnavailable == policyv1beta2.ConfigCompliant, ""
	down := relatedDeploymentDown
	if tolerated {
		down += notImpacted
	} else if tolerated = e.tolerates(TypeDeployment); tolerated {
		until = e.upgrade.tolerated()
	}
	f := Condition{Type: TypeDeployment, Status: statusIf(tolerated)}
	var unavailable, missing, stalled []string
	for _, name := range names {
		d, ok := e.Deployments[name]
		switch {
		case !ok:
			missing = append(missing, name)
			f.Related = append(f.Related, e.related(kindDeployment,
				olm.ObjectMeta{Namespace: e.wanted.namespace, Name: name}, compliantIf(tolerated), relatedMissing))
		case !d.Available:
			unavailable = append(unavailable, name)
			if d.Stalled {
				stalled = append(stalled, name)
			}
			f.Related = append(f.Related, e.related(kindDeployment, d.ObjectMeta, compliantIf(tolerated), down))
		default:
			f.Related = append(f.Related, e.related(kindDeployment, d.ObjectMeta, policyv1beta2.Compliant,
				relatedDeploymentUp))
		}
	}
	switch {
	case len(missing) == len(names):
		f.Reason, f.Message = "NoExistingDeployments", "none of the operator's Deployments exist: "+
			text.Names(missing, maxListed)+until
	case len(missing)+len(unavailable) > 0:
		f.Reason, f.Message = "DeploymentsUnavailable", "the operator's Deployments are not all available"
		if len(unavailable) > 0 {
			f.Message += "; without their minimum availability: " + text.Names(unavailable, maxListed)
		}
		if len(missing) > 0 {
			f.Message += "; missing: " + text.Names(missing, maxListed)
		}
		if len(stalled) > 0 {
			f.Message += "; beyond their progress deadline: " + text.Names(stalled, maxListed)
		}
		f.Message += until
	default:
		f.Status, f.Reason = metav1.ConditionTrue, "DeploymentsAvailable"
		f.Message = "All operator Deployments have their minimum availability"
	}
	return f
}
