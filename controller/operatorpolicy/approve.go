package operatorpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// approvals are the results for the pending plans of a namespace.
type approvals struct {
	byPlan map[string]compliance.Approval
	// done are the plans that were approved.
	done []*olm.InstallPlan
	// stale is set if a plan has changed since it was judged. Its event enqueues the namespace.
	stale bool
}

// approve approves the plans of a namespace that the rules let the loop approve, and returns the result for each pending
// plan.
func (r *reconciler) approve(ctx context.Context, ns *rules.Namespace, mode rules.UngovernedMode) (*approvals, error) {
	all := &approvals{byPlan: map[string]compliance.Approval{}}
	var errs []error
	for _, plan := range ns.Plans() {
		judged := rules.JudgeApproval(rules.ApprovalInput{Plan: plan, Namespace: ns, Ungoverned: mode})
		if !judged.IsCandidate {
			continue
		}
		a := compliance.Approval{Blockers: judged.Blockers}
		if judged.Should() {
			err := r.approvePlan(ctx, plan)
			switch {
			case err == nil:
				a.Done = true
				all.done = append(all.done, plan)
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				all.stale = true
				continue
			default:
				a.Problem = err.Error()
				errs = append(errs, err)
			}
		}
		all.byPlan[plan.Metadata.Name] = a
	}
	return all, errors.Join(errs...)
}

// ungoverned returns the mode of the namespace's annotation, else that of the options. An unknown value counts as hold.
func (r *reconciler) ungoverned(current *snapshot.Snapshot, namespace string) rules.UngovernedMode {
	if mode := current.NamespaceAnnotations(namespace)[UngovernedAnnotation]; mode != "" {
		return rules.UngovernedMode(mode)
	}
	return r.Ungoverned
}

// approvePlan stores the approval only if the plan is in the state that was judged: if OLM or another replica has changed
// it since, it fails with a conflict.
func (r *reconciler) approvePlan(ctx context.Context, plan *olm.InstallPlan) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": plan.Metadata.ResourceVersion},
		"spec":     map[string]any{"approved": true},
	})
	if err != nil {
		return err
	}
	object := headOnly(gvkPlan) // the response is not needed, and plans are large
	object.SetNamespace(plan.Metadata.Namespace)
	object.SetName(plan.Metadata.Name)
	err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	r.Metrics.approved(err)
	if err != nil {
		return fmt.Errorf("approve InstallPlan %s/%s: %w", plan.Metadata.Namespace, plan.Metadata.Name, err)
	}
	log.FromContext(ctx).Info("plan approved", "plan", plan.Metadata.Name, "csvs", plan.Spec.CSVNames)
	return nil
}

// seenApprovals waits until the snapshot shows the approvals, so that none is sent twice.
func (r *reconciler) seenApprovals(ctx context.Context, approved []*olm.InstallPlan) error {
	if len(approved) == 0 {
		return nil
	}
	return r.Store.Wait(ctx, func(s *snapshot.Snapshot) bool {
		now := map[string]*olm.InstallPlan{}
		for _, plan := range s.Namespace(approved[0].Metadata.Namespace).Plans() {
			now[plan.Metadata.UID] = plan
		}
		return !slices.ContainsFunc(approved, func(plan *olm.InstallPlan) bool {
			return now[plan.Metadata.UID] != nil && !now[plan.Metadata.UID].Spec.Approved
		})
	})
}
