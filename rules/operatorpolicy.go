package rules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/lookup"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleOperatorPolicyField          verdict.RuleID = "operatorpolicy/field"
	RuleOperatorPolicyUnknownField   verdict.RuleID = "operatorpolicy/unknown-field"
	RuleOperatorPolicyContradiction  verdict.RuleID = "operatorpolicy/contradiction"
	RuleOperatorPolicyNormalized     verdict.RuleID = "operatorpolicy/normalized"
	RuleOperatorPolicyIneffective    verdict.RuleID = "operatorpolicy/ineffective"
	RuleOperatorPolicyOverlap        verdict.RuleID = "operatorpolicy/overlap"
	RuleOperatorPolicyUncovered      verdict.RuleID = "operatorpolicy/uncovered"
	RuleOperatorPolicyPending        verdict.RuleID = "operatorpolicy/pending"
	RuleOperatorPolicySeveralTargets verdict.RuleID = "operatorpolicy/several-targets"
	RuleOperatorPolicyGroup          verdict.RuleID = "operatorpolicy/group"
	RuleOperatorPolicyLookup         verdict.RuleID = "operatorpolicy/lookup"
	RuleOperatorPolicyAuthorRight    verdict.RuleID = "operatorpolicy/author-right"
	RuleOperatorPolicyExceptionRight verdict.RuleID = "operatorpolicy/exception-right"
	RuleOperatorPolicyExceptionEnded verdict.RuleID = "operatorpolicy/exception-ended"
)

// operatorPolicyRules are the rules on OperatorPolicies.
var operatorPolicyRules = []verdict.Rule{
	{ID: RuleOperatorPolicyField, Outcomes: verdict.Denies,
		Summary: "a field of an OperatorPolicy has a value that is not valid"},
	{ID: RuleOperatorPolicyUnknownField, Outcomes: verdict.Denies,
		Summary: "a field of an OperatorPolicy is unknown, or is set twice"},
	{ID: RuleOperatorPolicyContradiction, Outcomes: verdict.Denies,
		Summary: "two fields of an OperatorPolicy contradict each other"},
	{ID: RuleOperatorPolicyNormalized, Outcomes: verdict.Warns,
		Summary: "values were copied from the earlier field name to the present one"},
	{ID: RuleOperatorPolicyIneffective, Outcomes: verdict.Warns,
		Summary: "something in an OperatorPolicy cannot have the effect that its author will expect"},
	{ID: RuleOperatorPolicyOverlap, Outcomes: verdict.Warns,
		Summary: "another OperatorPolicy governs the same package in the same namespace"},
	{ID: RuleOperatorPolicyUncovered, Outcomes: verdict.Warns,
		Summary: "an installed ClusterServiceVersion is not one that the OperatorPolicy allows, or a Subscription that it managed is left behind"},
	{ID: RuleOperatorPolicyPending, Outcomes: verdict.Warns,
		Summary: "what the OperatorPolicy does to InstallPlans that wait for approval"},
	{ID: RuleOperatorPolicySeveralTargets, Outcomes: verdict.Warns,
		Summary: "the OperatorGroup of an OperatorPolicy names several target namespaces, which OLM advises against"},
	{ID: RuleOperatorPolicyGroup, Outcomes: verdict.Denies,
		Summary: "an OperatorPolicy would change the OperatorGroup that another one created or names"},
	{ID: RuleOperatorPolicyLookup, Outcomes: verdict.Denies,
		Summary: "a template of an OperatorPolicy looks up an object that its author may not get"},
	{ID: RuleOperatorPolicyAuthorRight, Outcomes: verdict.Denies,
		Summary: "an OperatorPolicy has an effect that its author has no right to"},
	{ID: RuleOperatorPolicyExceptionRight, Outcomes: verdict.Denies,
		Summary: "an exception is added, prolonged or widened by a user without the RBAC verb override on the policy"},
	{ID: RuleOperatorPolicyExceptionEnded, Outcomes: verdict.DeniesOrWarns,
		Summary: "an exception has ended, which a review of files refuses, or ends within 14 days"},
}

// OperatorPolicyInput is the input of JudgeOperatorPolicy.
type OperatorPolicyInput struct {
	Policy *operatorpolicy.Policy
	// Strict are the errors of DecodeOperatorPolicy: unknown and duplicate fields.
	Strict []error
	// Old is the stored policy on update, nil on create.
	Old *operatorpolicy.Policy
	// Namespace returns what is known of a namespace, for the preview; it may return nil.
	Namespace func(name string) *state.Namespace
	// Package returns a package of a catalog, for the preview; nil if it is not known. Default: none is.
	Package func(pkg string, source olm.Catalog) *catalog.Package
	// Copied reports whether a package is installed for all namespaces from another one, for the preview. Default: none
	// is.
	Copied func(pkg, namespace string) bool
	// Grants are the rights that the installation withholds, for the preview.
	Grants grant.Set
	// Unbacked is why the API server refuses nothing by itself, and what would change that, for the preview. Default:
	// it does refuse.
	Unbacked string
	// Now is that of PlanInput, for the preview.
	Now time.Time
	// ReviewPlan is set for files that are not sent to a cluster now: exceptions that have ended are refused.
	Review bool
}

