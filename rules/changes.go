package rules

import (
	"crypto/sha256"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
)

// Changes returns what a plan changes; nil while that is not known. It never waits: the contents are read in the background. installed are
// the ClusterServiceVersions of the plan's namespace.
type Changes func(plan *olm.InstallPlan, installed []Installed) *PlanChanges

// PlanChanges is what a plan changes.
type PlanChanges struct {
	// Plan is the olm.InstallPlan.ContentsDigest that was read.
	Plan [sha256.Size]byte
	// ByCSV has a change set for each ClusterServiceVersion of the plan, by name.
	ByCSV map[string]*change.Set
}
