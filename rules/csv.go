package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleCSVFrozen          verdict.RuleID = "csv/frozen"
	RuleCSVVirtualOperator verdict.RuleID = "csv/virtual-operator"
)

// csvRules are the rules on the integrity of ClusterServiceVersions; package bundle has those on what they bring.
var csvRules = []verdict.Rule{
	{ID: RuleCSVFrozen, Outcomes: verdict.Denies, Backstop: true,
		Summary: "a governed ClusterServiceVersion is changed, or made to look like another operator or a copy, by another user than OLM"},
	{ID: RuleCSVVirtualOperator, Outcomes: verdict.Denies,
		Summary: "a virtual operator, by which cluster properties reach OLM's resolver, is written by another user than Opgate"},
}

// CSVInput is the input of JudgeCSV. Steps of a plan may be written as a ServiceAccount that the plan names.
type CSVInput Write[olm.CSV]

// JudgeCSV decides on creating or updating a ClusterServiceVersion. One that a running plan contains is judged by the
// present policies and Constraints, whenever its plan was approved (csv_step.go). One that bypasses OLM is judged by
// its own contents, and comes from no catalog. Only OLM may change one that a policy governs. Only Opgate
// may write virtual operators.
func JudgeCSV(in CSVInput) verdict.Verdict {
	v := verdict.Verdict{Object: "clusterserviceversion " + in.New.Metadata.Key()}
	judgeVirtualOperator(&in, &v)
	if v.Decision != verdict.Allow || in.New.IsVirtual() || !in.Namespace.Judged() && !in.Namespace.Protected() ||
		!in.matters() {
		return v
	}
	if in.Old != nil && in.Old.Metadata.Labels.CopiedFrom != "" &&
		in.Old.Metadata.Labels.CopiedFrom != in.New.Metadata.Labels.CopiedFrom {
		in.Old = nil // a copy runs nothing: this write installs the operator, or is a copy from another namespace
	}
	budget := constraint.NewBudget(in.Interrupt)
	if steps := in.steps(); len(steps) > 0 {
		in.judgeSteps(steps, budget, &v)
		return v.Sorted()
	}
	c := in.bundle(in.New)
	var before *carrier.Bundle
	if in.Old != nil {
		before = in.bundle(in.Old) // an existing violation is no reason to refuse an update
		judgeFrozenCSV(&in, before, &v)
	}
	judgeBypassingOLM(&in, c, before, &v)
	known := in.findings(before, budget)
	violated := in.findings(c, budget)
	for _, f := range slices.Concat(violated, in.selfCertifying(c, violated, budget)) {
		if !sameIn(known, &f) || in.changesRead(&f, before, c) {
			state.RecordConstraint(&v, bundle.RuleConstraint, "this ClusterServiceVersion", &f)
		}
	}
	return v.Sorted()
}

// bundle returns the ClusterServiceVersion that is written, or the stored one, as what no plan brings.
func (in *CSVInput) bundle(csv *olm.CSV) *carrier.Bundle {
	return carrier.OfCSV(csv, in.Namespace, in.Old != nil)
}

// findings returns the Constraints that a ClusterServiceVersion without a plan does not satisfy; none for nil.
func (in *CSVInput) findings(c *carrier.Bundle, budget *constraint.Budget) []constraint.Result {
	if c == nil {
		return nil
	}
	read := c.ForConstraints(in.Namespace)
	// it is the only source of its other attributes
	read.Unknown &= constraint.Scope | constraint.Deprecation | constraint.ChangeSet | constraint.Config
	if read.Release = c.Release; c.Ambiguous {
		read.Unknown |= constraint.Release
	}
	if c.BypassesOLM {
		read.Channel = ""
	}
	return in.Namespace.Constraints().Judge(read, in.Namespace.ForConstraints(), budget)
}

