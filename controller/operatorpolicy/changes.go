package operatorpolicy

import (
	"context"
	"slices"
	"sync"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// statusKinds are the kinds that the loop reads for the status, besides those that are judged by.
var statusKinds = []*snapshot.Kind{snapshot.CatalogSources, snapshot.Deployments, snapshot.CustomResourceDefinitions}

// changes enqueues namespaces for changes of the store, while this replica leads. It is the source of the queue.
type changes struct {
	*Options
	// origins are the namespaces in copiedFrom labels, whose contents are read in addition.
	origins dependents

	mu sync.Mutex
	// queue is nil while another replica leads.
	queue       queue
	unsubscribe func()
}

// Start enqueues namespaces that change from now on, until stop is called.
func (c *changes) Start(_ context.Context, q queue) error {
	c.Lead()
	c.Metrics.leading.Set(1)
	_, unsubscribe := c.Store.Subscribe(c.changed)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.unsubscribe = q, unsubscribe
	return nil
}

func (c *changes) stop() {
	c.mu.Lock()
	unsubscribe := c.unsubscribe
	c.queue, c.unsubscribe = nil, nil
	c.mu.Unlock()
	if unsubscribe != nil {
		unsubscribe()
	}
}

// WaitForSync blocks the loop until the kinds that it reads for the status are synced, and then enqueues all namespaces. OLM may be
// installed after Opgate: it waits for the CRDs.
func (c *changes) WaitForSync(ctx context.Context) error {
	err := c.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return s.Synced(statusKinds...) })
	if err != nil {
		return err
	}
	for ns := range c.Store.Load().All() {
		c.enqueue(ns.Name())
	}
	return nil
}

// enqueue enqueues namespaces while this replica leads; "" stands for the policies that govern nothing yet. It does not block.
func (c *changes) enqueue(namespaces ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return
	}
	for _, name := range namespaces {
		c.queue.Add(name)
	}
}

func (c *changes) changed(change *snapshot.Change) {
	current := change.Snapshot
	for _, name := range change.Namespaces {
		c.enqueue(name)
		c.enqueue(c.origins.take(name)...)
	}
	for _, name := range change.Workloads {
		if len(current.Namespace(name).Policies()) > 0 {
			c.enqueue(name)
		}
	}
	for i := range change.Objects {
		o := change.Objects[i].Object()
		switch o.Kind() {
		case snapshot.CatalogSources:
			c.Packages.CatalogChanged(olm.Catalog{Namespace: o.Namespace, Name: o.Name})
			c.enqueue(current.Governed()...)
		case snapshot.CustomResourceDefinitions:
			c.enqueue(ownersOf(current, o)...)
		}
	}
}

// ownersOf returns the namespaces of the operators in the labels of a CustomResourceDefinition.
func ownersOf(current *snapshot.Snapshot, o *snapshot.Object) []string {
	d := o.Definition()
	if d == nil || len(d.Operators) == 0 {
		return nil
	}
	var owners []string
	for _, namespace := range current.Governed() {
		if slices.ContainsFunc(current.Namespace(namespace).Policies(), func(p *rules.Policy) bool { return belongs(d, p.Package, namespace) }) {
			owners = append(owners, namespace)
		}
	}
	return owners
}

// packageChanged enqueues the namespaces with policies for a package.
func (c *changes) packageChanged(pkg string) {
	current := c.Store.Load()
	if current == nil {
		return
	}
	for _, namespace := range current.Governed() {
		if slices.ContainsFunc(current.Namespace(namespace).Policies(), func(p *rules.Policy) bool { return p.Package == pkg }) {
			c.enqueue(namespace)
		}
	}
}
