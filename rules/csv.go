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
// for plans that were approved from the start, and but for what is in it, which a plan with an image does not tell. What is made past OLM is judged by what it says of itself, and comes
// from no catalog (threat O9). The virtual operators are nobody's to write but Opgate's.
func JudgeCSV(in CSVInput) Verdict {
	v := Verdict{Object: "clusterserviceversion " + in.New.Metadata.key()}
	judgeVirtualOperator(&in, &v)
	if v.Decision != Allow || in.New.virtualOperator() || !in.Namespace.judged() || !in.matters() {
		return v
	}
	c, plan := in.gather()
	if plan == nil && !in.ByOLM {
		judgePastOLM(in.Namespace, c, &v)
	}
	c.spec = &in.New.Spec
	bundle := c.bundle(in.Namespace)
	if plan == nil {
		bundle.Channel, bundle.Unknown = "", 0 // what it does not say of itself nobody says
	}
	judgedBefore := plan != nil && plan.Spec.Approval == ApprovalManual
	for _, f := range in.Namespace.Constraints().Judge(bundle, in.Namespace.Facts(), constraint.NewBudget(in.Interrupt)) {
		if judgedBefore && (f.Constraint == nil || f.Constraint.Uses()&constraint.Contents == 0) {
			continue
		}
		v.recordConstraint(RuleCSVConstraint, "this ClusterServiceVersion", &f)
	}
	return v.sorted()
}

// matters tells whether a write may change what is installed: a copy that OLM makes for another namespace does not,
// nor does what OLM notes on what it has installed.
func (in *CSVInput) matters() bool {
	if in.Old != nil {
		return !in.ByOLM && in.changed()
	}
	return !in.ByOLM || in.New.Metadata.Labels.CopiedFrom == ""
}

// gather makes of the ClusterServiceVersion what judging reads, and finds the running plan that brings it, if one does.
func (in *CSVInput) gather() (*planCSV, *InstallPlan) {
	name := in.New.Metadata.Name
	for _, plan := range in.Namespace.Plans() {
		running := plan.Status.Phase != PhaseComplete && plan.Status.Phase != PhaseFailed
		if in.Old != nil || !running || !plan.Spec.Approved {
			continue
		}
		csvs := csvsOf(plan, in.Namespace)
		if i := slices.IndexFunc(csvs, func(c planCSV) bool { return c.name == name }); i >= 0 {
			return &csvs[i], plan
		}
	}
	c := &planCSV{name: name, pastOLM: in.Old == nil && !in.ByOLM}
	c.describe(in.New.Metadata.Annotations.Properties)
	c.attribute(in.Namespace)
	return c, nil
}

// judgePastOLM holds what nobody let OLM install against the policies.
func judgePastOLM(ns *Namespace, c *planCSV, v *Verdict) {
	if c.unknown != "" && ns.governed() {
		recordForNamespace(v, ns, RuleCSVPolicy, finding{decision: Hold,
			what: "the package of " + shown(c.name) + " is not known (" + c.unknown + ") and it is held", accepted: "let OLM install it, from a Subscription"})
	}
	for _, p := range ns.governing(c.pkg) {
		for _, rule := range contentRules {
			v.record(RuleCSVPolicy, p, rule.judge(c, p))
		}
	}
}

// changed tells whether an update changes what the operator is, or says of itself.
func (in *CSVInput) changed() bool {
	return in.Old.Spec.digest != in.New.Spec.digest || in.Old.Metadata.Annotations.Properties != in.New.Metadata.Annotations.Properties
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
