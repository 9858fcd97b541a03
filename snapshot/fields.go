package snapshot

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/stream"
)

// The fields that are stored for controllers. Tenants write objects of these kinds, as large as the API server accepts. A field
// that is too large is replaced by a placeholder text (stream.Withheld).

const (
	managedMark    = "operatorpolicy.policy.open-cluster-management.io/managed"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// head returns the fields of the metadata that are stored of every kind, with labels and annotations. The resourceVersion
// is that of the Object.
func head(labels, annotations stream.Fields, more stream.Fields) stream.Fields {
	more["metadata"] = stream.Fields{"name": nil, "generateName": nil, "namespace": nil, "uid": nil, "generation": nil, "creationTimestamp": nil,
		"deletionTimestamp": nil, "finalizers": nil, "ownerReferences": nil, "labels": labels, "annotations": annotations}
	return more
}

// none stores no member of a map.
var none = stream.Fields{}

var (
	keptOfSubscription = head(stream.Fields{managedMark: nil},
		stream.Fields{managedMark: nil, rules.PolicyFieldsAnnotation: nil, rules.RequestedApprovalAnnotation: nil},
		stream.Fields{
			"spec": {stream.Any: nil},
			"status": {"installedCSV": nil, "currentCSV": nil, "state": nil, "installPlanRef": {"name": nil}, "conditions": nil,
				"lastUpdated": nil},
		})
	keptOfOperatorGroup = head(none, none, stream.Fields{
		"spec":   {stream.Any: nil},
		"status": {"namespaces": nil},
	})
	keptOfCSV = head(stream.Fields{olm.CopiedFromLabel: nil}, stream.Fields{olm.OperatorNamespaceAnnotation: nil}, stream.Fields{
		"spec":   {"installModes": nil, "version": nil},
		"status": {"phase": nil, "reason": nil, "message": nil},
	})
	// keptOfVirtualOperator is what Opgate itself writes to a virtual operator.
	keptOfVirtualOperator = head(stream.Fields{olm.CopiedFromLabel: nil, rules.VirtualOperatorLabel: nil, labelManagedBy: nil},
		stream.Fields{olm.OperatorNamespaceAnnotation: nil, olm.PropertiesAnnotation: nil}, stream.Fields{
			"spec":   {stream.Any: nil},
			"status": {"phase": nil, "reason": nil, "message": nil},
		})
	keptOfCatalog = head(none, none, stream.Fields{
		"spec":   {stream.Any: nil},
		"status": {"connectionState": {"address": nil, "lastObservedState": nil}, "registryService": nil, "latestImageRegistryPoll": nil},
	})
	keptOfDeployment = head(none, none, stream.Fields{
		"spec":   {"replicas": nil},
		"status": {"observedGeneration": nil, "unavailableReplicas": nil, "availableReplicas": nil},
	})
	keptOfDefinition = head(stream.Fields{stream.Any: nil}, none, stream.Fields{})
)

// keeping picks the same fields of all objects.
func keeping(fields stream.Fields) func(raw []byte) map[string]any {
	return func(raw []byte) map[string]any { return stream.Pick(raw, fields) }
}

// keepCSV also stores the names of the Deployments in the install strategy, as spec.deployments, and the requirements that are not met, as
// status.unmet.
func keepCSV(raw []byte) map[string]any {
	if hasLabel(raw, rules.VirtualOperatorLabel) {
		return stream.Pick(raw, keptOfVirtualOperator)
	}
	picked := stream.Pick(raw, keptOfCSV)
	if names := deploymentsOf(raw); len(names) > 0 {
		_ = unstructured.SetNestedStringSlice(picked, names, "spec", "deployments") // with names there is a spec
	}
	if reason, _, _ := unstructured.NestedString(picked, "status", "reason"); reason == "RequirementsNotMet" {
		_ = unstructured.SetNestedStringSlice(picked, unmetOf(raw), "status", "unmet") // with a reason there is a status
	}
	return picked
}

// maxUnmet bounds the stored requirements of one operator: the first are shown.
const maxUnmet = 5

// unmetOf returns the requirements that a ClusterServiceVersion does not meet, with OLM's message.
func unmetOf(raw []byte) (unmet []string) {
	var object struct {
		Status struct {
			Requirements []struct {
				Kind    string `json:"kind"`
				Name    string `json:"name"`
				Status  string `json:"status"`
				Message string `json:"message"`
			} `json:"requirementStatus"`
		} `json:"status"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return nil // of another type: there are none
	}
	for _, r := range object.Status.Requirements {
		if r.Status != "Present" && len(unmet) < maxUnmet {
			unmet = append(unmet, text.Truncate(r.Kind+" "+r.Name+" ("+r.Status+"): "+r.Message, 500))
		}
	}
	return unmet
}

// keepDeployment also stores whether the Deployment has exceeded its progress deadline, as status.stalled.
func keepDeployment(raw []byte) map[string]any {
	picked := stream.Pick(raw, keptOfDeployment)
	var object struct {
		Status struct {
			Conditions []struct {
				Reason string `json:"reason"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return picked // of another type: there are none
	}
	for _, c := range object.Status.Conditions {
		if c.Reason == "ProgressDeadlineExceeded" {
			_ = unstructured.SetNestedField(picked, true, "status", "stalled") // of another type, it has no conditions
		}
	}
	return picked
}

// maxDeployments bounds the Deployments of one operator. Operators in use have a dozen.
const maxDeployments = 1000

// deploymentsOf returns the names of the Deployments in the install strategy of a ClusterServiceVersion.
func deploymentsOf(raw []byte) []string {
	var object struct {
		Spec struct {
			Install struct {
				Spec struct {
					Deployments []struct {
						Name string `json:"name"`
					} `json:"deployments"`
				} `json:"spec"`
			} `json:"install"`
		} `json:"spec"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return nil // of another type: there are none
	}
	var names []string
	for _, d := range object.Spec.Install.Spec.Deployments {
		if d.Name != "" && len(names) < maxDeployments {
			names = append(names, d.Name)
		}
	}
	return names
}
