// Package bundle judges what is installed, whatever brings it: a plan, a step of a plan, or a ClusterServiceVersion
// that is written past OLM. A rule is in the file of its ID, or of its first words: bundle/version and
// bundle/version-range are in version.go. Those that one function judges are together: what a bundle needs is in
// needs.go, what a plan changes in consent.go.
package bundle

import (
	"slices"

	"github.com/opgate/opgate/rules/verdict"
)

var all = []verdict.Rule{
	policyUnreadable,
	bundleMustNotHave, bundleCatalog, bundleVersion, bundleVersionRange, bundleUnknown, bundleConstraint,
	bundleDependencyPending, bundleUpgrade, bundleChannel, bundleDeprecated, bundleCatalogDigest, bundleCatalogJump,
	bundleMinimumAge, bundleApprovalWindow, bundleException, bundleConsent, bundleContents, bundleOwnConstraint,
	bundleKubeVersion, bundleOpenShiftVersion, bundleNotUpgradeable,
}

// Rules returns the rules on what is installed, whatever brings it, in reading order, after the one on the policy that
// governs it. The caller may keep the slice.
func Rules() []verdict.Rule { return slices.Clone(all) }
