package operatorpolicy

import (
	"slices"

	"github.com/opgate/opgate/olm"
)

// JudgesPlans reports whether a policy has to judge every plan of its namespace, since any of them may bring the
// package as a dependency. It is known only once the policy is completed.
func (p *Policy) JudgesPlans() bool {
	_, manual := p.WantsManual()
	return p.Enforced && !p.Incomplete && (p.Package != "" || p.AnyPackage) && manual
}

// judgedPart is a part of a policy for which its plans have to be judged.
type judgedPart struct {
	is func(*Policy) bool
	// because names it.
	because string
	// named is set if it depends on nothing but the name of a ClusterServiceVersion.
	named bool
}

// judgedParts are all of them: with one, in any namespace, OLM must not approve by itself. A field that may hold plans
// is listed here and nowhere else.
var judgedParts = []judgedPart{
	{func(p *Policy) bool { return p.faults != "" }, "the policy cannot be read", false},
	{func(p *Policy) bool { return p.Pending != "" }, "the policy waits for what it depends on", false},
	{func(p *Policy) bool { return len(p.Versions.Entries) > 0 }, "spec.versions is set", true},
	{func(p *Policy) bool { return p.VersionRange != nil }, "spec.versionRange is set", false},
	{func(p *Policy) bool { return p.MustNotHave }, "the policy is mustnothave", false},
	{func(p *Policy) bool { return !p.ApproveUpgrades }, "spec.upgradeApproval is not Automatic", false},
	{func(p *Policy) bool { return p.HoldDeprecated }, "spec.deprecated is Hold", false},
	{func(p *Policy) bool { return p.Consent.Holds() }, "spec.consent holds changes", false},
	{func(p *Policy) bool { return p.CatalogImages.Holds() }, "spec.catalog holds plans", false},
	{func(p *Policy) bool { return p.Calendar.Restricts() }, "spec.approvalWindows or spec.freezes is set",
		false},
	{func(p *Policy) bool { return p.Age.Holds() }, "spec.minimumAge is set", false},
}

// WantsManual reports whether the policy alone, in any namespace, wants installPlanApproval Manual, and why.
func (p *Policy) WantsManual() (because string, manual bool) {
	for i := range judgedParts {
		if judgedParts[i].is(p) {
			return judgedParts[i].because, true
		}
	}
	return "", false
}

// PassesByName reports whether a policy allows a CSV by its name alone, and so with any contents.
func (p *Policy) PassesByName(csv string) bool {
	if slices.ContainsFunc(judgedParts, func(part judgedPart) bool { return !part.named && part.is(p) }) {
		return false
	}
	return p.Catalog == (olm.Catalog{}) && !p.Versions.Binds(csv) && (p.Versions.Lists(csv) || p.NamesStart(csv))
}

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
func (p *Policy) NameRules() NameRules {
	_, manual := p.WantsManual()
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
