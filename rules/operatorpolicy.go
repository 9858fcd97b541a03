package rules

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/rules/window"
)

// RulePolicyUnreadable is about the governing OperatorPolicy, not about the judged object.
const RulePolicyUnreadable verdict.RuleID = "policy/unreadable"

var policyUnreadable = verdict.Rule{ID: RulePolicyUnreadable, Outcomes: verdict.Holds, Override: true, Backstop: true,
	Summary: "the governing policy holds template text or a value that cannot be read, so nothing it governs is let through"}

// OperatorPolicy is one prepared for judging, so that its spec is parsed once and not for each request. It is
// immutable.
type OperatorPolicy struct {
	Namespace, Name string
	// Object is the OperatorPolicy that this was created from; nil if that could not be decoded.
	Object *policyv1beta2.OperatorPolicy
	// Package and TargetNamespace are what the policy governs: the package, by spec.subscription.name, in one
	// namespace, by spec.subscription.namespace. Either is empty if the policy does not set it in plain text; such a
	// policy governs nothing, unless AnyPackage or AnyNamespace is set.
	Package, TargetNamespace string
	// AnyPackage and AnyNamespace are set if the package or the namespace cannot be read: all that it may be is held
	// (threat G5).
	AnyPackage, AnyNamespace bool
	// Enforced policies refuse; the others only warn.
	Enforced bool
	// MustNotHave policies forbid what they match; the others allow only what they match.
	MustNotHave bool
	// Channel, StartingCSV and the parts of Catalog are empty if the policy does not restrict them.
	Channel, StartingCSV string
	Catalog              olm.Catalog
	// ApproveUpgrades is false if the policy holds every upgrade of an installed operator.
	ApproveUpgrades bool
	// HoldDeprecated is set if the policy holds what the catalog deprecates.
	HoldDeprecated bool

	// config is spec.subscription.config.
	config olm.SubscriptionConfig
	// Deletion is whether what the policy governs may be deleted; Allow for a policy that informs.
	Deletion policyv1beta2.DeletionAction

	// consent is which changes need consent; nil for a policy without spec.consent.
	consent *consent
	// catalogImages is which images of catalogs are accepted; nil for a policy without spec.catalog.
	catalogImages *catalogImages
	// calendar is when plans are approved.
	calendar window.Calendar
	// age is how long a catalog has to have offered a version.
	age age
	// maximumWait is how long an upgrade may wait before that is reported; 0 for any time.
	maximumWait time.Duration
	// exceptions are those that can be read, in the order of the spec.
	exceptions exception.List

	// Pending names the Policy, as namespace/name, that has suspended this one until its dependencies are met (R-DP-4);
	// empty if none. While it is set, nothing that the policy governs is approved. Waits is a sentence on what is
	// waited for; empty if that is not known.
	Pending, Waits string

	// Incomplete policies depend on cluster state that was not read yet. Until it is, nothing is done for them.
	Incomplete bool
	// Problems are why the policy could not be completed from cluster state, as full sentences.
	Problems []string

	// completed is set if cluster state was added to the spec.
	completed    bool
	versions     versionList
	versionRange *olm.VersionRange
	// faults are why the policy cannot be judged by. While there are any, what it governs is held: an unreadable policy
	// must not open the gate.
	faults string
	// invalid are the fields with values that are not valid. While there are any, the loop does not act for the policy,
	// even if it can be judged by.
	invalid field.ErrorList
	source  string
}

