package operatorpolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// untilChange returns the delay until the time alone changes what holds plans of a namespace, 0 for never. It is the
// one timer of a namespace for approval windows, ages, overrides and consents, set only while a plan depends on one.
func (r *reconciler) untilChange(ns *state.Namespace) time.Duration {
	now := r.Now()
	if next := rules.NextChange(ns, now); !next.IsZero() {
		return next.Sub(now)
	}
	return 0
}

// recordEnds records on plans that their override or consent has ended, so that a clock that is behind does not open it
// again. A plan that has changed since is seen again.
func (r *reconciler) recordEnds(ctx context.Context, ns *state.Namespace) error {
	var errs []error
	for _, plan := range ns.Plans() {
		ended := evidence.EndMarks(plan, r.Now())
		if len(ended) == 0 {
			continue
		}
		err := r.writer.Patch(ctx, apply.Version(snapshot.InstallPlans, &plan.Metadata),
			map[string]any{"metadata": map[string]any{"annotations": ended}})
		if err != nil && !apply.Outdated(err) {
			errs = append(errs, fmt.Errorf("annotate InstallPlan %s: %w", plan.Metadata.Key(), err))
		}
	}
	return errors.Join(errs...)
}
