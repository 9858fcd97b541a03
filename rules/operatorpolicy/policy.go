// Package operatorpolicy parses OperatorPolicies: once, when one is decoded, into a Policy and its faults. It also reads
// the exceptions that policies and Constraints have. It knows no cluster and judges nothing else.
package operatorpolicy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/rules/window"
)

// Policy is an OperatorPolicy prepared for judging, so that its spec is parsed once and not for each request. It is
// immutable.
type Policy struct {
	Namespace, Name string
	// Object is the OperatorPolicy that this was created from; nil if that could not be decoded.
	Object *policyv1beta2.OperatorPolicy
	// Package and TargetNamespace are what the policy governs: the package, by spec.subscription.name, in one
	// namespace, by spec.subscription.namespace. Either is empty if the policy does not set it in plain text; such a
	// policy governs nothing, unless AnyPackage or AnyNamespace is set.
	Package, TargetNamespace string
	// AnyPackage and AnyNamespace are set if the package or the namespace cannot be read: all that it may be is held.
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

	// Config is spec.subscription.config, read and as it is written.
	Config olm.SubscriptionConfig
	// Deletion is whether what the policy governs may be deleted; Allow for a policy that informs.
	Deletion policyv1beta2.DeletionAction

	// Group is the OperatorGroup that the policy names; nil for none.
	Group *Group
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
	// exceptions are those that can be read, in the order of the spec; exceptable are the rules that they may name.
	exceptions Exceptions
	exceptable []string

	// Pending names the Policy, as namespace/name, that has suspended this one until its dependencies are met;
	// empty if none. While it is set, nothing that the policy governs is approved. Waits is a sentence on what is
	// waited for; empty if that is not known.
	Pending, Waits string

	// Incomplete policies depend on cluster state that was not read yet. Until it is, nothing is done for them.
	Incomplete bool
	// Problems are why the policy could not be completed from cluster state, as full sentences.
	Problems []string
	// IsCompleted is set if cluster state was added to the spec.
	IsCompleted bool

	Versions     VersionList
	VersionRange *olm.VersionRange
	// faults are why the policy cannot be judged by. While there are any, what it governs is held: an unreadable policy
	// must not open the gate.
	faults string
	// Invalid are the fields with values that are not valid. While there are any, the loop does not act for the policy,
	// even if it can be judged by.
	Invalid field.ErrorList
}

// Unreadable represents a stored policy that does not decode: it holds what it governs, and all that it may govern as
// far as that is not known. Spec has the parts of it that are known.
func Unreadable(namespace, name string, spec *policyv1beta2.OperatorPolicySpec, cause error) *Policy {
	p := &Policy{
		Namespace:       namespace,
		Name:            name,
		TargetNamespace: unlessTemplate(spec.Subscription.Namespace),
		Package:         unlessTemplate(spec.Subscription.Name),
		Enforced:        spec.RemediationAction == "" || spec.IsEnforced(),
		Deletion:        spec.EffectiveDeletion(),
		faults:          cause.Error(),
	}
	p.Widen(p.Package == "", p.TargetNamespace == "")
	return p
}

// Widen makes a policy that cannot be read hold every package, or in every namespace, or both. It is called before the
// policy is used.
func (p *Policy) Widen(packages, namespaces bool) {
	if p.AnyPackage, p.AnyNamespace = packages, namespaces; packages || namespaces {
		p.Incomplete = false
		p.faults += "; until then it holds " + p.Target()
	}
}

// MarkCompleted records that the policy needs nothing more of the cluster, and problems, full sentences, for which it
// holds what it governs. It is called before the policy is used.
func (p *Policy) MarkCompleted(problems []string) {
	p.Problems, p.Incomplete, p.IsCompleted = problems, false, true
	p.hold(problems...)
}

// hold adds faults.
func (p *Policy) hold(faults ...string) {
	if p.faults != "" {
		faults = slices.Insert(slices.Clone(faults), 0, p.faults)
	}
	p.faults = strings.Join(faults, "; ")
}

// Target returns what the policy governs: the package and the namespace.
func (p *Policy) Target() string {
	namespace := "namespace " + text.Name(p.TargetNamespace)
	if p.AnyNamespace {
		namespace = "every namespace"
	}
	return p.PackageText() + " in " + namespace
}

// PackageText names the package that the policy governs, or states that it is every one.
func (p *Policy) PackageText() string {
	if p.AnyPackage {
		return "every package"
	}
	return "package " + text.Name(p.Package)
}

