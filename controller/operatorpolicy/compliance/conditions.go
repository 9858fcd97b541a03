package compliance

import (
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// Condition types, which tools of the policy framework read. Source: the existing OperatorPolicy
// controller, whose types, reasons and related-object reasons are kept unchanged.
const (
	TypeValidPolicySpec              = "ValidPolicySpec"
	TypeOperatorGroup                = "OperatorGroupCompliant"
	TypeSubscription                 = "SubscriptionCompliant"
	TypeInstallPlan                  = "InstallPlanCompliant"
	TypeClusterServiceVersion        = "ClusterServiceVersionCompliant"
	TypeCustomResourceDefinition     = "CustomResourceDefinitionCompliant"
	TypeDeployment                   = "DeploymentCompliant"
	TypeCatalogSourcesUnhealthy      = "CatalogSourcesUnhealthy"
	TypeNoDeprecations               = "NoDeprecations"
	TypeMinorChannelUpgradeAvailable = "MinorChannelUpgradeAvailable"
	TypeCompliant                    = "Compliant"
	// TypeDependencies is an addition of Opgate: False while the dependencies of its Policy are not met, else absent.
	TypeDependencies = dependency.ConditionDependencies
)

// The kinds of related objects.
const (
	kindOperatorGroup            = olm.KindOperatorGroup
	kindSubscription             = olm.KindSubscription
	kindInstallPlan              = olm.KindInstallPlan
	kindClusterServiceVersion    = olm.KindClusterServiceVersion
	kindCustomResourceDefinition = "CustomResourceDefinition"
	kindDeployment               = "Deployment"
	kindCatalogSource            = olm.KindCatalogSource
)

// kinds are the kinds with their versions.
var kinds = map[string]schema.GroupVersionKind{
	kindOperatorGroup:            olm.OperatorGroupGVK,
	kindSubscription:             olm.SubscriptionGVK,
	kindInstallPlan:              olm.InstallPlanGVK,
	kindClusterServiceVersion:    olm.ClusterServiceVersionGVK,
	kindCustomResourceDefinition: apiextensionsv1.SchemeGroupVersion.WithKind(kindCustomResourceDefinition),
	kindDeployment:               appsv1.SchemeGroupVersion.WithKind(kindDeployment),
	kindCatalogSource:            olm.CatalogSourceGVK,
	olm.KindClusterExtension:     olm.ClusterExtensionGVK,
	olm.KindClusterObjectSet:     olm.ClusterObjectSetGVK,
}

// kindOf are the kinds of the related objects of a condition type; other types have none.
var kindOf = map[string]string{
	TypeOperatorGroup:            kindOperatorGroup,
	TypeSubscription:             kindSubscription,
	TypeInstallPlan:              kindInstallPlan,
	TypeClusterServiceVersion:    kindClusterServiceVersion,
	TypeCustomResourceDefinition: kindCustomResourceDefinition,
	TypeDeployment:               kindDeployment,
	TypeCatalogSourcesUnhealthy:  kindCatalogSource,
}

// The reasons of related objects.
const (
	relatedMissing        = "Resource not found but should exist"
	relatedNotWanted      = "Resource found but should not exist"
	relatedAbsent         = "Resource not found as expected"
	relatedFound          = "Resource found as expected"
	relatedMismatch       = "Resource found but does not match"
	relatedCreated        = "K8s creation success"
	relatedUpdated        = "K8s update success"
	relatedDeleted        = "K8s deletion success"
	relatedDeleting       = "The object is being deleted but has not been removed yet"
	relatedNotHandled     = "Resource found but will not be handled in mustnothave mode"
	relatedUnhealthy      = "Resource found as expected but is unhealthy"
	relatedUnknownState   = "Resource found but current state is unknown"
	relatedTooManyGroups  = "There is more than one OperatorGroup in this namespace"
	relatedNoPlans        = "There are no relevant InstallPlans in this namespace"
	relatedNoCSV          = "No relevant ClusterServiceVersion found"
	relatedNoCRDs         = "No relevant CustomResourceDefinitions found"
	relatedNoDeployments  = "No relevant deployments found"
	relatedDeploymentUp   = "Deployment Available"
	relatedDeploymentDown = "Deployment Unavailable"
	// notImpacted follows what is not healthy only because of Deployments that do not count.
	notImpacted = " (policy compliance is not impacted due to spec.complianceConfig.deploymentsUnavailable)"
)

// relatedKept is the reason of an object that removalBehavior retains.
func relatedKept(kind string) string {
	return "The " + kind + " is attached to a mustnothave policy, but does not need to be removed"
}

// noName is written in place of the name if no particular object is meant.
const noName = "-"

// related describes an object in the status. Name and namespace are enough if it does not exist.
func (in *Input) related(
	kind string, o olm.ObjectMeta, state policyv1beta2.ComplianceState, reason string,
) policyv1beta2.RelatedObject {
	r := policyv1beta2.RelatedObject{
		Object: policyv1beta2.ObjectReference{APIVersion: kinds[kind].GroupVersion().String(), Kind: kind,
			Metadata: policyv1beta2.ObjectMetadata{Name: o.Name, Namespace: o.Namespace}},
		Compliant: state, Reason: reason, Cluster: in.Cluster,
	}
	if o.UID != "" {
		r.Properties = &policyv1beta2.ObjectProperties{UID: o.UID}
		if in.createdByPolicy(kind, &o) {
			r.Properties.CreatedByPolicy = new(true)
		}
	}
	return r
}

// compliantIf returns Compliant or NonCompliant.
func compliantIf(ok bool) policyv1beta2.ComplianceState {
	if ok {
		return policyv1beta2.Compliant
	}
	return policyv1beta2.NonCompliant
}

// statusIf returns True or False.
func statusIf(ok bool) metav1.ConditionStatus {
	if ok {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
