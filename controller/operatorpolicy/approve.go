package operatorpolicy

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// outdatedRetry is the requeue delay after what an approval depends on has changed; its event is earlier, unless the
// watch is stalled.
const outdatedRetry = time.Second

// approvals are the results for the pending plans of a namespace.
type approvals struct {
	// byPlan are those of plans that are not approved.
	byPlan map[string]compliance.Approval
	// done are the plans that were approved.
	done []*olm.InstallPlan
	// held are those that the loop does not approve.
	held []hold
	// stale is set if a plan, or what it was judged by, has changed since, or was deleted. Its event enqueues the
	// namespace.
	stale bool
	// after is the delay until a stale plan may be deleted, or another approved; 0 for none.
	after time.Duration
	// lagging is set if the API server itself still judges by earlier policies.
	lagging bool
}

// approve approves the plans of a namespace that the rules let the loop approve, and returns those, and why each other
// pending plan is not approved. The metrics receive it, too.
func (r *reconciler) approve(
	ctx context.Context, current *snapshot.Snapshot, ns *state.Namespace, mode rules.UngovernedMode, metrics *judgement,
) (*approvals, error) {
	defer metrics.end()
	all := &approvals{byPlan: map[string]compliance.Approval{}}
	var errs []error
	confirmed := map[source]bool{}
	deletionDelay, because := r.state.deletionDelay(ns.Name(), r.Now(), createdBy(current))
	state := r.state.namespace(ns.Name())
	for _, plan := range ns.Plans() {
		in := rules.ApprovalInput{Plan: plan, Namespace: ns, Ungoverned: mode, Now: r.Now()}
		judged := rules.JudgeApproval(in)
		if !judged.IsCandidate {
			continue
		}
		metrics.judged(plan, &judged, rules.UpgradeDeadline(ns, plan))
		a := compliance.Approval{Reasons: judged.Why()}
		switch {
		case !judged.Should():
			removed, stays, after, err := r.removeStale(ctx, ns, plan)
			if removed {
				all.stale = true
				continue
			}
			a.Stale, all.after = stays, earlier(all.after, after)
			errs = append(errs, err)
			all.held = append(all.held, holdOf(plan, &judged))
		case deletionDelay > 0 && onlyUngoverned(in):
			a.Reasons, all.after = []verdict.Reason{{Message: because}}, earlier(all.after, deletionDelay)
		default:
			err := r.confirm(ctx, current, ns, &judged, confirmed)
			if err == nil {
				err = r.writer.Approve(ctx, plan)
			}
			switch {
			case err == nil:
				log.FromContext(ctx).Info("plan approved", "namespace", plan.Metadata.Namespace,
					"name", plan.Metadata.Name, "csvs", plan.Spec.CSVNames, "consents",
					consentTexts(judged.Verdict.Consents))
				r.reportApproval(plan, &judged.Verdict)
				metrics.approved(plan)
				all.done = append(all.done, plan)
				continue
			case apply.Outdated(err):
				all.stale, all.after = true, earlier(all.after, outdatedRetry)
				continue
			case refusedByBackstop(err) && state.lags(r.Now()) < backstopLag:
				all.lagging = true
				continue
			default:
				a.Problem = err.Error()
				errs = append(errs, err)
			}
		}
		all.byPlan[plan.Metadata.Name] = a
	}
	all.after = earlier(all.after, r.untilChange(ns))
	errs = append(errs, r.recordEnds(ctx, ns))
	if !all.lagging && errors.Join(errs...) == nil {
		state.refused = time.Time{}
	}
	return all, errors.Join(errs...)
}

// createdBy returns a function that names the Policy with a template of an OperatorPolicy.
func createdBy(current *snapshot.Snapshot) func(types.NamespacedName) string {
	return func(name types.NamespacedName) string {
		by := current.Graph().CreatedBy(dependency.OperatorPolicyRef(name.Namespace, name.Name))
		if by == "" {
			return ""
		}
		return "Policy " + text.Name(by)
	}
}

// onlyUngoverned reports whether a plan is approved only because a part of it has no policy.
func onlyUngoverned(in rules.ApprovalInput) bool {
	in.Ungoverned = rules.HoldUngoverned
	judged := rules.JudgeApproval(in)
	return !judged.Should()
}

// consentTexts returns the consents by which a plan was approved, for the log.
func consentTexts(consents []verdict.Consent) []string {
	var texts []string
	for i := range consents {
		texts = append(texts, consents[i].String())
	}
	return texts
}

// ungoverned returns the mode of the namespace's annotation, else that of the options. An unknown value counts as hold.
func (r *reconciler) ungoverned(current *snapshot.Snapshot, namespace string) rules.UngovernedMode {
	return rules.UngovernedIn(current.NamespaceAnnotations(namespace), r.Ungoverned)
}