// changesRead reports whether an update changes anything that a violated Constraint reads of a ClusterServiceVersion.
// Only an update that does not is excused by a violation that existed before: else a small one would excuse every
// larger one.
func (in *CSVInput) changesRead(f *constraint.Result, before, after *carrier.Bundle) bool {
	was, is := before.ForConstraints(in.Namespace), after.ForConstraints(in.Namespace)
	changed := was.Unknown ^ is.Unknown
	if was.Package != is.Package {
		changed |= constraint.Package | constraint.Channel | constraint.Deprecation
	}
	if was.Version != is.Version {
		changed |= constraint.Version
	}
	if was.Release != is.Release {
		changed |= constraint.Release
	}
	if !slices.EqualFunc(was.Properties, is.Properties, carrier.SameProperty) {
		changed |= constraint.Properties
	}
	uses := ^constraint.Attributes(0) // a Constraint that cannot be read may read anything
	if f.Constraint != nil {
		uses = f.Constraint.Uses()
	}
	return uses&changed != 0 || uses&constraint.Contents != 0 && before.Spec.SpecDigest() != after.Spec.SpecDigest() ||
		uses&constraint.Annotations != 0 && before.Spec.AnnotationsDigest() != after.Spec.AnnotationsDigest()
}

// matters reports whether a write may change what is installed: a copy that OLM creates in another namespace does not,
// nor do OLM's annotations on an installed one.
func (in *CSVInput) matters() bool {
	if in.Old != nil {
		return !in.ByOLM && in.changed()
	}
	// OLM repeats steps. The API server calls admission before it reports that the object already exists; if refused,
	// OLM would never learn that the step is done.
	return !in.ByOLM || in.New.Metadata.Labels.CopiedFrom == "" && !in.Namespace.Installs(in.New.Metadata.Name)
}

// judgeBypassingOLM applies the policies to a ClusterServiceVersion that no running plan contains. Exceptions are about
// what plans bring, so that none counts: under the name of one a user could install anything.
func judgeBypassingOLM(in *CSVInput, c, before *carrier.Bundle, v *verdict.Verdict) {
	ns := in.Namespace
	unknown := in.unknownPackage(c, before)
	bundle.JudgeUnknown(&carrier.Bundle{Bundle: olm.Bundle{Name: c.Name}, Unknown: unknown,
		Ambiguous: c.Ambiguous && unknown == c.Unknown}, ns, v)
	hidden := in.Old != nil && in.Old.Metadata.Labels.CopiedFrom == "" && in.New.Metadata.Labels.CopiedFrom != ""
	if before != nil && (before.Package != c.Package || hidden) {
		// else its next upgrade would count as a first installation
		for _, p := range ns.Governing(before.Package) {
			p.Record(v, RuleCSVFrozen, verdict.NotAllowed("making something else than package "+
				text.Name(before.Package)+" of "+text.Name(c.Name),
				"delete it, and let OLM install the other package").At("metadata"))
		}
	}
	bundle.JudgeContents(ns, c, before, v)
}

// unknownPackage returns why the package of a ClusterServiceVersion is not known, or "" if it is, or if it was not
// known before either. Users have to write the package as OLM does: the API server, which holds the write while no
// replica answers, does not decode properties, so another form would hide the package from it.
func (in *CSVInput) unknownPackage(c, before *carrier.Bundle) string {
	named := func(csv *olm.CSV) bool { return olm.NamesPackage(csv.Metadata.Annotations.Properties) }
	switch {
	case c.Unknown != "" && (before == nil || before.Unknown == ""):
		return c.Unknown
	case in.ByOLM || in.ByOpgate || named(in.New) || in.Old != nil && !named(in.Old):
		return ""
	}
	return "annotation " + metakey.Properties + " does not name it once, in the form that OLM writes"
}

// changed reports whether an update changes the contents of the operator or its description.
func (in *CSVInput) changed() bool {
	return in.Old.ChangedField(in.New) != "" || in.Old.Metadata.Labels.CopiedFrom != in.New.Metadata.Labels.CopiedFrom
}

// judgeFrozenCSV keeps a governed ClusterServiceVersion as OLM installed it: its name, version and catalog
// were judged, and its contents are those of the catalog under that name. Restoring what is recorded is not a change; a
// plan is no evidence of that.
func judgeFrozenCSV(in *CSVInput, before *carrier.Bundle, v *verdict.Verdict) {
	field := in.Old.ChangedField(in.New)
	if field == "" || in.ByOpgate || in.restores() {
		return
	}
	f := verdict.NotAllowed("changing "+field+" of "+text.Name(before.Name),
		"it stays as OLM installed it; let OLM install another version, or set what spec.config of its "+
			"Subscription offers").At(field)
	if before.Unknown != "" && in.Namespace.Governed() {
		state.RecordForNamespace(v, in.Namespace, RuleCSVFrozen, f)
	}
	for _, p := range in.Namespace.Governing(before.Package) {
		p.Record(v, RuleCSVFrozen, f)
	}
}