// Ref returns the policy as the source of a reason.
func (p *Policy) Ref() verdict.PolicyRef {
	return verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}
}

// Origin returns the policy as what something is in a table for.
func (p *Policy) Origin() fair.Origin {
	o := fair.Origin{Namespace: p.Namespace, Name: p.Name}
	if p.Object != nil {
		o.UID = string(p.Object.UID)
		if !p.Object.CreationTimestamp.IsZero() {
			o.Created = p.Object.CreationTimestamp.Unix()
		}
	}
	return o
}

// Record records a finding of a policy in a verdict.
func (p *Policy) Record(v *verdict.Verdict, id verdict.RuleID, f verdict.Finding) {
	v.Record(id, p.Ref(), p.Enforced, f)
}

// Unreadable returns why nothing that the policy governs is let through; "" if the policy can be judged by.
func (p *Policy) Unreadable() string { return p.faults }

// Concerns returns the one namespace in which the policy governs something, or "" if it governs nothing, or something
// in every namespace.
func (p *Policy) Concerns() string {
	if p.Package == "" && !p.AnyPackage || p.AnyNamespace {
		return ""
	}
	return p.TargetNamespace
}

// Governs reports whether the policy governs a package in the namespaces that it is about.
func (p *Policy) Governs(pkg string) bool {
	return pkg != "" && (p.AnyPackage || p.Package == pkg)
}

// SuspendedBy returns the policy as one that a Policy suspends, whatever its annotations are. An empty name changes
// nothing.
func (p *Policy) SuspendedBy(policy, waits string) *Policy {
	if policy == "" {
		return p
	}
	suspended := *p
	suspended.Pending, suspended.Waits = policy, waits
	return &suspended
}

// Source returns the policy's name as used in reasons.
func (p *Policy) Source() string { return p.Ref().String() }

// Key identifies policies and orders them.
func (p *Policy) Key() string { return p.Namespace + "/" + p.Name }

// Exceptions returns the exceptions of the policy that can be read.
func (p *Policy) Exceptions() Exceptions { return p.exceptions }

// ExceptedName reports whether an exception sets a rule aside for a ClusterServiceVersion at a time, of which the
// contents are not known: there the name counts.
func (p *Policy) ExceptedName(csv string, id verdict.RuleID, now time.Time) bool {
	return p.exceptions.ForName(id, csv, p.TargetNamespace, now)
}

// NeedsDigest reports whether the policy lists a name with a digest, or an exception does.
func (p *Policy) NeedsDigest(csv string) bool {
	return p.Versions.digested(csv) || p.exceptions.NeedsDigest(csv)
}

// AllowsCatalog reports whether a catalog is the one that the policy names, as far as it names one.
func (p *Policy) AllowsCatalog(c olm.Catalog) bool {
	return (p.Catalog.Name == "" || p.Catalog.Name == c.Name) &&
		(p.Catalog.Namespace == "" || p.Catalog.Namespace == c.Namespace)
}

// CatalogText returns the policy's catalog as far as the policy names it.
func (p *Policy) CatalogText() string {
	switch {
	case p.Catalog.Namespace == "":
		return "catalog " + text.Name(p.Catalog.Name)
	case p.Catalog.Name == "":
		return "any catalog in namespace " + p.Catalog.Namespace
	}
	return "catalog " + text.Name(p.Catalog.Namespace+"/"+p.Catalog.Name)
}

// Templated is a part of the spec in which template text is resolved, as a whole.
type Templated struct {
	Path string
	// Field returns a pointer to it.
	Field func(*policyv1beta2.OperatorPolicySpec) any
}

// TemplatedParts are all of them.
var TemplatedParts = []Templated{
	{"spec.versions", func(s *policyv1beta2.OperatorPolicySpec) any { return (*[]string)(&s.Versions) }},
	{"spec.versionRange", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.VersionRange }},
	{"spec.subscription", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.Subscription }},
	{"spec.operatorGroup", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.OperatorGroup }},
}

// Templates returns the parts of a spec in which template text is resolved.
func Templates(spec *policyv1beta2.OperatorPolicySpec) []any {
	parts := make([]any, len(TemplatedParts))
	for i, part := range TemplatedParts {
		parts[i] = part.Field(spec)
	}
	return parts
}

// isTemplate reports whether a string contains template text, which the policy framework resolves on the cluster.
func isTemplate(s string) bool { return strings.Contains(s, "{{") }

