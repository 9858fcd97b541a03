package state

import (
	"github.com/opgate/opgate/olm"
)

// NameRules are what an OperatorPolicy demands of a ClusterServiceVersion of its package by name and version alone: the
// part of its rules that needs no other object. What they refuse, JudgePlan refuses.
type NameRules struct {
	// Unreadable and Pending policies hold everything; Pending ones only plans.
	Unreadable, Pending bool
	// Manual is set if the policy alone wants spec.installPlanApproval: Manual of a Subscription.
	Manual bool
	// Allow and Forbid say what Names and Range are: the only ones allowed, or the ones forbidden. Neither is set if
	// the policy refuses nothing by name and version. Unreadable policies have neither.
	Allow, Forbid bool
	// Names restrict the name; empty for no restriction. A name that is listed with a digest is allowed here, and not
	// forbidden: the digest is not known by name.
	Names []string
	// Start is the name that is allowed in any case.
	Start string
	// Range restricts the version; nil for no restriction.
	Range *olm.VersionRange
}

// NameRules returns the rules of the policy on names and versions.
func (p *OperatorPolicy) NameRules() NameRules {
	_, manual := p.wantsManual()
	r := NameRules{Unreadable: p.faults != "", Pending: p.Pending != "", Manual: manual}
	switch {
	case r.Unreadable:
		return r
	case p.MustNotHave:
		r.Names, r.Range = p.Versions.plainNames(), p.VersionRange
		// else it depends on the catalog, or on digests
		r.Forbid = p.Catalog == olm.Catalog{} && (len(r.Names) > 0 || len(p.Versions.Entries) == 0)
	default:
		r.Names, r.Range = p.Versions.names(), p.VersionRange
		r.Allow, r.Start = len(r.Names) > 0 || r.Range != nil, p.StartingCSV
	}
	if !r.Allow && !r.Forbid {
		r.Names, r.Range = nil, nil
	}
	return r
}
