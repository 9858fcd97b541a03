package operatorpolicy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

var specPath = field.NewPath("spec")

// keywords are those of the schema, which stored policies may not satisfy: an earlier release, or a program that has
// another schema, may have stored them.
var keywords = sync.OnceValue(func() *crdschema.Keywords {
	return crdschema.Own(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind)).KeywordsOf("spec",
		reflect.TypeFor[policyv1beta2.OperatorPolicySpec]())
})

// onlyReported are the fields that only the loop reads: judging does without what is not valid there.
var onlyReported = []string{"spec.severity", "spec.operatorGroup", "spec.subscription.config", "spec.removalBehavior",
	"spec.deletion", "spec.maximumWait", "spec.complianceConfig", "spec.statusConfig", "spec.exceptions"}

// holds reports whether nothing that the policy governs is allowed while a field is not valid.
func holds(path string) bool {
	return !slices.ContainsFunc(onlyReported, func(f string) bool { return strings.HasPrefix(path, f) })
}

// Parse prepares an OperatorPolicy for judging; exceptable are the IDs of the rules that its exceptions may name. It is
// total: it keeps whatever it cannot read as a fault. Template text is no fault wherever it is resolved.
func Parse(op *policyv1beta2.OperatorPolicy, exceptable []string) *Policy {
	return parse(op, exceptable, TemplatesEnabled(op))
}

func parse(op *policyv1beta2.OperatorPolicy, exceptable []string, templates bool) *Policy {
	spec, sub := &op.Spec, &op.Spec.Subscription
	r := &reader{templates: templates}
	p := &Policy{
		Namespace:       op.Namespace,
		Name:            op.Name,
		Object:          op,
		Package:         unlessTemplate(sub.Name),
		TargetNamespace: unlessTemplate(sub.Namespace),
		Enforced:        spec.IsEnforced(),
		MustNotHave:     spec.IsMustNotHave(),
		Channel:         sub.Channel,
		Catalog:         olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source},
		StartingCSV:     sub.StartingCSV,
		ApproveUpgrades: spec.EffectiveUpgradeApproval() == policyv1beta2.UpgradeApprovalAutomatic,
		HoldDeprecated:  spec.Deprecated == policyv1beta2.DeprecatedHold,
		Deletion:        spec.EffectiveDeletion(),
		Pending:         op.Annotations[metakey.Pending],
		Incomplete:      dependsOnCluster(spec, r.templates),
		source:          "OperatorPolicy " + op.Namespace + "/" + op.Name,
	}
	p.Consent = r.consent(spec.Consent)
	p.CatalogImages = r.catalog(spec.Catalog)
	p.Calendar = r.calendar(spec)
	p.Age = Age{r.duration("minimumAge", spec.MinimumAge), spec.MinimumAge, r.urgent(spec.Urgent)}
	r.approval(op)
	r.subscription(sub)
	p.Versions = newVersionList(r.versions(spec.Versions))
	p.VersionRange = r.versionRange(spec.VersionRange)
	p.Config = r.config(sub.Config)
	r.operatorGroup(spec)
	p.MaximumWait = r.duration("maximumWait", spec.MaximumWait)
	r.complianceConfigs(spec)
	exceptions, errs := ExceptionsOf(op, exceptable)
	p.exceptions = exceptions
	r.add(errs...)
	p.Invalid = r.faults(spec)
	for _, err := range p.Invalid {
		if holds(err.Field) {
			p.hold(err.Field + " is not valid")
		}
	}
	for _, path := range r.unresolved {
		p.hold(path + " holds template text that has not been resolved")
	}
	if p.faults != "" {
		p.VersionRange = nil
	}
	if sub.Name == "" {
		p.Widen(true, sub.Namespace == "")
	}
	return p
}

// faults returns what is not valid, the fields that hold first. Where a field has a fault, that of the schema is
// left out.
func (r *reader) faults(spec *policyv1beta2.OperatorPolicySpec) field.ErrorList {
	all := slices.DeleteFunc(keywords().Check(specPath, spec, verdict.MaxFaults), func(err *field.Error) bool {
		return slices.ContainsFunc(r.errs, func(e *field.Error) bool { return e.Field == err.Field })
	})
	all = append(all, r.errs...)
	reported := slices.DeleteFunc(slices.Clone(all), func(err *field.Error) bool { return holds(err.Field) })
	return append(slices.DeleteFunc(all, func(err *field.Error) bool { return !holds(err.Field) }), reported...)
}

// reader collects the faults of a policy while its fields are read.
type reader struct {
	// templates is set if template text is resolved, so that it is no fault.
	templates bool
	errs      field.ErrorList
	// unresolved are the fields with template text that judging would have to read.
	unresolved []string
}

func (r *reader) add(errs ...*field.Error) { r.errs = append(r.errs, errs...) }

func (r *reader) invalid(path *field.Path, value any, detail string) {
	r.add(field.Invalid(path, value, detail))
}

// passes reports whether a text will be resolved.
func (r *reader) passes(s string) bool { return r.templates && isTemplate(s) }

// judged records a field that judging reads if its text is not resolved.
func (r *reader) judged(path *field.Path, values ...string) {
	if slices.ContainsFunc(values, r.passes) {
		r.unresolved = append(r.unresolved, path.String())
	}
}

