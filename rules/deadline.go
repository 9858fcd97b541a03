package rules

import (
	"time"

	"github.com/opgate/opgate/olm"
)

// UpgradeDeadline returns when a plan that waits has waited for longer than a policy wants for an upgrade in it, by
// spec.maximumWait; zero for never, and if it is not known when the plan was created.
func (n *Namespace) UpgradeDeadline(plan *olm.InstallPlan) time.Time {
	var deadline time.Time
	created, err := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	if err != nil || n == nil {
		return deadline
	}
	bundles := bundlesOf(plan, n)
	for i := range bundles {
		if n.installedOf(bundles[i].pkg, bundles[i].name) == "" {
			continue // a first installation
		}
		for _, p := range n.governing(bundles[i].pkg) {
			if at := created.Add(p.maximumWait); p.maximumWait > 0 && (deadline.IsZero() || at.Before(deadline)) {
				deadline = at
			}
		}
	}
	return deadline
}