// OperatorPolicyObject returns the name of an OperatorPolicy as used in verdicts.
func OperatorPolicyObject(op *policyv1beta2.OperatorPolicy) string {
	return dependency.ObjectName("operatorpolicy", &op.ObjectMeta)
}

// DecodeOperatorPolicy decodes an OperatorPolicy as the API server does, and returns unknown and duplicate fields with
// their paths. It ignores those in metadata and status, which the API server checks: a newer version may have fields
// there that this one does not know.
func DecodeOperatorPolicy(raw []byte) (op *policyv1beta2.OperatorPolicy, strict []error, err error) {
	op = &policyv1beta2.OperatorPolicy{}
	strict, err = kjson.UnmarshalStrict(raw, op)
	return op, SpecFaults(strict), err
}

// SpecFaults returns the strict decoding errors that are not about metadata and status.
func SpecFaults(strict []error) []error {
	return slices.DeleteFunc(strict, func(problem error) bool {
		return strings.Contains(problem.Error(), ` "metadata.`) || strings.Contains(problem.Error(), ` "status.`)
	})
}

// JudgeOperatorPolicy decides on creating or updating an OperatorPolicy. An invalid spec is denied with the path of the
// field; warnings preview the effect of the policy on installed operators and pending plans. An update that changes
// neither the spec nor an annotation that is read passes, even if the spec is invalid by present rules.
func JudgeOperatorPolicy(in OperatorPolicyInput) verdict.Verdict {
	op := in.Policy.Object
	v := verdict.Verdict{Object: OperatorPolicyObject(op)}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Object.Spec, op.Spec) &&
		sameRead(in.Old.Object.Annotations, op.Annotations) {
		return v
	}
	addStrict(&v, RuleOperatorPolicyUnknownField, in.Strict)
	for _, err := range in.Policy.Invalid {
		id := RuleOperatorPolicyField
		if err.Type == field.ErrorTypeForbidden {
			id = RuleOperatorPolicyContradiction
		}
		v.AddFaults(id, field.ErrorList{err})
	}
	v.Add(RuleOperatorPolicyGroup, groupOfAnother(&in))
	in.Policy.Exceptions().Judge(&v, RuleOperatorPolicyExceptionEnded, in.Now, in.Review)
	if v.Decision == verdict.Allow {
		(&preview{&in, in.Policy, &v}).policy()
	}
	return v.Sorted()
}

// sameRead reports whether two objects agree in all annotations that are read.
func sameRead(a, b map[string]string) bool {
	return !slices.ContainsFunc(metakey.Kept(), func(key string) bool {
		one, inA := a[key]
		other, inB := b[key]
		return one != other || inA != inB
	})
}

// addStrict records strict decoding errors.
func addStrict(v *verdict.Verdict, id verdict.RuleID, strict []error) {
	for _, problem := range strict {
		fix := "correct its name or remove it"
		switch {
		case strings.HasPrefix(problem.Error(), "duplicate field"):
			fix = "keep one of the two"
		case strings.HasSuffix(problem.Error(), `.true"`): // YAML 1.1 takes the key "on" for this
			fix = "write target in place of on, which YAML reads as true"
		}
		v.Add(id, verdict.Finding{Decision: verdict.Deny, What: problem.Error(), Accepted: fix})
	}
}

// NewOperatorPolicy prepares an OperatorPolicy for judging. It is total: it keeps whatever it cannot read as a fault.
func NewOperatorPolicy(op *policyv1beta2.OperatorPolicy) *operatorpolicy.Policy {
	return operatorpolicy.Parse(op, bundle.Exceptable())
}

// NormalizeOperatorPolicy fills complianceConfig. It keeps the author's fields unchanged, so that GitOps tools see no
// drift.
func NormalizeOperatorPolicy(op, old *policyv1beta2.OperatorPolicy) []verdict.Change {
	filled, copied := operatorpolicy.FilledConfig(op, old)
	if filled == op.Spec.ComplianceConfig {
		return nil
	}
	change := verdict.Change{Rule: RuleOperatorPolicyNormalized, Path: "/spec/complianceConfig", Value: filled}
	if copied {
		change.Message = verdict.Sentence(
			"spec.statusConfig is the earlier name of spec.complianceConfig and was copied "+
				"there",
			RuleOperatorPolicyNormalized, "write spec.complianceConfig with Compliant or NonCompliant")
	}
	return []verdict.Change{change}
}

