package compliance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	reasonNoPlans       = "NoInstallPlansFound"
	reasonNothingToPass = "NoInstallPlansRequiringApproval"
	// reasonRequiresApproval is for a plan that waits.
	reasonRequiresApproval = "InstallPlanRequiresApproval"
)

// plan returns the relevant InstallPlan of the Subscription: the one that the Subscription refers to,
// else the newest for its version. missing is the name of a plan that is referred to and does not exist.
func (e *evaluation) plan() (plan *olm.InstallPlan, missing string) {
	sub := e.subscription
	if sub == nil || sub.Status.CurrentCSV == "" && sub.Status.InstalledCSV == "" {
		return nil, ""
	}
	if plan := e.referred(); plan != nil {
		return plan, ""
	}
	for _, csv := range []string{sub.Status.CurrentCSV, sub.Status.InstalledCSV} {
		if plan := newestFor(e.Namespace.Plans(), csv); plan != nil {
			return plan, sub.Status.InstallPlan.Name
		}
	}
	return nil, sub.Status.InstallPlan.Name
}

// newestFor returns the newest plan that installs a ClusterServiceVersion. A plan that is installing or complete
// takes precedence: OLM creates duplicates of plans that it has already handled.
func newestFor(plans []*olm.InstallPlan, csv string) *olm.InstallPlan {
	var newest *olm.InstallPlan
	rank := func(p *olm.InstallPlan) int {
		if p.Status.Phase == olm.PhaseInstalling || p.Status.Phase == olm.PhaseComplete {
			return 1
		}
		return 0
	}
	for _, p := range plans {
		if csv == "" || !slices.Contains(p.Spec.CSVNames, csv) {
			continue
		}
		if newest == nil || cmp.Or(cmp.Compare(rank(p), rank(newest)),
			cmp.Compare(p.Spec.Generation, newest.Spec.Generation)) > 0 {
			newest = p
		}
	}
	return newest
}

// installPlan reports whether an installation or an upgrade is pending, in progress or failed.
func (e *evaluation) installPlan() Condition {
	f := Condition{Type: TypeInstallPlan, Status: metav1.ConditionTrue}
	plan, missing := e.plan()
	if plan == nil {
		f.Reason, f.Message = reasonNoPlans, "there are no relevant InstallPlans in namespace "+e.wanted.namespace
		if missing != "" {
			f.Message += "; " + text.Name(missing) + ", which the Subscription refers to, no longer exists"
		}
		f.Related = []policyv1beta2.RelatedObject{e.related(kindInstallPlan,
			olm.ObjectMeta{Namespace: e.wanted.namespace, Name: noName}, policyv1beta2.Compliant, relatedNoPlans)}
		return f
	}
	phase := plan.Status.Phase
	state := compliantIf(phase == olm.PhaseComplete)
	switch phase {
	case olm.PhaseRequiresApproval:
		f.Status, f.Reason, f.Message = e.pending(plan)
		state = compliantIf(f.Status == metav1.ConditionTrue)
	case olm.PhaseInstalling:
		// An installation in progress is not a fault of the operator; what is missing meanwhile counts
		// elsewhere. Except a step that the account of the OperatorGroup may not do: OLM repeats it without end.
		tolerated := e.mayProgress() && !strings.Contains(plan.Status.Message, " is forbidden: ")
		f.Status, state = statusIf(tolerated), compliantIf(tolerated)
		f.Reason, f.Message = "InstallPlansInstalling", "the InstallPlan "+planName(plan)+" is installing"+
			olmError(plan)
	case olm.PhaseFailed:
		f.Reason, f.Message = reasonNothingToPass, noneRequiringApproval
		if e.failed(plan) {
			f.Status, f.Reason, f.Message = metav1.ConditionFalse, "InstallPlanFailed",
				"the InstallPlan "+planName(plan)+" has failed"+olmError(plan)
		}
	default:
		f.Reason, f.Message = reasonNothingToPass, noneRequiringApproval
		current := e.subscription.Status.CurrentCSV
		if phase == olm.PhaseComplete && !e.mayProgress() && current != e.subscription.Status.InstalledCSV &&
			slices.Contains(plan.Spec.CSVNames, current) {
			f.Status, f.Reason, f.Message = metav1.ConditionFalse, "InstallPlansInstalling", "the InstallPlan "+
				planName(plan)+" is complete, and OLM does not report "+text.Name(current)+" as installed yet"
		}
	}
	f.Message += rules.OverrideText(plan, e.Now) + e.reviewed(plan) // the use of break-glass must be visible
	o := olm.ObjectMeta{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name, UID: plan.Metadata.UID}
	f.Related = []policyv1beta2.RelatedObject{e.related(kindInstallPlan, o, state,
		"The InstallPlan is "+cmp.Or(text.Truncate(phase, 100), "Unknown"))}
	return f
}

