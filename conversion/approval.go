package conversion

import (
	"maps"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// joinApproval converts the two forms of v1beta1 to upgradeApproval and returns in which of them it is written, "" for
// both. Where they contradict each other, shown is the installPlanApproval that conversion had set: if it is
// still there, upgradeApproval was changed and wins, otherwise installPlanApproval does. If none was shown, or one
// applied document has both forms, an author wrote both: they are left unchanged, as unknown values are. Admission
// refuses them and names the fix.
func joinApproval(object, spec map[string]any, shown string) operatorpolicy.Dialect {
	upgrade, hasUpgrade := spec[fieldUpgradeApproval]
	sub, _ := spec[fieldSubscription].(map[string]any)
	install, hasInstall := sub[fieldInstallPlanApproval]
	implied, known := map[string]string{automatic: automatic, manual: none}[text(install)]
	valid := upgrade == automatic || upgrade == none
	var dialect operatorpolicy.Dialect
	switch {
	case !hasInstall && valid:
		return operatorpolicy.DialectUpgradeApproval
	case !known, hasUpgrade && !valid:
		return ""
	case !hasUpgrade:
		dialect = operatorpolicy.DialectInstallPlanApproval
	case upgrade == implied:
	case shown == "" || appliedBoth(object, upgrade, install):
		return ""
	case install == shown:
		dialect, implied = operatorpolicy.DialectUpgradeApproval, text(upgrade)
	default:
		dialect = operatorpolicy.DialectInstallPlanApproval
	}
	sub = maps.Clone(sub)
	delete(sub, fieldInstallPlanApproval)
	spec[fieldSubscription] = sub
	spec[fieldUpgradeApproval] = implied
	return dialect
}

// splitApproval converts upgradeApproval to the form of a dialect, or to both, and returns the installPlanApproval that
// it has set, "" for none.
func splitApproval(spec map[string]any, dialect operatorpolicy.Dialect) (shown string) {
	shown = map[string]string{automatic: automatic, none: manual}[text(spec[fieldUpgradeApproval])]
	sub, ok := spec[fieldSubscription].(map[string]any)
	_, stuck := sub[fieldInstallPlanApproval]
	if shown == "" || !ok || stuck || dialect == operatorpolicy.DialectUpgradeApproval {
		return ""
	}
	sub = maps.Clone(sub)
	sub[fieldInstallPlanApproval] = shown
	spec[fieldSubscription] = sub
	if dialect == operatorpolicy.DialectInstallPlanApproval {
		delete(spec, fieldUpgradeApproval)
	}
	return shown
}

// appliedBoth reports whether a document that was applied last, by kubectl or on the server, has both forms with these
// values.
func appliedBoth(object map[string]any, upgrade, install any) bool {
	metadata := child(object, "metadata")
	var document map[string]any
	if decode([]byte(text(child(metadata, "annotations")[metakey.LastApplied])), &document) == nil {
		spec := child(document, fieldSpec)
		if spec[fieldUpgradeApproval] == upgrade && child(spec, fieldSubscription)[fieldInstallPlanApproval] ==
			install {
			return true
		}
	}
	managers, _ := metadata["managedFields"].([]any)
	for _, m := range managers { // a manager loses a field that another one changes
		manager, _ := m.(map[string]any)
		spec := child(child(manager, "fieldsV1"), "f:"+fieldSpec)
		_, hasUpgrade := spec["f:"+fieldUpgradeApproval]
		_, hasInstall := child(spec, "f:"+fieldSubscription)["f:"+fieldInstallPlanApproval]
		if manager["operation"] == "Apply" && hasUpgrade && hasInstall {
			return true
		}
	}
	return false
}

// child returns a field that is an object; nil, which can be read, if it is none.
func child(of map[string]any, field string) map[string]any {
	value, _ := of[field].(map[string]any)
	return value
}
