package rules

import (
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
)

// UpgradeDeadline returns when a plan that waits has waited for longer than a policy wants for an upgrade in it, by
// spec.MaximumWait; zero for never, and if it is not known when the plan was created.
func UpgradeDeadline(n *state.Namespace, plan *olm.InstallPlan) time.Time {
	var deadline time.Time
	created, err := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	if err != nil || n == nil {
		return deadline
	}
	bundles := carrier.OfPlan(plan, n)
	for i := range bundles {
		if n.InstalledOf(bundles[i].Package, bundles[i].Name) == "" {
			continue // a first installation
		}
		for _, p := range n.Governing(bundles[i].Package) {
			if at := created.Add(p.MaximumWait); p.MaximumWait > 0 && (deadline.IsZero() || at.Before(deadline)) {
				deadline = at
			}
		}
	}
	return deadline
}
