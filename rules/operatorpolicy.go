package rules

import (
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// RulePolicyUnreadable is about the OperatorPolicy that should judge, and not about the object.
const RulePolicyUnreadable RuleID = "policy/unreadable"

var policyUnreadable = Rule{RulePolicyUnreadable, OutcomeHold, "the governing policy holds template text or a value that cannot be read, so nothing it governs is let through"}

// Policy is an OperatorPolicy made ready for judging: everything that judging would otherwise parse again
// for each request. It is immutable.
type Policy struct {
	Namespace, Name string
	// Object is the OperatorPolicy that this was made from; nil where that could not be decoded.
	Object *policyv1beta2.OperatorPolicy
	// Package and TargetNamespace say what the policy governs: the package, by spec.subscription.name, in
	// one namespace, by spec.subscription.namespace. Either is empty where the policy does not say it in
	// plain text; such a policy governs nothing until it does.
	Package, TargetNamespace string
	// Enforced policies refuse; the others only warn.
	Enforced bool
	// MustNotHave policies forbid what they match; the others allow what they match and nothing else.
	MustNotHave bool
	// Channel, StartingCSV and the parts of Catalog are empty where the policy leaves them open.
	Channel, StartingCSV string
	Catalog              olm.Catalog
	// ApproveUpgrades is false where the policy holds every upgrade of an installed operator.
	ApproveUpgrades bool

	// Pending names the Policy, as namespace/name, that has suspended this one until its dependencies are met (seed
	// 003); empty for none. While it is set nothing that the policy governs is approved.
	Pending string

	// Incomplete policies depend on what is on the cluster, and were not completed from it yet. What they
	// mean is not known, so nothing is done for them.
	Incomplete bool
	// Problems are why the policy could not be completed from what is on the cluster, as whole sentences.
	Problems []string

	// completed is set where the policy means more than its spec says.
	completed    bool
	versions     []string
	listed       map[string]struct{}
	versionRange *olm.VersionRange
	// faults are why the policy cannot be judged by. While there are any, what it governs is held: a policy
	// that cannot be read must not open the gate.
	faults string
	// invalid is why nothing may be done for the policy although it can be judged by: another part of its
	// spec is wrong.
	invalid string
	source  string
}

// NewPolicy makes an OperatorPolicy ready for judging. It is total: what it cannot read it keeps as a fault.
func NewPolicy(op *policyv1beta2.OperatorPolicy) *Policy {
	spec := &op.Spec
	sub := &spec.Subscription
	p := &Policy{
		Namespace:       op.Namespace,
		Name:            op.Name,
		Object:          op,
		Package:         plainText(sub.Name),
		TargetNamespace: plainText(sub.Namespace),
		Enforced:        spec.IsEnforced(),
		MustNotHave:     spec.IsMustNotHave(),
		Channel:         sub.Channel,
		Catalog:         olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source},
		StartingCSV:     sub.StartingCSV,
		ApproveUpgrades: spec.EffectiveUpgradeApproval() == policyv1beta2.UpgradeApprovalAutomatic,
		versions:        SplitVersions(spec.Versions),
		Pending:         op.Annotations[dependency.AnnotationPending],
		Incomplete:      DependsOnCluster(op),
		source:          "OperatorPolicy " + op.Namespace + "/" + op.Name,
	}
	p.listed = make(map[string]struct{}, len(p.versions))
	for _, name := range p.versions {
		p.listed[name] = struct{}{}
	}
	var faults []string
	for _, err := range validateGate(op) {
		faults = append(faults, err.Field+" is not valid")
	}
	for _, field := range templatedFields(op) {
		faults = append(faults, field+" holds template text that has not been resolved")
	}
	p.faults = strings.Join(faults, "; ")
	if errs := validateRest(op); len(errs) > 0 {
		p.invalid = errs[0].Error()
	}
	if spec.VersionRange != "" && p.faults == "" {
		p.versionRange, _ = olm.ParseVersionRange(spec.VersionRange) // validateGate has parsed it without a fault
	}
	return p
}

// UnreadablePolicy stands for a stored policy that does not decode: it holds what it governs, as far as that
// can be told.
func UnreadablePolicy(namespace, name, targetNamespace, pkg string, cause error) *Policy {
	return &Policy{
		Namespace: namespace, Name: name, TargetNamespace: plainText(targetNamespace), Package: plainText(pkg),
		Enforced: true, faults: cause.Error(), source: "OperatorPolicy " + namespace + "/" + name,
	}
}

// CompletedPolicy makes a policy ready for judging that was completed from what is on the cluster. Problems,
// whole sentences, are why that did not succeed in full; while there are any, what it governs is held.
func CompletedPolicy(op *policyv1beta2.OperatorPolicy, problems []string) *Policy {
	p := NewPolicy(op)
	p.Problems, p.Incomplete, p.completed = problems, false, true
	if p.faults != "" && len(problems) > 0 {
		p.faults += "; "
	}
	p.faults += strings.Join(problems, "; ")
	return p
}

