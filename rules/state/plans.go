package state

import (
	"slices"

	"github.com/opgate/opgate/olm"
)

// Waits reports whether a plan waits for approval: it requires approval, a Subscription names it as its current plan,
// and a part of it is not installed yet.
func (n *Namespace) Waits(plan *olm.InstallPlan) bool {
	if n == nil || !plan.AwaitsApproval() {
		return false
	}
	return n.IsCurrent(plan) && slices.ContainsFunc(plan.Spec.CSVNames, func(name string) bool {
		return !slices.ContainsFunc(n.Installed(), func(c Installed) bool { return c.Name == name && !n.gone(&c) })
	})
}

// gone reports whether only a Subscription shows that something is installed, which OLM does not find any more: it had
// taken the copy of one that another namespace installs for all of them for its own.
func (n *Namespace) gone(c *Installed) bool {
	return c.Spec == nil && slices.ContainsFunc(n.Subscriptions(), func(s *olm.Subscription) bool {
		return s.Status.InstalledCSV == c.Name && s.Status.State == olm.StateUpgradePending
	})
}

// IsCurrent reports whether a Subscription names a plan as its current plan. Approving another one would bring an
// earlier version.
func (n *Namespace) IsCurrent(plan *olm.InstallPlan) bool {
	return slices.ContainsFunc(n.Subscriptions(),
		func(s *olm.Subscription) bool { return s.Status.InstallPlan.Name == plan.Metadata.Name })
}

// Channels returns the channels that the Subscriptions to a package follow.
func (n *Namespace) Channels(pkg string) []string {
	var channels []string
	for _, s := range n.Subscribers(pkg) {
		channels = append(channels, s.Spec.Channel)
	}
	return channels
}

// StepAccounts returns the ServiceAccounts as which OLM may write steps of plans here: those of OperatorGroups, and of
// plans that run.
func (n *Namespace) StepAccounts() []string {
	var accounts []string
	add := func(account string) {
		if account != "" && !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	if n != nil {
		for _, g := range n.Groups() {
			add(g.Spec.ServiceAccount)
		}
	}
	for _, p := range n.Plans() {
		if p.Running() {
			add(p.Status.ServiceAccount.Name)
		}
	}
	slices.Sort(accounts)
	return accounts
}

// Installs reports whether a ClusterServiceVersion is installed in the namespace; what only a Subscription shows is
// not.
func (n *Namespace) Installs(csv string) bool {
	return csv != "" && slices.ContainsFunc(n.Installed(),
		func(c Installed) bool { return c.Name == csv && c.Spec != nil })
}