// suffixes warns of one version that is installed, planned or offered and that spec.versionRange decides by its suffix.
func (in *preview) suffixes(ns *state.Namespace) {
	p := in.p
	if p.VersionRange == nil {
		return
	}
	var versions []string
	for _, installed := range ns.Installed() {
		if installed.Package == p.Package {
			versions = append(versions, installed.Version)
		}
	}
	for _, plan := range ns.Plans() {
		for _, r := range carrier.Replacements(ns, plan) {
			if r.Package == p.Package {
				versions = append(versions, r.Version)
			}
		}
	}
	if in.Package != nil {
		if offered := in.Package(p.Package, p.Catalog); offered != nil {
			for _, channel := range offered.Channels {
				for _, entry := range channel.Entries {
					versions = append(versions, entry.Version)
				}
			}
		}
	}
	for _, version := range versions {
		if wider := p.VersionRange.WithSuffixes(version); wider != "" {
			in.ineffective("spec.versionRange "+text.Quote(p.VersionRange.String())+" has "+text.Name(version)+
				" before the version without its suffix", "write "+text.Quote(wider)+" if suffixes are to count as the version")
			return
		}
	}
}

// MaxLookups bounds what the templates of one OperatorPolicy look up, since each is a request to the API server.
const MaxLookups = 20

// Lookups returns what the templates of an OperatorPolicy look up.
func Lookups(op *policyv1beta2.OperatorPolicy) []lookup.Lookup {
	if !operatorpolicy.TemplatesEnabled(op) {
		return nil
	}
	return lookup.Of(operatorpolicy.Templates(&op.Spec))
}

// SameTemplates reports whether two states of an OperatorPolicy look up the same for the same purpose.
func SameTemplates(a, b *policyv1beta2.OperatorPolicy) bool {
	before, errBefore := dependency.Canonical(operatorpolicy.Templates(&a.Spec))
	now, errNow := dependency.Canonical(operatorpolicy.Templates(&b.Spec))
	return errBefore == nil && errNow == nil && string(before) == string(now) &&
		operatorpolicy.TemplatesEnabled(a) == operatorpolicy.TemplatesEnabled(b)
}

// SignAuthor returns the mark of an OperatorPolicy whose author has the rights that it needs, "" if it cannot be marked.
func SignAuthor(key []byte, op *policyv1beta2.OperatorPolicy) string {
	return signAuthor(key, op, AuthorNeeds(op))
}

// signAuthor signs what the templates look up, and the needs.
func signAuthor(key []byte, op *policyv1beta2.OperatorPolicy, needs []dependency.Need) string {
	text, err := dependency.Canonical(operatorpolicy.Templates(&op.Spec))
	if err != nil || len(key) == 0 || op.Name == "" {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s lookups v1\n%q %q\n%x", metakey.Verified, op.Namespace, op.Name, sha256.Sum256(text))
	for _, need := range needs {
		fmt.Fprintf(mac, "\n%q %q", need.Field, need.Rights)
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// AuthorVerified reports whether an OperatorPolicy has the mark that SignAuthor returns.
func AuthorVerified(key []byte, op *policyv1beta2.OperatorPolicy) bool {
	return signed(op, SignAuthor(key, op))
}

// LookupsVerified reports whether the right to what an OperatorPolicy looks up was verified: its mark may be of a time
// before its author needed other rights.
func LookupsVerified(key []byte, op *policyv1beta2.OperatorPolicy) bool {
	return AuthorVerified(key, op) || signed(op, signAuthor(key, op, nil))
}

func signed(op *policyv1beta2.OperatorPolicy, mark string) bool {
	return mark != "" && hmac.Equal([]byte(mark), []byte(op.Annotations[metakey.Verified]))
}

// LookupNeeds returns what the author of an OperatorPolicy needs rights to: what templates find is shown in the status
// of the policy and in refusals, to everyone who may read these.
func LookupNeeds(lookups []lookup.Lookup) []dependency.Need {
	var needs []dependency.Need
	for _, l := range lookups {
		needs = append(needs, dependency.LookupNeed(l, RuleOperatorPolicyLookup, "spec"))
	}
	return needs
}

// RefuseTooManyLookups refuses an OperatorPolicy whose templates look up more than can be checked.
func RefuseTooManyLookups(v *verdict.Verdict, number int) {
	v.Add(RuleOperatorPolicyLookup, verdict.Finding{Decision: verdict.Deny, Field: "spec",
		What:     fmt.Sprintf("its templates look up %d objects", number),
		Accepted: fmt.Sprintf("they may look up %d; put the values into fewer objects", MaxLookups)})
	*v = v.Sorted()
}

// UnverifiedLookupText is why a template of an OperatorPolicy without a valid mark is not resolved.
const UnverifiedLookupText = "it looks up what is not in the policy's namespace, and the right of the policy's author to get that was not verified " +
	"(" + string(RuleOperatorPolicyLookup) + "): a user with the right to get it has to write the policy again, with annotation " +
	metakey.Verified + " changed, while opgate answers"