// approval refuses what conversion from v1beta1 could not resolve: two forms that contradict each other, or a value
// that fits neither. Such a policy does not specify what happens to upgrades.
func (r *reader) approval(op *policyv1beta2.OperatorPolicy) {
	if _, err := ParseDialect(op.Annotations[metakey.Conversion]); err != nil {
		r.invalid(field.NewPath("metadata", "annotations").Key(metakey.Conversion),
			op.Annotations[metakey.Conversion],
			err.Error()+"; it has fields of v1beta2 that the definition of v1beta1 lacks, as JSON: correct it, or remove it")
	}
	v := op.Spec.Subscription.InstallPlanApproval
	if v == nil || string(v.Raw) == `""` || string(v.Raw) == "null" {
		return
	}
	fix := "write spec.upgradeApproval: Automatic or None instead"
	switch approval := op.Spec.UpgradeApproval; approval {
	case "":
	case policyv1beta2.UpgradeApprovalNever, policyv1beta2.UpgradeApprovalNone, policyv1beta2.UpgradeApprovalAutomatic:
		fix = fmt.Sprintf("remove it; spec.upgradeApproval: %s says already what becomes of upgrades; to change that, write Automatic or None there", approval)
	}
	r.invalid(specPath.Child("subscription", "installPlanApproval"), text.Truncate(text.Unquote(v.Raw), 120),
		"must not be set, since the policy computes it; "+fix)
}

// subscription checks the names in spec.subscription.
func (r *reader) subscription(sub *policyv1beta2.SubscriptionTemplate) {
	path := specPath.Child("subscription")
	if sub.Name == "" {
		r.add(field.Required(path.Child("name"), "name the package that the policy governs"))
	}
	r.name(path.Child("name"), sub.Name, validation.IsDNS1123Label)
	r.name(path.Child("namespace"), sub.Namespace, validation.IsDNS1123Label)
	for _, f := range []struct {
		name, value string
		check       func(string) []string
	}{
		{"channel", sub.Channel, nil},
		{"source", sub.Source, validation.IsDNS1123Subdomain},
		{"sourceNamespace", sub.SourceNamespace, validation.IsDNS1123Label},
		{"startingCSV", sub.StartingCSV, validation.IsDNS1123Subdomain},
	} {
		r.judged(path.Child(f.name), f.value)
		if f.check != nil {
			r.name(path.Child(f.name), f.value, f.check)
		} else if f.value != strings.TrimSpace(f.value) {
			r.invalid(path.Child(f.name), f.value, "must not start or end with white space")
		}
	}
}

// config reads spec.subscription.config. Template text that is not resolved is a fault of it: what the config will be
// is not known.
func (r *reader) config(written *apiextensionsv1.JSON) (c olm.SubscriptionConfig) {
	switch {
	case written == nil || len(written.Raw) == 0:
	case r.templates && hasTemplate(written):
		c.Fault = "it holds template text that has not been resolved"
	default:
		if err := c.UnmarshalJSON(written.Raw); err != nil {
			c.Fault = err.Error()
		}
		if c.Fault != "" {
			_, errs := decoded[operatorsv1alpha1.SubscriptionConfig](specPath.Child("subscription", "config"), written)
			r.add(errs...)
		}
	}
	return c
}

// versionRange reads spec.versionRange; nil if it is empty or not valid.
func (r *reader) versionRange(written string) *olm.VersionRange {
	path := specPath.Child("versionRange")
	if r.judged(path, written); written == "" || r.passes(written) {
		return nil
	}
	parsed, err := olm.ParseVersionRange(written)
	if err != nil {
		r.invalid(path, written, err.Error()+
			`; write comparators with full versions, such as ">=1.2.0 <2.0.0" or "1.2.x", with " || " for or`)
	}
	return parsed
}

// duration reads spec.minimumAge or spec.maximumWait; 0 if it is empty or not valid.
func (r *reader) duration(name, value string) time.Duration {
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second || d > 365*24*time.Hour {
		r.invalid(specPath.Child(name), value, "must be a duration from 1s to 8760h, such as 168h for a week")
		return 0
	}
	return d
}

func (r *reader) operatorGroup(spec *policyv1beta2.OperatorPolicySpec) {
	group := spec.OperatorGroup
	if group == nil {
		return
	}
	path := specPath.Child("operatorGroup")
	if group.Name == "" {
		r.add(field.Required(path.Child("name"), "name the OperatorGroup, or leave out spec.operatorGroup"))
	}
	r.name(path.Child("name"), group.Name, validation.IsDNS1123Subdomain)
	r.name(path.Child("namespace"), group.Namespace, validation.IsDNS1123Label)
	r.name(path.Child("serviceAccountName"), group.ServiceAccountName, validation.IsDNS1123Subdomain)
	if ns := spec.Subscription.Namespace; group.Namespace != "" && ns != "" && group.Namespace != ns &&
		!isTemplate(group.Namespace+ns) {
		r.invalid(path.Child("namespace"), group.Namespace,
			fmt.Sprintf("must be the namespace of the subscription, %q, or be left out", ns))
	}
	r.add(targetFaults(path, group)...)
}

// targetFaults checks that an OperatorGroup selects its target namespaces in one way only.
func targetFaults(path *field.Path, group *policyv1beta2.OperatorGroupTemplate) field.ErrorList {
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

// SeveralTargets returns the target namespaces of the OperatorGroup if there are several plain names.
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

// name checks a name unless it is empty, or template text that is resolved.
func (r *reader) name(path *field.Path, s string, check func(string) []string) {
	if s == "" || r.passes(s) {
		return
	}
	if problem := notASCII(s); problem != "" {
		r.invalid(path, s, problem)
		return
	}
	for _, problem := range check(s) {
		r.invalid(path, s, problem)
	}
}

// notASCII returns a text about the first non-ASCII character, which may only look like the one in a name.
func notASCII(s string) string {
	for i, r := range s {
		if r > '~' {
			return fmt.Sprintf("must be ASCII: the character at byte %d is %U; type the name instead of copying it", i,
				r)
		}
	}
	return ""
}
