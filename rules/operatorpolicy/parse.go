package operatorpolicy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// schema is that of OperatorPolicies, which stored policies may not satisfy: an earlier release, or a program that has
// another schema, may have stored them.
var schema = sync.OnceValue(func() *crdschema.Schema {
	return crdschema.Own(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind))
})

// onlyReported are the fields that only the loop reads: judging does without what is not valid there.
var onlyReported = []string{"spec.severity", "spec.operatorGroup", "spec.subscription.config", "spec.removalBehavior",
	"spec.planApproval", "spec.deletion", "spec.maximumWait", "spec.complianceConfig", "spec.statusConfig", "spec.exceptions"}

// holds reports whether nothing that the policy governs is allowed while a field is not valid.
func holds(path string) bool {
	return !slices.ContainsFunc(onlyReported, func(f string) bool { return strings.HasPrefix(path, f) })
}

// Parse prepares an OperatorPolicy for judging; exceptable are the IDs of the rules that its exceptions may name. It is
// total: it keeps whatever the schema does not admit, or it cannot read, as a fault. Template text is no fault wherever
// it is resolved.
func Parse(op *policyv1beta2.OperatorPolicy, exceptable []string) *Policy {
	return parse(op, exceptable, TemplatesEnabled(op))
}

func parse(op *policyv1beta2.OperatorPolicy, exceptable []string, templates bool) *Policy {
	spec, sub := &op.Spec, &op.Spec.Subscription
	r := &reader{templates: templates, refused: schema().Check("spec", spec)}
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
		exceptable:      exceptable,
		Incomplete:      DependsOnCluster(op),
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
	p.Group = r.operatorGroup(spec)
	p.MaximumWait = r.duration("maximumWait", spec.MaximumWait)
	r.complianceConfigs(spec)
	p.exceptions = r.exceptions(op, exceptable)
	p.Invalid = r.faults()
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

// faults returns what is not valid, the fields that hold first. Of a field that the schema refuses it returns only that.
func (r *reader) faults() field.ErrorList {
	all := append(r.refused, slices.DeleteFunc(r.errs, func(err *field.Error) bool { return !r.admits(err.Field) })...)
	held := slices.DeleteFunc(slices.Clone(all), func(err *field.Error) bool { return !holds(err.Field) })
	all = append(held, slices.DeleteFunc(all, func(err *field.Error) bool { return holds(err.Field) })...)
	return all[:min(len(all), verdict.MaxFaults)]
}

// reader collects the faults of a policy while its fields are read.
type reader struct {
	// templates is set if template text is resolved, so that it is no fault.
	templates bool
	// refused is what the schema does not admit, errs what else is not valid.
	refused, errs field.ErrorList
	// unresolved are the fields with template text that judging would have to read.
	unresolved []string
}

// admits reports whether the schema admits a field, whatever it refuses within. Others may be of any size.
func (r *reader) admits(path string) bool {
	return !slices.ContainsFunc(r.refused, func(err *field.Error) bool { return err.Field == path })
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

// subscription records the fields of spec.subscription with template text.
func (r *reader) subscription(sub *policyv1beta2.SubscriptionTemplate) {
	path := specPath.Child("subscription")
	r.names(path, "name", sub.Name, "namespace", sub.Namespace, "source", sub.Source, "sourceNamespace",
		sub.SourceNamespace, "startingCSV", sub.StartingCSV)
	r.judged(path.Child("channel"), sub.Channel)
	r.judged(path.Child("source"), sub.Source)
	r.judged(path.Child("sourceNamespace"), sub.SourceNamespace)
	r.judged(path.Child("startingCSV"), sub.StartingCSV)
}

// names refuses template text that is not resolved in names, given as pairs of field and value. The schema checks what
// has none.
func (r *reader) names(path *field.Path, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if value := pairs[i+1]; isTemplate(value) && !r.templates {
			r.invalid(path.Child(pairs[i]), value, "must be a name: template text is not resolved in this policy")
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
		as := c.Written
		if c = c.Read(); c.Fault == "" {
			c.Written = as // what is written alike has the same effect
		} else {
			decoded[operatorsv1alpha1.SubscriptionConfig](r, specPath.Child("subscription", "config"), written)
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

// decoded decodes a field that may hold template text instead of a structure. Unknown fields are faults.
func decoded[T any](r *reader, path *field.Path, value *apiextensionsv1.JSON) (into T) {
	if value == nil || r.passes(string(value.Raw)) {
		return into
	}
	strict, err := kjson.UnmarshalStrict(value.Raw, &into)
	if err != nil {
		r.invalid(path, text.Truncate(text.Unquote(value.Raw), 120), err.Error())
	}
	for _, problem := range strict {
		r.invalid(path, field.OmitValueType{}, problem.Error()+"; correct its name or remove it")
	}
	return into
}

// NotASCII returns a text about the first non-ASCII character, which may only look like the one in a name.
func NotASCII(s string) string {
	for i, r := range s {
		if r > '~' {
			return fmt.Sprintf("must be ASCII: the character at byte %d is %U; type the name instead of copying it", i,
				r)
		}
	}
	return ""
}