// NewOperatorPolicy prepares an OperatorPolicy for judging. It is total: it keeps whatever it cannot read as a fault.
func NewOperatorPolicy(op *policyv1beta2.OperatorPolicy) *OperatorPolicy {
	spec := &op.Spec
	sub := &spec.Subscription
	p := &OperatorPolicy{
		Namespace:       op.Namespace,
		Name:            op.Name,
		Object:          op,
		Package:         operatorpolicy.UnlessTemplate(sub.Name),
		TargetNamespace: operatorpolicy.UnlessTemplate(sub.Namespace),
		Enforced:        spec.IsEnforced(),
		MustNotHave:     spec.IsMustNotHave(),
		Channel:         sub.Channel,
		Catalog:         olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source},
		StartingCSV:     sub.StartingCSV,
		ApproveUpgrades: spec.EffectiveUpgradeApproval() == policyv1beta2.UpgradeApprovalAutomatic,
		HoldDeprecated:  spec.Deprecated == policyv1beta2.DeprecatedHold,
		config:          newPolicyConfig(op),
		Deletion:        spec.EffectiveDeletion(),
		consent:         newConsent(spec.Consent),
		catalogImages:   newCatalogImages(spec.Catalog),
		versions:        newVersionList(spec.Versions),
		Pending:         op.Annotations[dependency.AnnotationPending],
		Incomplete:      operatorpolicy.DependsOnCluster(op),
		source:          "OperatorPolicy " + op.Namespace + "/" + op.Name,
	}
	var faults []string
	p.invalid = operatorpolicy.ValidateGate(op)
	p.calendar, _ = operatorpolicy.NewCalendar(spec) // ValidateGate has the faults
	p.age = newAge(spec)
	p.maximumWait, _ = operatorpolicy.Age(spec.MaximumWait) // ValidateRest has the fault
	for _, err := range p.invalid {
		faults = append(faults, err.Field+" is not valid")
	}
	for _, path := range operatorpolicy.TemplatedFields(op) {
		faults = append(faults, path+" holds template text that has not been resolved")
	}
	p.faults = strings.Join(faults, "; ")
	if sub.Name == "" {
		p.Widen(true, sub.Namespace == "")
	}
	p.invalid = append(p.invalid, operatorpolicy.ValidateRest(op)...)
	var errs field.ErrorList
	p.exceptions, errs = newExceptions(op)
	p.invalid = append(p.invalid, errs...)
	if spec.VersionRange != "" && p.faults == "" {
		p.versionRange, _ = olm.ParseVersionRange(spec.VersionRange) // ValidateGate has parsed it without a fault
	}
	return p
}

// UnreadableOperatorPolicy represents a stored policy that does not decode: it holds what it governs, and all that it
// may govern as far as that is not known. Spec has the parts of it that are known.
func UnreadableOperatorPolicy(
	namespace, name string, spec *policyv1beta2.OperatorPolicySpec, cause error,
) *OperatorPolicy {
	p := &OperatorPolicy{
		Namespace:       namespace,
		Name:            name,
		TargetNamespace: operatorpolicy.UnlessTemplate(spec.Subscription.Namespace),
		Package:         operatorpolicy.UnlessTemplate(spec.Subscription.Name),
		Enforced:        spec.RemediationAction == "" || spec.IsEnforced(),
		Deletion:        spec.EffectiveDeletion(),
		faults:          cause.Error(),
		source:          "OperatorPolicy " + namespace + "/" + name,
	}
	p.Widen(p.Package == "", p.TargetNamespace == "")
	return p
}

// Widen makes a policy that cannot be read hold every package, or in every namespace, or both. It is called before the
// policy is used.
func (p *OperatorPolicy) Widen(packages, namespaces bool) {
	if p.AnyPackage, p.AnyNamespace = packages, namespaces; packages || namespaces {
		p.Incomplete = false
		p.faults += "; until then it holds " + p.Target()
	}
}

// Target returns what the policy governs: the package and the namespace.
func (p *OperatorPolicy) Target() string {
	namespace := "namespace " + text.Name(p.TargetNamespace)
	if p.AnyNamespace {
		namespace = "every namespace"
	}
	return p.packages() + " in " + namespace
}

func (p *OperatorPolicy) packages() string {
	if p.AnyPackage {
		return "every package"
	}
	return "package " + text.Name(p.Package)
}

// Reference returns the policy as the API refers to it.
func (p *OperatorPolicy) Reference() *corev1.ObjectReference { return p.ref().Reference() }

// Unreadable returns why nothing that the policy governs is let through; "" if the policy can be judged by.
func (p *OperatorPolicy) Unreadable() string { return p.faults }

