package operatorpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// source is a policy or a Constraint that a plan was judged by.
type source struct {
	kind     *snapshot.Kind
	concerns snapshot.Subject
	key      types.NamespacedName
}

// confirm reads the OperatorPolicies and Constraints that a plan was judged by from the API server, those once that are
// not in confirmed, and returns an error if one is not what the snapshot shows; if it was changed or deleted since, the
// error is Outdated. A watch that is stalled, or behind, approves nothing.
func (r *reconciler) confirm(
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
