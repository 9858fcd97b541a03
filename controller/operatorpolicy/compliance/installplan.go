package compliance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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

// interventionDelay is the time that OLM has to repair a stuck Subscription by itself.
const interventionDelay = 30 * time.Second

const reasonUnsatisfiable = "ConstraintsNotSatisfiable"

// unresolved returns the condition on a Subscription that OLM cannot resolve, nil if it can. OLM writes
// the failure of one Subscription to every other in the namespace; one that the constraints do not mention
// is healthy.
func (e *evaluation) unresolved() *Condition {
	sub := e.subscription
	c := sub.Condition(TypeResolutionFailed)
	if c == nil || e.failureOutdated() {
		return nil
	}
	f := condition(TypeSubscription, metav1.ConditionFalse, reasonOr(c.Reason, TypeResolutionFailed), "")
	switch {
	case !strings.EqualFold(c.Reason, reasonUnsatisfiable):
		f.Since = since(c)
		f.Message = cmp.Or(text.Truncate(c.Message, foreignText), "OLM could not resolve the Subscription "+
			named(&sub.Metadata))
	case !e.mentioned(c.Message):
		return nil
	default:
		// OLM's own text may be long, and is in another condition.
		f.Reason = reasonUnsatisfiable
		f.Message = "the constraints of the Subscription " + named(&sub.Metadata) +
			" are not satisfiable; see the message of its condition ResolutionFailed"
	}
	f.Related = append(f.Related, e.related(kindSubscription, sub.Metadata, policyv1beta2.NonCompliant, f.Reason))
	return &f
}

// mentioned reports whether a message of the resolver mentions the policy's Subscription or its package.
func (e *evaluation) mentioned(message string) bool {
	for _, about := range []string{
		"subscription " + e.subscription.Metadata.Name, "subscription " + named(&e.subscription.Metadata),
		"package " + e.wanted.name, "package " + e.wanted.namespace + "/" + e.wanted.name,
	} {
		for rest := message; ; {
			_, after, found := strings.Cut(rest, about)
			if !found {
				break
			}
			if after == "" || strings.ContainsAny(after[:1], " \t\r\n,:") {
				return true
			}
			rest = after
		}
	}
	return false
}

// failureOutdated is rules.FailureOutdated, also while OLM replaces a ClusterServiceVersion: it resolves once more after
// that.
func (e *evaluation) failureOutdated() bool {
	return rules.FailureOutdated(e.subscription, e.csvs()) || e.upgrade != nil && len(rules.Unreferenced(e.subscription)) > 0
}

// intervention returns the time of the intervention, and the duration until then. The time is not changed
// once it is set, and stays due as long as the Subscription is stuck.
func (e *evaluation) intervention() (*metav1.Time, time.Duration) {
	at := e.Policy.Status.SubscriptionInterventionTime
	if at == nil || at.Sub(e.Now) > interventionDelay {
		set := metav1.NewTime(e.Now.Add(interventionDelay).Truncate(time.Second))
		at = &set
	}
	if wait := at.Sub(e.Now); wait > 0 {
		return at, wait + time.Second // one second more, so that the time has passed by then
	}
	return at, 0
}

// relink makes the Subscription refer to its ClusterServiceVersion again if it has lost that, whatever the policy requires
// of the operator; f is the condition on the Subscription. A policy that informs reports what a user can do.
func (e *evaluation) relink(out *Outcome, f *Condition) []Action {
	if e.subscription == nil || e.failureOutdated() {
		return nil
	}
	csv := rules.Lost(e.subscription, e.Namespace.CSVs())
	if by := rules.RepairByHand(e.subscription, e.Namespace); by != "" && !e.enforced {
		f.Message += "; " + by
	}
	if csv == nil || !e.enforced {
		return nil
	}
	lost, csvName := "lost track of its ClusterServiceVersion ", text.Name(csv.Metadata.Name)
	at, after := e.intervention()
	out.Intervention = at
	if f.Message += "; it " + lost + csvName + " and is linked with it again at " + at.UTC().Format(time.RFC3339); after > 0 {
		out.again(after)
		return nil
	}
	live := e.stored()
	repaired := with(live, csv.Metadata.Name, "status", "currentCSV")
	repaired = with(repaired, cmp.Or(e.subscription.Status.LastUpdated, e.Now.UTC().Format(time.RFC3339)), "status",
		"lastUpdated") // OLM's schema requires it
	failed, done := *f, e.updated()
	failed.Message = "the Subscription " + named(&e.subscription.Metadata) + " " + lost + csvName
	done.Message = "the Subscription " + named(&e.subscription.Metadata) + " was linked again with its ClusterServiceVersion " +
		csvName
	return []Action{{Status: true, Live: live, Object: repaired, Done: done, Failed: failed.because("linked again")}}
}