// Concerns returns the one namespace in which the policy governs something, or "" if it governs nothing, or something
// in every namespace.
func (p *OperatorPolicy) Concerns() string {
	if p.Package == "" && !p.AnyPackage || p.AnyNamespace {
		return ""
	}
	return p.TargetNamespace
}

// Governs reports whether the policy governs a package in the namespaces that it is about.
func (p *OperatorPolicy) Governs(pkg string) bool {
	return pkg != "" && (p.AnyPackage || p.Package == pkg)
}

// suspendedBy returns the policy as one that a Policy suspends, whatever its annotations are. An empty name changes
// nothing.
func (p *OperatorPolicy) suspendedBy(policy, waits string) *OperatorPolicy {
	if policy == "" {
		return p
	}
	suspended := *p
	suspended.Pending, suspended.Waits = policy, waits
	return &suspended
}

// Source returns the policy's name as used in reasons.
func (p *OperatorPolicy) Source() string { return p.source }

// key identifies policies and orders them.
func (p *OperatorPolicy) key() string { return p.Namespace + "/" + p.Name }

// restrictsVersions reports whether the policy allows only some versions of the package.
func (p *OperatorPolicy) restrictsVersions() bool {
	return len(p.versions.entries) > 0 || p.versionRange != nil || p.faults != ""
}

// Approval returns the installPlanApproval that a Subscription under this policy must have in a namespace, and why.
// With Automatic OLM approves by itself, so it is right only if every version and every upgrade is allowed (R-OP-11).
func (p *OperatorPolicy) Approval(ns *Namespace) (mode, because string) {
	if because, manual := p.wantsManual(); manual {
		return olm.ApprovalManual, because
	}
	if ns.constrained() || ns != nil && ns.judging != nil {
		return olm.ApprovalManual, ns.judgeText()
	}
	if c := ns.notUpgradeable(p.Package, ""); c != nil {
		return olm.ApprovalManual, text.Name(c.CSV) + " is not upgradeable now"
	}
	return olm.ApprovalAutomatic, "spec.upgradeApproval is Automatic and every version is allowed"
}

// judgesPlans reports whether a policy has to judge every plan of its namespace, since any of them may bring the
// package as a dependency (threat O52). It is known only once the policy is completed.
func (p *OperatorPolicy) judgesPlans() bool {
	_, manual := p.wantsManual()
	return p.Enforced && !p.Incomplete && (p.Package != "" || p.AnyPackage) && manual
}

// judgedPart is a part of a policy for which its plans have to be judged.
type judgedPart struct {
	is func(*OperatorPolicy) bool
	// because says what it is.
	because string
	// named is set if it depends on nothing but the name of a ClusterServiceVersion.
	named bool
}

// judgedParts are all of them: with one, in any namespace, OLM must not approve by itself. A field that may hold plans
// stands here and nowhere else.
var judgedParts = []judgedPart{
	{func(p *OperatorPolicy) bool { return p.faults != "" }, "the policy cannot be read", false},
	{func(p *OperatorPolicy) bool { return p.Pending != "" }, "the policy waits for what it depends on", false},
	{func(p *OperatorPolicy) bool { return len(p.versions.entries) > 0 }, "spec.versions is set", true},
	{func(p *OperatorPolicy) bool { return p.versionRange != nil }, "spec.versionRange is set", false},
	{func(p *OperatorPolicy) bool { return p.MustNotHave }, "the policy is mustnothave", false},
	{func(p *OperatorPolicy) bool { return !p.ApproveUpgrades }, "spec.upgradeApproval is not Automatic", false},
	{func(p *OperatorPolicy) bool { return p.HoldDeprecated }, "spec.deprecated is Hold", false},
	{func(p *OperatorPolicy) bool { return p.consent.holds() }, "spec.consent holds changes", false},
	{func(p *OperatorPolicy) bool { return p.catalogImages.holds() }, "spec.catalog holds plans", false},
	{func(p *OperatorPolicy) bool { return p.calendar.Restricts() }, "spec.approvalWindows or spec.freezes is set",
		false},
	{func(p *OperatorPolicy) bool { return p.age.holds() }, "spec.minimumAge is set", false},
}

