package admission

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// applied is what the API server and kubectl record about who applied which fields of a Subscription.
type applied struct {
	Metadata struct {
		Annotations struct {
			LastApplied string `json:"kubectl.kubernetes.io/last-applied-configuration"`
		} `json:"annotations"`
		ManagedFields []json.RawMessage `json:"managedFields"`
	} `json:"metadata"`
}

// managedFields is an entry of metadata.managedFields, as far as it is about installPlanApproval.
type managedFields struct {
	Manager   string `json:"manager"`
	Operation string `json:"operation"`
	Fields    struct {
		Metadata struct {
			Annotations struct {
				RequestedApproval json.RawMessage `json:"f:opgate.io/requested-approval"`
			} `json:"f:annotations"`
		} `json:"f:metadata"`
		Spec struct {
			InstallPlanApproval json.RawMessage `json:"f:installPlanApproval"`
		} `json:"f:spec"`
	} `json:"fieldsV1"`
}

// appliesManual reports whether an update applies installPlanApproval Manual, which the Subscription has already:
//   - server-side, by a field manager that applies this field, and not the annotation with what was requested. The API
//     server changes the manager's entry, or nothing at all.
//   - by a client that records the document in an annotation, which is another one than before.
func appliesManual(req *request[json.RawMessage, json.RawMessage]) bool {
	now, err := olm.Decode[applied](*req.Object)
	if err != nil {
		return false
	}
	before, err := olm.Decode[applied](*req.OldObject)
	if err != nil {
		return false
	}
	if text := now.Metadata.Annotations.LastApplied; text != before.Metadata.Annotations.LastApplied {
		document, err := olm.Decode[olm.Subscription]([]byte(text))
		return err == nil && rules.RequestedApproval(document.Spec.InstallPlanApproval,
			document.Metadata.Annotations.RequestedApproval) == olm.ApprovalManual
	}
	unchanged := bytes.Equal(*req.Object, *req.OldObject)
	return slices.ContainsFunc(now.Metadata.ManagedFields, func(raw json.RawMessage) bool {
		written := unchanged || !slices.ContainsFunc(before.Metadata.ManagedFields,
			func(old json.RawMessage) bool { return bytes.Equal(old, raw) })
		if !written || req.Options.FieldManager == "" {
			return false
		}
		entry, err := olm.Decode[managedFields](raw)
		return err == nil && entry.Manager == req.Options.FieldManager && entry.Operation == "Apply" &&
			entry.Fields.Spec.InstallPlanApproval != nil && entry.Fields.Metadata.Annotations.RequestedApproval == nil
	})
}
