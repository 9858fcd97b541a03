// Package operatorpolicy validates the spec of an OperatorPolicy, and reads what several packages read of it: template
// text, names of versions, defaults, windows, and the form in which it was written. It knows no cluster and judges
// nothing else.
package operatorpolicy

import (
	"fmt"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

var specPath = field.NewPath("spec")

// Validate checks what the CRD schema cannot express and, for `opgate check`, which has no API server,
// what the schema checks too. Template text is skipped wherever it is allowed.
func Validate(op *policyv1beta2.OperatorPolicy) field.ErrorList {
	return append(ValidateGate(op), ValidateRest(op)...)
}

// ValidateGate checks the fields that judging reads: while one of them is invalid, nothing that the policy governs is
// allowed.
func ValidateGate(op *policyv1beta2.OperatorPolicy) field.ErrorList {
	spec := &op.Spec
	sub := specPath.Child("subscription")
	errs := verdict.OneOf(specPath.Child("complianceType"), spec.ComplianceType, policyv1beta2.MustHave,
		policyv1beta2.MayHave, policyv1beta2.MustNotHave)
	if spec.RemediationAction != "" {
		errs = append(errs, verdict.OneOf(specPath.Child("remediationAction"), spec.RemediationAction,
			policyv1beta2.Enforce, policyv1beta2.EnforceCapital, policyv1beta2.Inform, policyv1beta2.InformCapital)...)
	}
	errs = append(errs, verdict.OneOf(specPath.Child("upgradeApproval"), spec.UpgradeApproval,
		policyv1beta2.UpgradeApprovalAutomatic, policyv1beta2.UpgradeApprovalNone,
		policyv1beta2.UpgradeApprovalNever)...)
	if spec.Deprecated != "" {
		errs = append(errs, verdict.OneOf(specPath.Child("deprecated"), spec.Deprecated, policyv1beta2.DeprecatedHold,
			policyv1beta2.DeprecatedAllow)...)
	}
	errs = append(errs, validateConsent(spec.Consent)...)
	errs = append(errs, validateCatalog(spec.Catalog)...)
	_, calendar := NewCalendar(spec)
	errs = append(errs, calendar...)
	errs = append(errs, validateAge(spec)...)
	errs = append(errs, validateDialect(op)...)
	if spec.Subscription.Name == "" {
		errs = append(errs, field.Required(sub.Child("name"), "name the package that the policy governs"))
	}
	text := textValidator{templates: TemplatesEnabled(op)}
	errs = append(errs, text.dnsLabel(sub.Child("name"), spec.Subscription.Name)...)
	errs = append(errs, text.dnsLabel(sub.Child("namespace"), spec.Subscription.Namespace)...)
	errs = append(errs, text.dnsSubdomain(sub.Child("source"), spec.Subscription.Source)...)
	errs = append(errs, text.dnsLabel(sub.Child("sourceNamespace"), spec.Subscription.SourceNamespace)...)
	errs = append(errs, text.dnsSubdomain(sub.Child("startingCSV"), spec.Subscription.StartingCSV)...)
	if channel := spec.Subscription.Channel; channel != strings.TrimSpace(channel) {
		errs = append(errs, field.Invalid(sub.Child("channel"), channel, "must not start or end with white space"))
	}
	errs = append(errs, text.versions(specPath.Child("versions"), spec.Versions)...)
	if r := spec.VersionRange; r != "" && !text.passes(r) {
		if _, err := olm.ParseVersionRange(r); err != nil {
			errs = append(errs, field.Invalid(specPath.Child("versionRange"), r, err.Error()+
				`; write comparators with full versions, such as ">=1.2.0 <2.0.0" or "1.2.x", with " || " for or`))
		}
	}
	return errs
}

// validateDialect refuses what conversion from v1beta1 could not resolve: two forms that contradict each other, or a
// value that fits neither. Such a policy does not specify what happens to upgrades.
func validateDialect(op *policyv1beta2.OperatorPolicy) field.ErrorList {
	var errs field.ErrorList
	if _, err := ParseDialect(op.Annotations[ConversionAnnotation]); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(ConversionAnnotation),
			op.Annotations[ConversionAnnotation],
			err.Error()+"; it has fields of v1beta2 that the definition of v1beta1 lacks, as JSON: correct it, or remove it"))
	}
	v := op.Spec.Subscription.InstallPlanApproval
	if v == nil || string(v.Raw) == `""` || string(v.Raw) == "null" {
		return errs
	}
	fix := "write spec.upgradeApproval: Automatic or None instead"
	switch approval := op.Spec.UpgradeApproval; approval {
	case "":
	case policyv1beta2.UpgradeApprovalNever, policyv1beta2.UpgradeApprovalNone, policyv1beta2.UpgradeApprovalAutomatic:
		fix = fmt.Sprintf("remove it; spec.upgradeApproval: %s says already what becomes of upgrades; to change that, write Automatic or None there", approval)
	}
	return append(errs, field.Invalid(specPath.Child("subscription", "installPlanApproval"),
		text.Truncate(text.Unquote(v.Raw), 120),
		"must not be set, since the policy computes it; "+fix))
}

