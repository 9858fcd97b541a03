package snapshot

import (
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/stream"
)

// The fields that are stored for controllers. Tenants write objects of these kinds, as large as the API server accepts.
// A field that is too large is replaced by a placeholder text (stream.Withheld).

// head returns the fields of the metadata that are stored of every kind, with labels and annotations. The
// resourceVersion is that of the Object.
func head(labels, annotations stream.Fields, more stream.Fields) stream.Fields {
	more["metadata"] = stream.Fields{"name": nil, "generateName": nil, "namespace": nil, "uid": nil, "generation": nil,
		"creationTimestamp": nil,
		"deletionTimestamp": nil, "finalizers": nil, "ownerReferences": nil, "labels": labels,
		"annotations": annotations}
	return more
}

// none stores no member of a map.
var none = stream.Fields{}

var (
	keptOfSubscription = head(stream.Fields{metakey.Managed: nil},
		stream.Fields{metakey.Managed: nil, metakey.PolicyFields: nil, metakey.RequestedApproval: nil},
		stream.Fields{
			"spec": {stream.Any: nil},
			"status": {"installedCSV": nil, "currentCSV": nil, "state": nil, "installPlanRef": {"name": nil},
				"lastUpdated": nil},
		})
	keptOfOperatorGroup = head(none, none, stream.Fields{
		"spec":   {stream.Any: nil},
		"status": {"namespaces": nil},
	})
	// keptOfVirtualOperator is what Opgate itself writes to a virtual operator.
	keptOfVirtualOperator = head(stream.Fields{metakey.CopiedFrom: nil, metakey.VirtualOperator: nil,
		metakey.ManagedBy: nil},
		stream.Fields{metakey.OperatorNamespace: nil, metakey.Properties: nil}, stream.Fields{
			"spec":   {stream.Any: nil},
			"status": {"phase": nil, "reason": nil, "message": nil},
		})
	keptOfCatalog = head(none, none, stream.Fields{
		"spec": {stream.Any: nil},
		"status": {"connectionState": {"address": nil, "lastObservedState": nil}, "registryService": nil,
			"latestImageRegistryPoll": nil},
	})
	keptOfDefinition = head(stream.Fields{stream.Any: nil}, none, stream.Fields{})
)

// keeping picks the same fields of all objects.
func keeping(fields stream.Fields) func(raw []byte) map[string]any {
	return func(raw []byte) map[string]any { return stream.Pick(raw, fields) }
}

// keepCSV stores fields of virtual operators alone. What is read of others is their value.
func keepCSV(raw []byte) map[string]any {
	if !hasLabel(raw, metakey.VirtualOperator) {
		return nil
	}
	return stream.Pick(raw, keptOfVirtualOperator)
}
