package rules

import (
	"slices"

	"github.com/opgate/opgate/rules/constraint"
)

// CSVInput is all that judging a ClusterServiceVersion needs.
type CSVInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old  *CSV
	Namespace *Namespace
	// ByOLM and ByOpgate tell whether the write comes from OLM's own identity, or from Opgate's.
	ByOLM, ByOpgate bool
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgeCSV decides on creating or changing a ClusterServiceVersion. What a plan brings was judged with the plan, but
// for plans that were approved from the start, and but for what is in it, which a plan with an image does not tell.
// What is made past OLM is judged by what it says of itself, and comes from no catalog (threat O9). The virtual
// operators are nobody's to write but Opgate's.
func JudgeCSV(in CSVInput) Verdict {
	v := Verdict{Object: "clusterserviceversion " + in.New.Metadata.key()}
	judgeVirtualOperator(&in, &v)
	if v.Decision != Allow || in.New.virtualOperator() || !in.Namespace.judged() || !in.matters() {
		return v
	}
	c, plan := in.gather()
	var before *planCSV
	if in.Old != nil {
		before = in.described(in.Old) // what is wrong with it already is no reason against a change
	}
	if plan == nil && !in.ByOLM {
		judgePastOLM(&in, c, before, &v)
	}
	budget := constraint.NewBudget(in.Interrupt)
	known := in.findings(before, nil, budget)
	for _, f := range in.findings(c, plan, budget) {
		judgedWithPlan := plan != nil && plan.Spec.Approval == ApprovalManual && (f.Constraint == nil || f.Constraint.Uses()&constraint.Contents == 0)
		same := func(k constraint.Finding) bool { return k.Definition == f.Definition && k.Constraint == f.Constraint }
		if !judgedWithPlan && !slices.ContainsFunc(known, same) {
			v.recordConstraint(RuleCSVConstraint, "this ClusterServiceVersion", &f)
		}
	}
	return v.sorted()
}

// findings are the Constraints that a ClusterServiceVersion does not satisfy; none for nil.
func (in *CSVInput) findings(c *planCSV, plan *InstallPlan, budget *constraint.Budget) []constraint.Finding {
	if c == nil {
		return nil
	}
	bundle := c.bundle(in.Namespace)
	if plan == nil {
		bundle.Unknown = 0 // what it does not say of itself nobody says
	}
	if c.pastOLM {
		bundle.Channel = ""
	}
	return in.Namespace.Constraints().Judge(bundle, in.Namespace.Facts(), budget)
}

// matters tells whether a write may change what is installed: a copy that OLM makes for another namespace does not,
// nor does what OLM notes on what it has installed.
func (in *CSVInput) matters() bool {
	if in.Old != nil {
		return !in.ByOLM && in.changed()
	}
	// OLM repeats steps. The API server asks about the creation of what is there already, and only then says so; refused,
	// OLM would never learn that the step is done.
	there := slices.ContainsFunc(in.Namespace.Installed(), func(c Installed) bool { return c.CSV == in.New.Metadata.Name && c.spec != nil })
	return !in.ByOLM || in.New.Metadata.Labels.CopiedFrom == "" && !there
}

// gather makes of the ClusterServiceVersion what judging reads, and finds the running plan that brings it, if one does.
func (in *CSVInput) gather() (*planCSV, *InstallPlan) {
	for _, plan := range in.Namespace.Plans() {
		running := plan.Status.Phase != PhaseComplete && plan.Status.Phase != PhaseFailed
		// OLM writes for none that is not approved: if this one is not, the snapshot lags behind.
		if in.Old != nil || !running || !plan.Spec.Approved && !in.ByOLM {
			continue
		}
		csvs := csvsOf(plan, in.Namespace)
		if i := slices.IndexFunc(csvs, func(c planCSV) bool { return c.name == in.New.Metadata.Name }); i >= 0 {
			csvs[i].spec = &in.New.Spec
			return &csvs[i], plan
		}
	}
	return in.described(in.New), nil
}

// described is a ClusterServiceVersion by what it says of itself and, if it is installed, by its Subscription.
func (in *CSVInput) described(csv *CSV) *planCSV {
	c := &planCSV{name: csv.Metadata.Name, spec: &csv.Spec, pastOLM: in.Old == nil}
	c.describe(csv.Metadata.Annotations.Properties)
	c.attribute(in.Namespace)
	for _, installed := range in.Namespace.Installed() {
		if in.Old != nil && installed.CSV == c.name {
			c.from(installed.Catalog)
		}
	}
	return c
}

// judgePastOLM holds what nobody let OLM install against the policies.
func judgePastOLM(in *CSVInput, c, before *planCSV, v *Verdict) {
	ns := in.Namespace
	if c.unknown != "" && ns.governed() && (before == nil || before.unknown == "") {
		recordForNamespace(v, ns, RuleCSVPolicy, finding{decision: Hold,
			what: "the package of " + shown(c.name) + " is not known (" + c.unknown + ") and it is held", accepted: "let OLM install it, from a Subscription"})
	}
	if before != nil && (before.pkg != c.pkg || in.hidden()) {
		for _, p := range ns.governing(before.pkg) { // else its next upgrade would pass for a first installation (threat O10)
			v.record(RuleCSVPolicy, p, finding{decision: Deny, field: "metadata",
				what: "making something else than package " + shown(before.pkg) + " of " + shown(c.name) + " is not allowed", accepted: "delete it, and let OLM install the other package"})
		}
	}
	for _, p := range ns.governing(c.pkg) {
		for _, rule := range contentRules {
			f := rule.judge(c, p)
			if before == nil || before.pkg != c.pkg || f != rule.judge(before, p) {
				v.record(RuleCSVPolicy, p, f)
			}
		}
	}
}

// changed tells whether an update changes what the operator is, or says of itself.
func (in *CSVInput) changed() bool {
	return in.Old.Spec.digest != in.New.Spec.digest || in.hidden() ||
		in.Old.Metadata.Annotations.Properties != in.New.Metadata.Annotations.Properties
}

// hidden tells whether an update makes what is installed look like a copy of what is installed elsewhere.
func (in *CSVInput) hidden() bool {
	return in.Old.Metadata.Labels.CopiedFrom == "" && in.New.Metadata.Labels.CopiedFrom != ""
}

// judgeVirtualOperator keeps what Opgate shows OLM's resolver as it is.
func judgeVirtualOperator(in *CSVInput, v *Verdict) {
	if in.ByOpgate {
		return
	}
	deny := func(what string) {
		v.refuse(Reason{Rule: RuleCSVVirtualOperator, Decision: Deny, Message: sentence(what, RuleCSVVirtualOperator,
			"Opgate makes it from spec.properties of the Constraint; change that instead")})
	}
	switch is, was := in.New.virtualOperator(), in.Old != nil && in.Old.virtualOperator(); {
	case was && (in.changed() || in.Old.Metadata.Labels.VirtualOperator != in.New.Metadata.Labels.VirtualOperator):
		deny("changing the virtual operator of Constraint " + shown(in.Old.Metadata.Labels.VirtualOperator) + " is not allowed")
	case is && !was:
		deny("a virtual operator, which label " + VirtualOperatorLabel + " makes it, is for Opgate alone to write")
	}
}