// ValidateRest checks the fields that only the background loop reads.
func ValidateRest(op *policyv1beta2.OperatorPolicy) field.ErrorList {
	spec := &op.Spec
	sub := specPath.Child("subscription")
	var errs field.ErrorList
	if spec.Severity != "" {
		errs = append(errs, verdict.OneOf(specPath.Child("severity"),
			policyv1beta2.Severity(strings.ToLower(string(spec.Severity))),
			policyv1beta2.SeverityLow, policyv1beta2.SeverityMedium, policyv1beta2.SeverityHigh,
			policyv1beta2.SeverityCritical)...)
	}
	errs = append(errs, strictly[operatorsv1alpha1.SubscriptionConfig](sub.Child("config"),
		spec.Subscription.Config)...)
	errs = append(errs, validateOperatorGroup(op)...)
	errs = append(errs, validateRemovalBehavior(&spec.RemovalBehavior)...)
	if spec.Deletion != "" {
		errs = append(errs, verdict.OneOf(specPath.Child("deletion"), spec.Deletion,
			policyv1beta2.DeletionAllow, policyv1beta2.DeletionConfirm, policyv1beta2.DeletionDeny)...)
	}
	if _, err := Age(spec.MaximumWait); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("maximumWait"), spec.MaximumWait, err.Error()))
	}
	return append(errs, validateConfigs(spec)...)
}

func validateOperatorGroup(op *policyv1beta2.OperatorPolicy) field.ErrorList {
	group := op.Spec.OperatorGroup
	if group == nil {
		return nil
	}
	path := specPath.Child("operatorGroup")
	text := textValidator{templates: TemplatesEnabled(op)}
	var errs field.ErrorList
	if group.Name == "" {
		errs = append(errs, field.Required(path.Child("name"),
			"name the OperatorGroup, or leave out spec.operatorGroup"))
	}
	errs = append(errs, text.dnsSubdomain(path.Child("name"), group.Name)...)
	errs = append(errs, text.dnsLabel(path.Child("namespace"), group.Namespace)...)
	errs = append(errs, text.dnsSubdomain(path.Child("serviceAccountName"), group.ServiceAccountName)...)
	if ns := op.Spec.Subscription.Namespace; group.Namespace != "" && ns != "" && group.Namespace != ns &&
		!isTemplate(group.Namespace+ns) {
		errs = append(errs, field.Invalid(path.Child("namespace"), group.Namespace,
			fmt.Sprintf("must be the namespace of the subscription, %q, or be left out", ns)))
	}
	return append(errs, validateTargets(path, group)...)
}

// validateTargets checks that an OperatorGroup selects its target namespaces in one way only (R-OP-6).
func validateTargets(path *field.Path, group *policyv1beta2.OperatorGroupTemplate) field.ErrorList {
	type form struct {
		path  *field.Path
		value *apiextensionsv1.JSON
		check func(*field.Path, *apiextensionsv1.JSON) field.ErrorList
	}
	forms := []form{
		{path.Child("targetNamespaces"), group.TargetNamespaces, namespaceList},
		{path.Child("selector"), group.Selector, labelSelector},
	}
	if t := group.Target; t != nil {
		forms = append(forms, form{path.Child("target", "namespaces"), t.Namespaces, namespaceList},
			form{path.Child("target", "selector"), t.Selector, labelSelector})
	}
	var errs field.ErrorList
	var first *field.Path
	for _, f := range forms {
		if f.value == nil || string(f.value.Raw) == "null" {
			continue
		}
		if first != nil {
			errs = append(errs, field.Forbidden(f.path, "the targets are already given by "+first.String()+
				"; keep one of the two"))
			continue
		}
		first = f.path
		errs = append(errs, f.check(f.path, f.value)...)
	}
	return errs
}

// SeveralTargets returns the target namespaces of the OperatorGroup if there are several plain names (R-OP-16).
func SeveralTargets(op *policyv1beta2.OperatorPolicy) []string {
	group := op.Spec.OperatorGroup
	if group == nil {
		return nil
	}
	value := group.TargetNamespaces
	if value == nil && group.Target != nil {
		value = group.Target.Namespaces
	}
	if names, errs := decoded[[]string](specPath, value); len(errs) == 0 && len(names) > 1 {
		return names
	}
	return nil
}

func namespaceList(path *field.Path, value *apiextensionsv1.JSON) field.ErrorList {
	names, errs := decoded[[]string](path, value)
	for i, name := range names {
		if len(errs) >= verdict.MaxFaults {
			break
		}
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(path.Index(i), name, problem))
		}
	}
	return errs
}

func labelSelector(path *field.Path, value *apiextensionsv1.JSON) field.ErrorList {
	selector, errs := decoded[metav1.LabelSelector](path, value)
	return append(errs, metav1validation.ValidateLabelSelector(&selector,
		metav1validation.LabelSelectorValidationOptions{}, path)...)
}

