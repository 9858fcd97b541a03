// Package operatorpolicy is the background loop: it approves the InstallPlans that the rules allow, carries
// out the actions of enforced OperatorPolicies, and writes their status.
//
// It is driven by events alone and reconciles one namespace at a time, since OLM resolves a namespace as a
// whole: one reconciliation approves the namespace's plans and evaluates all its policies. The observed state
// comes from the snapshot that admission judges by; packages rules and compliance decide what to do.
package operatorpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
)

// workers is the number of namespaces that are reconciled concurrently. A worker mostly waits for the API server: with
// few workers, approvals would be delayed when many plans are created at once.
const workers = 16

// Controller reconciles OperatorPolicies, by namespace, on the leader. All fields are required unless they have a
// default.
type Controller struct {
	apply.Shared
	// Packages is the cache of catalogs' packages.
	Packages *packages.Cache
	// Metrics export the states of policies.
	Metrics *Metrics
	// Escaped returns why ClusterServiceVersions that were installed while Opgate was not running are not allowed by a
	// policy, one sentence for each.
	Escaped func(namespace, name string) []string
	// Identity names this process in compliance events, for example the name of the pod.
	Identity string
	// Ungoverned is what to do with plans of operators without a policy that are held by a policy for another
	// one; annotation opgate.io/ungoverned of a namespace takes precedence.
	Ungoverned rules.UngovernedMode
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Key returns the key of the marks of authors; nil while there is none.
	Key func() []byte
	// HistoryLength is the number of compliance messages in a status.
	HistoryLength int

	// queue has namespaces; "" stands for the policies that govern nothing yet.
	queue manager.Queue[string]
	// reader reads from the API server.
	reader client.Reader
	state  loopState
}

// AddTo adds the controller to the manager of the leader.
func (r *Controller) AddTo(mgr ctrl.Manager) error {
	r.Client, r.reader = mgr.GetClient(), mgr.GetAPIReader()
	return manager.Registration[string]{
		Name:       "operatorpolicy",
		Reconciler: r,
		Workers:    workers,
		Queue:      &r.queue,
		Store:      r.Store,
		Changed:    r.changed,
		Kinds:      statusKinds,
	}.AddTo(mgr)
}

// statusKinds are the kinds that the loop reads for the status, besides those that are judged by.
var statusKinds = []*snapshot.Kind{snapshot.CatalogSources, snapshot.Deployments, snapshot.CustomResourceDefinitions,
	snapshot.ClusterExtensions, snapshot.ClusterObjectSets}

// extensionKinds are the kinds that show operators which OLM v1 manages.
var extensionKinds = []*snapshot.Kind{snapshot.ClusterExtensions, snapshot.ClusterObjectSets}

// Enqueue enqueues a namespace. It does not block.
func (r *Controller) Enqueue(namespace string) { r.queue.Add(namespace) }

// changed enqueues the namespaces that a change of the snapshot affects.
func (r *Controller) changed(change *snapshot.Change) {
	current := change.Snapshot
	for _, name := range change.Namespaces {
		r.queue.Add(name)
		r.queue.Add(r.state.takeDependents(name)...)
	}
	for _, name := range change.Workloads {
		if len(current.Namespace(name).Policies()) > 0 {
			r.queue.Add(name)
		}
	}
	for _, pkg := range change.Packages {
		r.queue.Add(governing(current, pkg)...)
	}
	for i := range change.Objects {
		o := change.Objects[i].Object()
		switch o.Kind() {
		case snapshot.CatalogSources:
			r.queue.Add(current.Governed()...)
		case snapshot.CustomResourceDefinitions:
			r.queue.Add(ownersOf(current, o)...)
		case snapshot.ClusterExtensions, snapshot.ClusterObjectSets:
			for _, state := range []*snapshot.Object{change.Objects[i].Old, change.Objects[i].Now} {
				if state != nil && state.Migrated() != nil {
					r.queue.Add(governing(current, state.Migrated().Package)...)
				}
			}
		}
	}
}

// ownersOf returns the namespaces of the operators in the labels of a CustomResourceDefinition.
func ownersOf(current *snapshot.Snapshot, o *snapshot.Object) []string {
	d := o.Definition()
	if d == nil || len(d.Operators) == 0 {
		return nil
	}
	return governed(current, func(p *operatorpolicy.Policy, namespace string) bool {
		return belongs(d, p.Package, namespace)
	})
}

// governing returns the namespaces with policies for a package.
func governing(current *snapshot.Snapshot, pkg string) []string {
	return governed(current, func(p *operatorpolicy.Policy, _ string) bool { return p.Package == pkg })
}

// governed returns the namespaces with policies that satisfy a condition.
func governed(current *snapshot.Snapshot, by func(p *operatorpolicy.Policy, namespace string) bool) []string {
	return slices.DeleteFunc(current.Governed(), func(namespace string) bool {
		return !slices.ContainsFunc(current.Namespace(namespace).Policies(),
			func(p *operatorpolicy.Policy) bool { return by(p, namespace) })
	})
}

// recordEnds records on plans that their override or consent has ended, so that a clock that is behind does not open it
// again. A plan that has changed since is seen again.
func (r *Controller) recordEnds(ctx context.Context, ns *state.Namespace) error {
	var errs []error
	for _, plan := range ns.Plans() {
		ended := evidence.EndMarks(plan, r.Now())
		if len(ended) == 0 {
			continue
		}
		err := r.Writer.Patch(ctx, apply.Version(snapshot.InstallPlans, &plan.Metadata),
			map[string]any{"metadata": map[string]any{"annotations": ended}})
		if err != nil && !apply.Outdated(err) {
			errs = append(errs, fmt.Errorf("annotate InstallPlan %s: %w", plan.Metadata.Key(), err))
		}
	}
	return errors.Join(errs...)
}