// mayProgress reports whether an upgrade that is carried out leaves the policy Compliant.
func (e *evaluation) mayProgress() bool {
	return e.config.UpgradesProgressing == policyv1beta2.ConfigCompliant
}

const noneRequiringApproval = "no InstallPlans requiring approval were found"

func planName(p *olm.InstallPlan) string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// olmError returns OLM's last error with the steps of a plan, to follow a sentence; "" if it has none.
func olmError(p *olm.InstallPlan) string {
	if p.Status.Message == "" {
		return ""
	}
	return ": " + text.Truncate(p.Status.Message, foreignText)
}

// failed reports whether a failed plan failed for this operator: with several, it may have failed for another.
func (e *evaluation) failed(plan *olm.InstallPlan) bool {
	if len(plan.Spec.CSVNames) < 2 || len(plan.Status.Steps) == 0 {
		return true
	}
	return slices.ContainsFunc(plan.Status.Steps, func(s olm.Step) bool {
		return s.Resolving == e.subscription.Status.CurrentCSV && s.Status != "Created" && s.Status != "Present"
	})
}

// pending is for a plan in phase RequiresApproval.
func (e *evaluation) pending(plan *olm.InstallPlan) (metav1.ConditionStatus, string, string) {
	sub := e.subscription
	brings := slices.Contains(plan.Spec.CSVNames, sub.Status.CurrentCSV) && e.csvNamed(sub.Status.CurrentCSV) == nil
	if sub.Status.CurrentCSV == "" || sub.Status.CurrentCSV == sub.Status.InstalledCSV && !brings {
		// the plan is pending for another operator
		return metav1.ConditionTrue, reasonNothingToPass, noneRequiringApproval
	}
	current := text.Name(sub.Status.CurrentCSV)
	approval := e.Approvals[plan.Metadata.Name]
	if plan.Spec.Approved {
		return statusIf(e.mayProgress()), "InstallPlanApproved", "the InstallPlan " + planName(plan) + " for " + current +
			" was approved"
	}
	// complianceConfig is about upgrades. While nothing is installed, the operator is missing, which only an allow-list
	// permits.
	what, tolerated := "An installation of ", e.Policy.Spec.ComplianceType == policyv1beta2.MayHave
	if sub.Status.InstalledCSV != "" {
		what, tolerated = "An upgrade to ", e.config.UpgradesAvailable == policyv1beta2.ConfigCompliant
	}
	available := " is available on the default channel"
	if name := cmp.Or(sub.Spec.Channel, e.channel); name != "" {
		available = " is available on the " + text.Name(name) + " channel"
		if channel := e.manifest.Channel(name); e.manifest != nil &&
			(channel == nil || !channel.Has(sub.Status.CurrentCSV)) {
			available = " is planned, which the " + text.Name(name) + " channel is not known to have"
		}
	}
	e.waiting = waiting(current, &approval)
	message := fmt.Sprintf("%s%s%s, the InstallPlan %s for [%s] awaits approval", what, current, available,
		planName(plan), text.Names(slices.Sorted(slices.Values(plan.Spec.CSVNames)), maxListed))
	var why []string
	for _, r := range approval.Reasons {
		why = append(why, r.Message)
	}
	offered := e.offered(sub.Status.InstalledCSV)
	for _, more := range []string{approval.Stale, e.startOfOthers(), offered.NoneAllowed(),
		offered.NextStep(sub.Status.CurrentCSV)} {
		if more != "" {
			why = append(why, more)
		}
	}
	if approval.Problem != "" { // it is tried again
		tolerated = tolerated && e.mayProgress()
		why = append(why, "it could not be approved: "+text.Truncate(approval.Problem, foreignText))
	}
	if len(why) > 0 {
		message += "; " + sentences(why)
	}
	return statusIf(tolerated), reasonRequiresApproval, message
}

// waiting names a ClusterServiceVersion that waits for approval, and what for. What no rule holds a user may approve.
func waiting(csv string, a *Approval) string {
	held := filter(a.Reasons, func(r verdict.Reason) bool { return r.Rule != "" })
	switch {
	case a.Problem != "":
		return csv + " (Opgate, which tries again)"
	case len(held) == 0:
		return csv + " (a user)"
	case len(held) == 1:
		return csv + " (" + string(held[0].Rule) + ")"
	}
	return fmt.Sprintf("%s (%s +%d)", csv, held[0].Rule, len(held)-1)
}