func strictly[T any](path *field.Path, value *apiextensionsv1.JSON) field.ErrorList {
	_, errs := decoded[T](path, value)
	return errs
}

// decoded decodes a field that may hold template text instead of a structure. Unknown fields are errors.
func decoded[T any](path *field.Path, value *apiextensionsv1.JSON) (T, field.ErrorList) {
	var into T
	if value == nil || isTemplate(string(value.Raw)) {
		return into, nil
	}
	strict, err := kjson.UnmarshalStrict(value.Raw, &into)
	if err != nil {
		return into, field.ErrorList{field.Invalid(path, text.Truncate(text.Unquote(value.Raw), 120), err.Error())}
	}
	var errs field.ErrorList
	for _, problem := range strict {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, problem.Error()+
			"; correct its name or remove it"))
	}
	return into, errs
}

func validateRemovalBehavior(r *policyv1beta2.RemovalBehavior) field.ErrorList {
	path := specPath.Child("removalBehavior")
	keepOrDelete := func(name string, v policyv1beta2.RemovalAction,
		more ...policyv1beta2.RemovalAction) field.ErrorList {
		if v == "" {
			return nil
		}
		return verdict.OneOf(path.Child(name), v, append(more, policyv1beta2.RemovalKeep,
			policyv1beta2.RemovalDelete)...)
	}
	return slices.Concat(
		keepOrDelete("operatorGroups", r.OperatorGroups, policyv1beta2.RemovalDeleteIfUnused),
		keepOrDelete("subscriptions", r.Subscriptions),
		keepOrDelete("clusterServiceVersions", r.ClusterServiceVersions),
		keepOrDelete("installPlans", r.InstallPlans),
		keepOrDelete("customResourceDefinitions", r.CustomResourceDefinitions),
	)
}

// textValidator checks plain values; it skips template text if templates are resolved at all.
type textValidator struct{ templates bool }

func (t textValidator) passes(s string) bool { return t.templates && isTemplate(s) }

func (t textValidator) dnsLabel(path *field.Path, s string) field.ErrorList {
	return t.named(path, s, validation.IsDNS1123Label)
}

func (t textValidator) dnsSubdomain(path *field.Path, s string) field.ErrorList {
	return t.named(path, s, validation.IsDNS1123Subdomain)
}

func (t textValidator) named(path *field.Path, s string, check func(string) []string) field.ErrorList {
	if s == "" || t.passes(s) {
		return nil
	}
	if problem := notASCII(s); problem != "" {
		return field.ErrorList{field.Invalid(path, s, problem)}
	}
	var errs field.ErrorList
	for _, problem := range check(s) {
		errs = append(errs, field.Invalid(path, s, problem))
	}
	return errs
}

// ValidateVersions checks a list in the form of spec.versions in which template text is not resolved.
func ValidateVersions(path *field.Path, entries []string) field.ErrorList {
	return textValidator{}.versions(path, entries)
}

// versions checks that every entry can match the name of a ClusterServiceVersion at all.
func (t textValidator) versions(path *field.Path, entries []string) field.ErrorList {
	var errs field.ErrorList
	names := 0
	for i, entry := range entries {
		if len(errs) >= verdict.MaxFaults {
			break
		}
		if t.passes(entry) {
			names++
			continue
		}
		for _, name := range SplitVersions([]string{entry}) {
			if names++; len(errs) < verdict.MaxFaults {
				errs = append(errs, t.version(path.Index(i), name)...)
			}
		}
	}
	if len(SplitVersions(entries)) > MaxVersions {
		errs = append(errs, field.TooMany(path, -1, MaxVersions))
	}
	if len(entries) > 0 && names == 0 {
		errs = append(errs, field.Invalid(path, entries,
			"names no version; list ClusterServiceVersion names, or remove the field to allow every version"))
	}
	return errs
}

// version checks a name of a ClusterServiceVersion, or a name with the digest of a bundle image.
func (t textValidator) version(path *field.Path, entry string) field.ErrorList {
	name, digest := olm.CutDigest(entry)
	if name == entry {
		return t.dnsSubdomain(path, name)
	}
	errs := t.dnsSubdomain(path, name)
	if name == "" {
		errs = append(errs, field.Invalid(path, entry,
			"must begin with the name of a ClusterServiceVersion, before the digest"))
	}
	if !olm.ValidDigest(digest) {
		errs = append(errs, field.Invalid(path, entry,
			"must end with the digest of a bundle image: @sha256: and 64 hexadecimal digits in lower case"))
	}
	return errs
}

// notASCII returns a text about the first non-ASCII character, which may only look like the one in a name (threat O11).
func notASCII(s string) string {
	for i, r := range s {
		if r > '~' {
			return fmt.Sprintf("must be ASCII: the character at byte %d is %U; type the name instead of copying it", i,
				r)
		}
	}
	return ""
}