// unlessTemplate returns a string that contains no template text, else "".
func unlessTemplate(s string) string {
	if isTemplate(s) {
		return ""
	}
	return s
}

// TemplatesEnabled reports whether the policy framework resolves template text in this policy.
func TemplatesEnabled(op *policyv1beta2.OperatorPolicy) bool {
	disabled, _ := strconv.ParseBool(op.Annotations[metakey.DisableTemplates]) // another value disables nothing
	return !disabled
}

// DependsOnCluster reports whether the meaning of a policy depends on cluster state: it has template text to resolve,
// or does not set its namespace.
func DependsOnCluster(op *policyv1beta2.OperatorPolicy) bool {
	return op.Spec.Subscription.Namespace == "" || TemplatesEnabled(op) && hasTemplate(Templates(&op.Spec))
}

// hasTemplate reports whether the JSON of a value contains template text.
func hasTemplate(value any) bool {
	raw, err := json.Marshal(value)
	var decoded any
	if err != nil || json.Unmarshal(raw, &decoded) != nil {
		return false // invalid JSON, which the API server never stores, has no template text
	}
	raw, err = json.Marshal(decoded) // without the escapes of what was written, as of braces
	return err == nil && bytes.Contains(raw, []byte("{{"))
}

// Completed returns a policy once it was completed from cluster state. Problems, full sentences, are why it could not be
// completed in part; while there are any, what it governs is held.
//
// A value that a template produced may be anything that was looked up. So one that is not valid is not kept: the field
// is as it was written, and the error names the template in place of the value.
func (p *Policy) Completed(completed *policyv1beta2.OperatorPolicy, problems []string) *Policy {
	// Once every template is resolved, what looks like one is text.
	next := parse(completed, p.exceptable, len(problems) > 0 && TemplatesEnabled(completed))
	unfit := p.unfit(next.Invalid)
	if len(unfit) > 0 {
		restored := *completed
		for _, err := range unfit {
			restore(&restored.Spec, &p.Object.Spec, err.Field)
		}
		next = Parse(&restored, p.exceptable)
	}
	for _, err := range unfit {
		if holds(err.Field) {
			next.hold(err.Field + " is not valid")
		}
	}
	next.Invalid = append(unfit, next.Invalid...)
	next.MarkCompleted(problems)
	return next
}

// unfit returns the errors of the completed policy that the policy as it is written has not: these depend on what was
// looked up, so they name the field alone.
func (p *Policy) unfit(errs field.ErrorList) (unfit field.ErrorList) {
	has := func(in field.ErrorList, err *field.Error) bool {
		return slices.ContainsFunc(in, func(e *field.Error) bool { return e.Error() == err.Error() })
	}
	for _, err := range errs {
		path := templatedField(err.Field)
		what := "the value of the template at " + path + " is not valid"
		if path == "spec.subscription.namespace" && p.Object.Spec.Subscription.Namespace == "" {
			what = "the namespace that the package suggests is not valid"
		}
		clean := &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{}, Detail: what}
		if !has(p.Invalid, err) && !has(unfit, clean) {
			unfit = append(unfit, clean)
		}
	}
	return unfit
}

// templatedField returns the field of a templated part that a path leads to or below: what follows may be of the value.
func templatedField(path string) string {
	for _, part := range TemplatedParts {
		rest, ok := strings.CutPrefix(path, part.Path)
		switch {
		case !ok || rest != "" && rest[0] != '.' && rest[0] != '[':
		case rest == "" || rest[0] == '[':
			return part.Path
		default:
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				return path
			}
			return path[:len(part.Path)+1+end]
		}
	}
	return "spec"
}

// restore sets a field of a templated part, as templatedField names it, to its value in another spec: of an
// OperatorGroup all fields, and all parts for any other field.
func restore(spec, from *policyv1beta2.OperatorPolicySpec, path string) {
	for _, part := range TemplatedParts {
		to, written := reflect.ValueOf(part.Field(spec)).Elem(), reflect.ValueOf(part.Field(from)).Elem()
		name, ok := strings.CutPrefix(path, part.Path+".")
		if ok && to.Kind() == reflect.Struct {
			of := func(f reflect.StructField) bool {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tag == name
			}
			i := slices.IndexFunc(reflect.VisibleFields(to.Type()), of)
			if i >= 0 {
				to, written = to.Field(i), written.Field(i)
			}
		}
		if ok || path == part.Path || path == "spec" {
			to.Set(written)
		}
	}
}
