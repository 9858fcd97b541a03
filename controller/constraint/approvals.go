package constraint

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// switchApprovals makes the Subscriptions of a namespace require approval if they were created before a Constraint that
// applies, and switches them back when none applies any more. Webhooks handle those that are written in the meantime.
func (r *reconciler) switchApprovals(ctx context.Context, ns *state.Namespace) error {
	var errs []error
	for _, sub := range ns.Subscriptions() {
		if changes := rules.ApprovalChanges(sub, ns); len(changes) > 0 && sub.Metadata.DeletionTimestamp == "" {
			errs = append(errs, r.switchApproval(ctx, sub, changes))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) switchApproval(ctx context.Context, sub *olm.Subscription, changes []verdict.Change) error {
	switch err := r.writer.Patch(ctx, apply.Version(snapshot.Subscriptions, &sub.Metadata), merged(changes)); {
	case apply.Outdated(err):
		return nil
	case err != nil:
		return fmt.Errorf("switch the approval of Subscription %s: %w", sub.Metadata.Key(), err)
	}
	log.FromContext(ctx).Info("approval of Subscription switched", "namespace", sub.Metadata.Namespace,
		"name", sub.Metadata.Name,
		"because", changes[0].Message)
	return nil
}

// merged returns changes of fields as a merge patch.
func merged(changes []verdict.Change) map[string]any {
	fields := map[string]any{}
	for _, c := range changes {
		in, path := fields, strings.Split(strings.TrimPrefix(c.Path, "/"), "/")
		for _, name := range path[:len(path)-1] {
			if in[name] == nil {
				in[name] = map[string]any{}
			}
			in = in[name].(map[string]any)
		}
		in[strings.ReplaceAll(path[len(path)-1], "~1", "/")] = c.Value // nil removes it
	}
	return fields
}

// resync makes OLM resolve a namespace again, by one of its Subscriptions.
func (r *reconciler) resync(ctx context.Context, ns *state.Namespace) error {
	for _, sub := range ns.Subscriptions() {
		if sub.Metadata.DeletionTimestamp != "" {
			continue
		}
		if err := r.writer.Resync(ctx, sub, r.Now()); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("trigger OLM re-resolution for Subscription %s: %w", sub.Metadata.Key(), err)
		}
		return nil
	}
	return nil
}
