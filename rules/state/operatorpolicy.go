package state

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

	// Config is spec.subscription.config.
	Config olm.SubscriptionConfig
	// Deletion is whether what the policy governs may be deleted; Allow for a policy that informs.
	Deletion policyv1beta2.DeletionAction

	// Consent is which changes need consent; nil for a policy without spec.consent.
	Consent *Consent
	// CatalogImages is which images of catalogs are accepted; nil for a policy without spec.catalog.
	CatalogImages *CatalogImages
	// Calendar is when plans are approved.
	Calendar window.Calendar
	// Age is how long a catalog has to have offered a version.
	Age Age
	// MaximumWait is how long an upgrade may wait before that is reported; 0 for any time.
	MaximumWait time.Duration
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
	Versions     VersionList
	VersionRange *olm.VersionRange
	// faults are why the policy cannot be judged by. While there are any, what it governs is held: an unreadable policy
	// must not open the gate.
	faults string
	// Invalid are the fields with values that are not valid. While there are any, the loop does not act for the policy,
	// even if it can be judged by.
	Invalid field.ErrorList
	source  string
}

// NewOperatorPolicy prepares an OperatorPolicy for judging; exceptable are the IDs of the rules that its exceptions may
// name. It is total: it keeps whatever it cannot read as a fault.
func NewOperatorPolicy(op *policyv1beta2.OperatorPolicy, exceptable []string) *OperatorPolicy {
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
		Config:          newPolicyConfig(op),
		Deletion:        spec.EffectiveDeletion(),
		Consent:         newConsent(spec.Consent),
		CatalogImages:   newCatalogImages(spec.Catalog),
		Versions:        newVersionList(spec.Versions),
		Pending:         op.Annotations[dependency.AnnotationPending],
		Incomplete:      operatorpolicy.DependsOnCluster(op),
		source:          "OperatorPolicy " + op.Namespace + "/" + op.Name,
	}
	var faults []string
	p.Invalid = operatorpolicy.ValidateGate(op)
	p.Calendar, _ = operatorpolicy.NewCalendar(spec) // ValidateGate has the faults
	p.Age = newAge(spec)
	p.MaximumWait, _ = operatorpolicy.Age(spec.MaximumWait) // ValidateRest has the fault
	for _, err := range p.Invalid {
		faults = append(faults, err.Field+" is not valid")
	}
	for _, path := range operatorpolicy.TemplatedFields(op) {
		faults = append(faults, path+" holds template text that has not been resolved")
	}
	p.faults = strings.Join(faults, "; ")
	if sub.Name == "" {
		p.Widen(true, sub.Namespace == "")
	}
	p.Invalid = append(p.Invalid, operatorpolicy.ValidateRest(op)...)
	var errs field.ErrorList
	p.exceptions, errs = ReadExceptions(op, exceptable)
	p.Invalid = append(p.Invalid, errs...)
	if spec.VersionRange != "" && p.faults == "" {
		p.VersionRange, _ = olm.ParseVersionRange(spec.VersionRange) // ValidateGate has parsed it without a fault
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
	return p.PackageText() + " in " + namespace
}

// PackageText names the package that the policy governs, or states that it is every one.
func (p *OperatorPolicy) PackageText() string {
	if p.AnyPackage {
		return "every package"
	}
	return "package " + text.Name(p.Package)
}

// Reference returns the policy as the API refers to it.
func (p *OperatorPolicy) Reference() *corev1.ObjectReference { return p.Ref().Reference() }

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

// SuspendedBy returns the policy as one that a Policy suspends, whatever its annotations are. An empty name changes
// nothing.
func (p *OperatorPolicy) SuspendedBy(policy, waits string) *OperatorPolicy {
	if policy == "" {
		return p
	}
	suspended := *p
	suspended.Pending, suspended.Waits = policy, waits
	return &suspended
}

// Source returns the policy's name as used in reasons.
func (p *OperatorPolicy) Source() string { return p.source }

// Key identifies policies and orders them.
func (p *OperatorPolicy) Key() string { return p.Namespace + "/" + p.Name }

// RestrictsVersions reports whether the policy allows only some versions of the package.
func (p *OperatorPolicy) RestrictsVersions() bool {
	return len(p.Versions.Entries) > 0 || p.VersionRange != nil || p.faults != ""
}

// BindsContents reports whether spec.versions lists a ClusterServiceVersion for certain contents only, by the digest of
// its bundle image.
func (p *OperatorPolicy) BindsContents(csv string) bool { return p.Versions.Binds(csv) }

// MayBring reports whether the policy allows a ClusterServiceVersion with some contents, as far as its name says.
func (p *OperatorPolicy) MayBring(csv string) bool {
	return len(p.Versions.Entries) == 0 || p.Versions.Lists(csv) || p.Versions.Binds(csv) || p.NamesStart(csv)
}

// NamesStart reports whether the policy's own startingCSV is this one; that version is always allowed (R-OP-8), but
// only with the contents that spec.versions binds it to, if it does. The Subscription's startingCSV never counts.
func (p *OperatorPolicy) NamesStart(csv string) bool {
	return p.StartingCSV != "" && p.StartingCSV == csv
}

// AcceptedVersions returns the end of a refusal: which versions would be allowed.
func (p *OperatorPolicy) AcceptedVersions() string {
	names := p.Versions.Entries
	if p.StartingCSV != "" && !p.Versions.Lists(p.StartingCSV) && !p.Versions.Binds(p.StartingCSV) {
		names = append(names[:len(names):len(names)], p.StartingCSV)
	}
	if len(names) == 1 {
		return "allowed is " + names[0]
	}
	return "allowed are " + text.Names(names, verdict.MaxListed)
}

// AllowsCatalog reports whether a catalog is the one that the policy names, as far as it names one.
func (p *OperatorPolicy) AllowsCatalog(c olm.Catalog) bool {
	return (p.Catalog.Name == "" || p.Catalog.Name == c.Name) &&
		(p.Catalog.Namespace == "" || p.Catalog.Namespace == c.Namespace)
}

// CatalogText returns the policy's catalog as far as the policy names it.
func (p *OperatorPolicy) CatalogText() string {
	switch {
	case p.Catalog.Namespace == "":
		return "catalog " + p.Catalog.Name
	case p.Catalog.Name == "":
		return "any catalog in namespace " + p.Catalog.Namespace
	}
	return "catalog " + p.Catalog.Namespace + "/" + p.Catalog.Name
}