// wantsManual reports whether the policy alone, in any namespace, wants installPlanApproval Manual, and why.
func (p *OperatorPolicy) wantsManual() (because string, manual bool) {
	for i := range judgedParts {
		if judgedParts[i].is(p) {
			return judgedParts[i].because, true
		}
	}
	return "", false
}

// BindsContents reports whether spec.versions lists a ClusterServiceVersion for certain contents only, by the digest of
// its bundle image.
func (p *OperatorPolicy) BindsContents(csv string) bool { return p.versions.binds(csv) }

// mayBring reports whether the policy allows a ClusterServiceVersion with some contents, as far as its name says.
func (p *OperatorPolicy) mayBring(csv string) bool {
	return len(p.versions.entries) == 0 || p.versions.lists(csv) || p.versions.binds(csv) || p.namesStart(csv)
}

// namesStart reports whether the policy's own startingCSV is this one; that version is always allowed (R-OP-8), but
// only with the contents that spec.versions binds it to, if it does. The Subscription's startingCSV never counts.
func (p *OperatorPolicy) namesStart(csv string) bool {
	return p.StartingCSV != "" && p.StartingCSV == csv
}

// acceptedVersions returns the end of a refusal: which versions would be allowed.
func (p *OperatorPolicy) acceptedVersions() string {
	names := p.versions.entries
	if p.StartingCSV != "" && !p.versions.lists(p.StartingCSV) && !p.versions.binds(p.StartingCSV) {
		names = append(names[:len(names):len(names)], p.StartingCSV)
	}
	if len(names) == 1 {
		return "allowed is " + names[0]
	}
	return "allowed are " + text.Names(names, verdict.MaxListed)
}

// catalogMismatch reports whether a catalog differs from the one that the policy names.
func (p *OperatorPolicy) catalogMismatch(c olm.Catalog) bool {
	return p.Catalog.Name != "" && p.Catalog.Name != c.Name || p.Catalog.Namespace != "" &&
		p.Catalog.Namespace != c.Namespace
}

// AllowsCatalog reports whether a catalog matches the one that the policy names, if it names one.
func (p *OperatorPolicy) AllowsCatalog(c olm.Catalog) bool { return !p.catalogMismatch(c) }

// catalogText returns the policy's catalog as far as the policy names it.
func (p *OperatorPolicy) catalogText() string {
	switch {
	case p.Catalog.Namespace == "":
		return "catalog " + p.Catalog.Name
	case p.Catalog.Name == "":
		return "any catalog in namespace " + p.Catalog.Namespace
	}
	return "catalog " + p.Catalog.Namespace + "/" + p.Catalog.Name
}

// Covers reports whether a musthave policy wants a ClusterServiceVersion of its package to be installed; if not,
// accepted is what it wants instead. What is installed does not show its digest, so the name decides. Exceptions count
// at the time now.
func (p *OperatorPolicy) Covers(csv, version string, now time.Time) (ok bool, accepted string) {
	c := &Bundle{name: csv, version: version}
	listed := p.MustNotHave || p.faults != "" || p.mayBring(csv) || p.exceptedName(csv, RuleBundleVersion, now)
	if listed && (outOfRangeCSV(c, p).Silent() || p.exceptedName(csv, RuleBundleVersionRange, now)) {
		return true, ""
	}
	return false, p.acceptance()
}

// Forbids reports whether a mustnothave policy matches a ClusterServiceVersion of its package; known is false if that
// depends on a version or catalog that is not known (zero), or on the digest of its bundle image. Exceptions count at
// the time now.
func (p *OperatorPolicy) Forbids(csv, version string, catalog olm.Catalog, now time.Time) (match, known bool) {
	if p.exceptedName(csv, RuleBundleMustNotHave, now) {
		return false, true
	}
	c := &Bundle{name: csv, version: version}
	c.from(catalog)
	return p.matches(c)
}

// unreadable holds what a policy with faults governs.
func unreadable(p *OperatorPolicy, governed string) verdict.Finding {
	if p.faults == "" {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: governed + " is held",
		Accepted: "waits until the policy can be read: " + p.faults}
}
