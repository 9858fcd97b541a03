// Package installed keeps the record of what OLM has installed in each namespace under a policy or a Constraint: one
// ConfigMap for each namespace, in Opgate's own. Package rules decides what is recorded, and every replica judges by
// the record; the leader writes it.
package installed

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// Controller records what is installed on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared
	// Namespace is Opgate's own, of the ConfigMaps.
	Namespace string

	queue manager.Queue[string]
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	c.Client = mgr.GetClient()
	return manager.Registration[string]{Name: "installed", Reconciler: c, Queue: &c.queue, Store: c.Store,
		Changed: c.changed,
		Kinds:   []*snapshot.Kind{snapshot.Records}}.AddTo(mgr)
}

// changed enqueues the namespaces that changed. What policies of no known namespace govern decides whether any record
// ends.
func (c *Controller) changed(change *snapshot.Change) {
	c.queue.Add(slices.DeleteFunc(slices.Clone(change.Namespaces), func(name string) bool { return name == "" })...)
	if !slices.Contains(change.Namespaces, "") {
		return
	}
	for ns := range change.Snapshot.All() {
		if ns.Record() != nil {
			c.queue.Add(ns.Name())
		}
	}
}

// Reconcile writes the record of a namespace if it differs from what is installed there. Every write applies only to
// the version of the ConfigMap that was read, so that a former leader overwrites nothing.
func (c *Controller) Reconcile(ctx context.Context, namespace string) (ctrl.Result, error) {
	s := c.Store.Load()
	key := types.NamespacedName{Namespace: c.Namespace, Name: state.RecordName(namespace)}
	stored := s.Find(snapshot.Records, key)
	record := next(s, namespace)
	encoded := record.Encode()
	var left []fair.Origin
	if record != nil {
		left = record.Left
	}
	c.Full("operators", namespace, left)
	if stored == nil && encoded == "" || stored != nil && encoded != "" &&
		s.Namespace(namespace).Record().Encode() == encoded {
		return ctrl.Result{}, nil
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: map[string]string{metakey.ManagedBy: owned.ManagedBy, metakey.Record: "installed"}},
		Data: map[string]string{state.RecordKey: encoded}}
	if stored != nil {
		object.UID, object.ResourceVersion = stored.UID, stored.ResourceVersion
	}
	write := c.Writer.Put
	if encoded == "" {
		write = c.Writer.Delete
	}
	switch err := write(ctx, object); {
	case apply.Outdated(err):
		return ctrl.Result{}, nil // the snapshot is older than the ConfigMap, whose event enqueues the namespace
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("write ConfigMap %s: %w", key, err)
	}
	return ctrl.Result{}, nil
}

// next returns the record that a namespace should have, nil for none. No record ends while a policy is not completed:
// what it governs, and in which namespace, may not be known.
func next(s *snapshot.Snapshot, namespace string) *state.InstallRecord {
	ns := s.Namespace(namespace)
	switch {
	case s.Find(snapshot.Namespaces, types.NamespacedName{Name: namespace}) == nil:
		return nil // it was deleted
	case ns.Deleting():
		return ns.Record()
	}
	incomplete := func(p *operatorpolicy.Policy) bool { return p.Incomplete }
	return ns.NextRecord(slices.ContainsFunc(ns.Policies(), incomplete) ||
		slices.ContainsFunc(s.Namespace("").Policies(), incomplete))
}
