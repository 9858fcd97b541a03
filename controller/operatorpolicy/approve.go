package operatorpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
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
	done []*metav1.PartialObjectMetadata
	// held are those that the loop does not approve.
	held []hold
	// stale is set if a plan, or what it was judged by, has changed since, or was deleted. Its event enqueues the
	// namespace.
	stale bool
	// after is the delay until a stale plan may be deleted, or another approved; 0 for none.
	after time.Duration
}

// approve approves the plans of a namespace that the rules let the loop approve, and returns those, and why each other
// pending plan is not approved. The metrics receive it, too.
func (r *Controller) approve(
	ctx context.Context, current *snapshot.Snapshot, ns *state.Namespace, mode rules.UngovernedMode, metrics *judgement,
) (*approvals, error) {
	defer metrics.end()
	all := &approvals{byPlan: map[string]compliance.Approval{}}
	var errs []error
	confirmed := map[source]bool{}
	deletionDelay, because := r.state.deletionDelay(ns.Name(), r.Now(), createdBy(current))
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
			var approved *metav1.PartialObjectMetadata
			err := r.confirm(ctx, current, ns, &judged, confirmed)
			if err == nil {
				approved, err = r.Writer.Approve(ctx, plan)
			}
			switch {
			case err == nil:
				log.FromContext(ctx).Info("plan approved", "namespace", plan.Metadata.Namespace,
					"name", plan.Metadata.Name, "csvs", plan.Spec.CSVNames, "consents",
					consentTexts(judged.Verdict.Consents))
				r.reportApproval(plan, &judged.Verdict)
				metrics.approved(plan)
				all.done = append(all.done, approved)
				continue
			case apply.Outdated(err):
				all.stale, all.after = true, earlier(all.after, outdatedRetry)
				continue
			case refusedByBackstop(err):
				a.Problem, all.after = err.Error(), earlier(all.after, backstopRetry)
			default:
				a.Problem = err.Error()
				errs = append(errs, err)
			}
		}
		all.byPlan[plan.Metadata.Name] = a
	}
	// The one timer of a namespace for approval windows, ages, overrides and consents, while a plan depends on one.
	now := r.Now()
	if next := rules.NextChange(ns, now); !next.IsZero() {
		all.after = earlier(all.after, next.Sub(now))
	}
	errs = append(errs, r.recordEnds(ctx, ns))
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

// holdDelay is how long a plan must be held for the same reason before that is reported: OLM's writes arrive one after
// another, and the contents of a plan are read after it, so the first verdicts on a plan often stand for milliseconds.
const holdDelay = 500 * time.Millisecond

// hold is a plan that the loop did not approve when it last reconciled its namespace.
type hold struct {
	plan   *olm.InstallPlan
	note   string
	policy verdict.PolicyRef
	// since is when it was first held for this reason.
	since time.Time
}

// holdOf returns the hold of a plan that is not approved.
func holdOf(plan *olm.InstallPlan, judged *rules.Approval) hold {
	return hold{plan: plan, note: judged.Note(), policy: judged.Verdict.Policy()}
}

// hold sets the held plans. Those that are held for the same reason as before are held since then.
func (n *namespaceState) hold(held []hold, now time.Time) {
	before := n.held
	n.held = make(map[types.UID]hold, len(held))
	for _, next := range held {
		uid := types.UID(next.plan.Metadata.UID)
		next.since = now
		if last, known := before[uid]; known && last.note == next.note {
			next.since = last.since
		}
		n.held[uid] = next
	}
}

// reportHolds records an event on each plan that has been held for its reason for a while; the recorder sends one for each
// reason. After is the delay until it is called again; 0 for not before something changes.
func (r *Controller) reportHolds(namespace string, held []hold) (after time.Duration) {
	now, state := r.Now(), r.state.namespace(namespace)
	state.hold(held, now)
	for _, one := range state.held {
		if wait := holdDelay - now.Sub(one.since); wait > 0 {
			after = earlier(after, wait)
			continue
		}
		r.Events.Record(events.Event{Regarding: planReference(one.plan), Related: one.policy.Reference(),
			Reason: events.Held, Action: events.Approve, Warning: true, Note: one.note})
	}
	return after
}

// reportApproval records an event on a plan that the loop has approved.
func (r *Controller) reportApproval(plan *olm.InstallPlan, v *verdict.Verdict) {
	r.Events.Record(events.Event{Regarding: planReference(plan), Reason: events.Approved, Action: events.Approve,
		Note: v.ApprovalNote("")})
}

func planReference(plan *olm.InstallPlan) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: olm.V1alpha1.String(), Kind: olm.KindInstallPlan,
		Namespace: plan.Metadata.Namespace,
		Name:      plan.Metadata.Name, UID: types.UID(plan.Metadata.UID)}
}

// source is a policy or a Constraint that a plan was judged by.
type source struct {
	kind     *snapshot.Kind
	concerns snapshot.Subject
	key      types.NamespacedName
}

// confirm reads the OperatorPolicies and Constraints that a plan was judged by from the API server, those once that are
// not in confirmed, and returns an error if one is not what the snapshot shows; if it was changed or deleted since, the
// error is Outdated. A watch that is stalled, or behind, approves nothing.
func (r *Controller) confirm(
	ctx context.Context, current *snapshot.Snapshot, ns *state.Namespace, judged *rules.Approval,
	confirmed map[source]bool,
) error {
	for _, s := range sourcesOf(ns, judged) {
		if confirmed[s] {
			continue
		}
		head := apply.Head(s.kind, s.key)
		if err := r.reader.Get(ctx, s.key, head); err != nil {
			return fmt.Errorf("read %s %s: %w", s.kind.Kind, s.key, err)
		}
		known := current.Object(s.kind, s.concerns, s.key)
		if known == nil || known.UID != head.UID || known.ResourceVersion != head.ResourceVersion {
			resource := s.kind.GroupVersionResource().GroupResource()
			return apierrors.NewConflict(resource, s.key.Name, errors.New("the watch does not show it yet"))
		}
		confirmed[s] = true
	}
	return nil
}

// sourcesOf returns the OperatorPolicies that govern a package of a plan, and the Constraints that apply in its
// namespace.
func sourcesOf(ns *state.Namespace, judged *rules.Approval) []source {
	var all []source
	for _, p := range ns.Policies() {
		if slices.ContainsFunc(judged.Verdict.CSVs, func(c verdict.CSV) bool { return c.Package == p.Package }) {
			key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
			all = append(all, source{snapshot.OperatorPolicies, snapshot.InNamespace(p.Concerns()), key})
		}
	}
	for _, d := range ns.Constraints().Applicable(ns.ForConstraints()) {
		all = append(all, source{snapshot.Constraints, snapshot.InCluster(), types.NamespacedName{Name: d.Name}})
	}
	return all
}

// backstopRetry is the requeue delay after the API server itself refused an approval: after a policy is edited its
// admission policy is written at the same time as plans are approved, and takes effect within two seconds.
const backstopRetry = 250 * time.Millisecond

// refusedByBackstop reports whether the API server itself refused a write, by the admission policy that policies are
// compiled to.
func refusedByBackstop(err error) bool {
	_, policy := rules.RefusedBy(err)
	return policy == backstop.Name
}
