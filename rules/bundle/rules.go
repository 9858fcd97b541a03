// Package bundle judges what is installed, whatever brings it: a plan, a step of a plan, or a ClusterServiceVersion
// that is written past OLM. A rule is in the file of its ID: bundle/version in version.go. Those on what a bundle needs
// are in needs.go, those on the version in version.go, on the catalog and its images in catalog.go, on what a plan
// changes in consent.go.
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
