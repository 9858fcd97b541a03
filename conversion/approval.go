package conversion

import (
	"maps"

	"github.com/opgate/opgate/rules"
)

// joinApproval converts the two forms of v1beta1 to upgradeApproval and returns in which of them it is written, "" for both. Where they
// contradict each other (R-CV-4), shown is the installPlanApproval that conversion had set: if it is still there, upgradeApproval was changed and
// wins, otherwise installPlanApproval does. If none was shown, both forms were written by an author: they are left unchanged, as unknown
// values are. Admission refuses them and names the fix.
func joinApproval(spec map[string]any, shown string) rules.Dialect {
	upgrade, hasUpgrade := spec[fieldUpgradeApproval]
	sub, _ := spec[fieldSubscription].(map[string]any)
	install, hasInstall := sub[fieldInstallPlanApproval]
	implied, known := map[string]string{automatic: automatic, manual: none}[text(install)]
	valid := upgrade == automatic || upgrade == none
	var dialect rules.Dialect
	switch {
	case !hasInstall && valid:
		return rules.DialectUpgradeApproval
	case !known, hasUpgrade && !valid:
		return ""
	case !hasUpgrade:
		dialect = rules.DialectInstallPlanApproval
	case upgrade == implied:
	case shown == "":
		return ""
	case install == shown:
		dialect, implied = rules.DialectUpgradeApproval, text(upgrade)
	default:
		dialect = rules.DialectInstallPlanApproval
	}
	sub = maps.Clone(sub)
	delete(sub, fieldInstallPlanApproval)
	spec[fieldSubscription] = sub
	spec[fieldUpgradeApproval] = implied
	return dialect
}

// splitApproval converts upgradeApproval to the form of a dialect, or to both, and returns the installPlanApproval that it has set, "" for
// none.
func splitApproval(spec map[string]any, dialect rules.Dialect) (shown string) {
	shown = map[string]string{automatic: automatic, none: manual}[text(spec[fieldUpgradeApproval])]
	sub, ok := spec[fieldSubscription].(map[string]any)
	_, stuck := sub[fieldInstallPlanApproval]
	if shown == "" || !ok || stuck || dialect == rules.DialectUpgradeApproval {
		return ""
	}
	sub = maps.Clone(sub)
	sub[fieldInstallPlanApproval] = shown
	spec[fieldSubscription] = sub
	if dialect == rules.DialectInstallPlanApproval {
		delete(spec, fieldUpgradeApproval)
	}
	return shown
}
