package operatorpolicy

import (
	"slices"

	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// statusKinds are the kinds that the loop reads for the status, besides those that are judged by.
var statusKinds = []*snapshot.Kind{snapshot.CatalogSources, snapshot.Deployments, snapshot.CustomResourceDefinitions,
	snapshot.ClusterExtensions, snapshot.ClusterObjectSets}

// extensionKinds are the kinds that show operators which OLM v1 manages.
var extensionKinds = []*snapshot.Kind{snapshot.ClusterExtensions, snapshot.ClusterObjectSets}

// Enqueue enqueues a namespace. It does not block.
func (c *Controller) Enqueue(namespace string) { c.queue.Add(namespace) }

// changed enqueues the namespaces that a change of the snapshot affects.
func (r *reconciler) changed(change *snapshot.Change) {
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