// Concerns is the namespace in which the policy governs something, or "" for a policy that governs nothing.
func (p *Policy) Concerns() string {
	if p.Package == "" {
		return ""
	}
	return p.TargetNamespace
}

// Source names the policy as reasons do.
func (p *Policy) Source() string { return p.source }

// key orders and identifies policies.
func (p *Policy) key() string { return p.Namespace + "/" + p.Name }

// restrictsVersions reports whether some versions of the package are let through and others are not.
func (p *Policy) restrictsVersions() bool {
	return len(p.versions) > 0 || p.versionRange != nil || p.faults != ""
}

// Approval is the installPlanApproval that a Subscription under this policy must have in a namespace, and why.
// Automatic lets OLM approve by itself, so it is right only where every version and every upgrade may pass
// (R-OP-11).
func (p *Policy) Approval(ns *Namespace) (mode, because string) {
	switch {
	case p.faults != "":
		return olm.ApprovalManual, "the policy cannot be read"
	case p.Pending != "":
		return olm.ApprovalManual, "the policy waits for what it depends on"
	case len(p.versions) > 0:
		return olm.ApprovalManual, "spec.versions is set"
	case p.versionRange != nil:
		return olm.ApprovalManual, "spec.versionRange is set"
	case p.MustNotHave:
		return olm.ApprovalManual, "the policy is mustnothave"
	case !p.ApproveUpgrades:
		return olm.ApprovalManual, "spec.upgradeApproval is not Automatic"
	case ns.constrained():
		return olm.ApprovalManual, ns.applicableText()
	}
	return olm.ApprovalAutomatic, "spec.upgradeApproval is Automatic and every version is allowed"
}

// lists reports whether spec.versions names a ClusterServiceVersion. Names are compared byte by byte: a
// look-alike is another name (threat O11).
func (p *Policy) lists(csv string) bool {
	_, ok := p.listed[csv]
	return ok
}

// namesStart reports whether the policy's own startingCSV is this one; that version is always allowed
// (R-OP-8). The Subscription's startingCSV never counts.
func (p *Policy) namesStart(csv string) bool { return p.StartingCSV != "" && p.StartingCSV == csv }

// acceptedVersions is the end of a refusal: which versions would be let through.
func (p *Policy) acceptedVersions() string {
	names := p.versions
	if p.StartingCSV != "" && !p.lists(p.StartingCSV) {
		names = append(names[:len(names):len(names)], p.StartingCSV)
	}
	if len(names) == 1 {
		return "allowed is " + names[0]
	}
	return "allowed are " + text.Names(names, maxListed)
}

// catalogMismatch reports whether a catalog is another one than the policy names.
func (p *Policy) catalogMismatch(c olm.Catalog) bool {
	return p.Catalog.Name != "" && p.Catalog.Name != c.Name || p.Catalog.Namespace != "" && p.Catalog.Namespace != c.Namespace
}

// AllowsCatalog reports whether a catalog is the one that the policy names, as far as it names one.
func (p *Policy) AllowsCatalog(c olm.Catalog) bool { return !p.catalogMismatch(c) }

// catalogText names the policy's catalog as far as the policy does.
func (p *Policy) catalogText() string {
	switch {
	case p.Catalog.Namespace == "":
		return "catalog " + p.Catalog.Name
	case p.Catalog.Name == "":
		return "any catalog in namespace " + p.Catalog.Namespace
	}
	return "catalog " + p.Catalog.Namespace + "/" + p.Catalog.Name
}

// isTemplate tells template text, which the policy framework resolves on the cluster, from plain values.
func isTemplate(s string) bool { return strings.Contains(s, "{{") }

func plainText(s string) string {
	if isTemplate(s) {
		return ""
	}
	return s
}

// Covers reports whether a musthave policy wants a ClusterServiceVersion of its package to be installed; if
// not, accepted says what it wants instead.
func (p *Policy) Covers(csv, version string) (ok bool, accepted string) {
	c := &planCSV{name: csv, version: version}
	if unlistedCSV(c, p).silent() && outOfRangeCSV(c, p).silent() {
		return true, ""
	}
	return false, p.acceptance()
}

// Forbids reports whether a mustnothave policy means a ClusterServiceVersion of its package; known is false
// where it might, but version or catalog, zero where they are not known, are needed to tell.
func (p *Policy) Forbids(csv, version string, catalog olm.Catalog) (match, known bool) {
	c := &planCSV{name: csv, version: version}
	c.from(catalog)
	return p.matches(c)
}

// unreadable holds what a policy with faults governs.
func unreadable(p *Policy, governed string) finding {
	if p.faults == "" {
		return finding{}
	}
	return finding{decision: Hold, what: governed + " is held", accepted: "waits until the policy can be read: " + p.faults}
}