// restores reports whether an update writes back what is recorded. Properties are not, nor annotations by an earlier
// release.
func (in *CSVInput) restores() bool {
	was, is := &in.Old.Spec, &in.New.Spec
	r := in.Namespace.Recorded(in.New.Metadata.Name)
	return in.Namespace.IsRecorded(in.New.Metadata.Name, is) &&
		in.Old.Metadata.Annotations.Properties == in.New.Metadata.Annotations.Properties &&
		(r.Annotations != "" || was.AnnotationsDigest() == is.AnnotationsDigest())
}

// judgeVirtualOperator lets only Opgate write virtual operators.
func judgeVirtualOperator(in *CSVInput, v *verdict.Verdict) {
	if in.ByOpgate {
		return
	}
	deny := func(what string) {
		v.Add(RuleCSVVirtualOperator, verdict.Finding{Decision: verdict.Deny, What: what,
			Accepted: "Opgate makes it from the properties of the Constraint; change those instead"})
	}
	switch is, was := in.New.IsVirtual(), in.Old != nil && in.Old.IsVirtual(); {
	case was && (in.changed() || !in.New.IsVirtual() ||
		*in.Old.Metadata.Labels.VirtualOperator != *in.New.Metadata.Labels.VirtualOperator):
		deny("changing the virtual operator of Constraint " + text.Name(*in.Old.Metadata.Labels.VirtualOperator) +
			" is not allowed")
	case is && !was:
		deny("a virtual operator, which label " + metakey.VirtualOperator + " makes it, is for Opgate alone to write")
	}
}

// selfCertified is why what an operator states of itself past OLM satisfies no Constraint.
const selfCertified = "only properties that the ClusterServiceVersion states of itself satisfy it, and no catalog confirms these"

// selfCertifying returns the Constraints, other than those violated, that a ClusterServiceVersion satisfies only by
// properties that its author writes past OLM. Such properties can make it refused, and never allowed; what
// it is, its package and its APIs, counts as stated.
func (in *CSVInput) selfCertifying(
	c *carrier.Bundle, violated []constraint.Result, budget *constraint.Budget,
) []constraint.Result {
	isWritten := in.Old == nil || in.Old.Metadata.Annotations.Properties != in.New.Metadata.Annotations.Properties
	if in.ByOLM || in.ByOpgate || !isWritten || !in.Namespace.Constraints().Reads(constraint.Properties) {
		return nil
	}
	without := *c
	without.Properties = slices.DeleteFunc(slices.Clone(c.Properties), func(p olm.Property) bool {
		return p.Type != olm.TypePackage && p.Type != olm.TypeGVK
	})
	if len(without.Properties) == len(c.Properties) {
		return nil
	}
	var more []constraint.Result
	for _, f := range in.findings(&without, budget) { // a shared slice
		if !sameIn(violated, &f) {
			f.Outcome, f.Why, f.Attributes = constraint.Undecided, selfCertified, constraint.Properties
			more = append(more, f)
		}
	}
	return more
}

// sameIn reports whether findings have one of the same Constraint.
func sameIn(all []constraint.Result, f *constraint.Result) bool {
	return slices.ContainsFunc(all, func(other constraint.Result) bool {
		return other.Definition == f.Definition && other.Constraint == f.Constraint
	})
}

// A virtual operator is a ClusterServiceVersion without a Subscription that exposes the properties of a Constraint to
// OLM's resolver: it reads those of all ClusterServiceVersions in a namespace.
const (
	virtualOperatorPrefix = "opgate-properties-"
	// maxLabelValue is the maximum length of a label value, in bytes.
	maxLabelValue = 63
)

// VirtualOperatorName returns the name of the ClusterServiceVersion for a Constraint. It is truncated so that it also
// fits where OLM derives labels from it.
func VirtualOperatorName(constraint string) string {
	return truncateName(virtualOperatorPrefix + constraint)
}

// VirtualOperatorLabelValue returns the value of the label for a Constraint.
func VirtualOperatorLabelValue(constraint string) string { return truncateName(constraint) }

// truncateName truncates names, and keeps different ones different.
func truncateName(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:5])
	return name[:maxLabelValue-len(digest)-1] + "-" + digest
}
