package rules

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// InstalledFrom returns the catalog from which a plan installed a ClusterServiceVersion; zero if that is not known.
func InstalledFrom(n *state.Namespace, csv string) olm.Catalog {
	for _, plan := range n.Plans() {
		if plan.Metadata.Name != n.PlanThatInstalled(csv) {
			continue
		}
		for _, c := range bundlesOf(plan, n) {
			if c.name == csv && len(c.catalogs) == 1 {
				return c.catalogs[0]
			}
		}
	}
	return olm.Catalog{}
}
