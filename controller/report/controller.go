// Package report writes what is installed and what waits for approval, with the verdicts of the rules, as Reports of
// OpenReports (openreports.io): one in each namespace, while this replica leads. Reports are opt-in, and written only
// when they change.
package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

const (
	// OwnerName is the ClusterRole that grants the rights to Reports, and owns them: they are deleted with it.
	OwnerName = "opgate-reports"
	// Name is the name of every Report.
	Name = "opgate"
	// eventBatch is how long the events of a namespace are batched: an installation causes a dozen.
	eventBatch = time.Second
)

var (
	kind = schema.GroupVersionKind{Group: reports.SchemeGroupVersion.Group,
		Version: reports.SchemeGroupVersion.Version, Kind: "Report"}
	resource   = reports.SchemeGroupVersion.WithResource("reports")
	definition = types.NamespacedName{Name: resource.GroupResource().String()}
)

// everything is the item of the queue for the Reports of all namespaces.
const everything = ""

// Controller keeps the Reports on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared

	// queue has namespaces.
	queue   manager.Queue[string]
	manager ctrl.Manager
	// owner is the ClusterRole that owns the Reports, reports are all of their name.
	owner   *owned.Owner
	reports *watched.Object
	// asked is set once the API server was asked whether it serves Reports, opened once they are watched.
	asked, opened bool
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	client, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c.Client, c.manager = mgr.GetClient(), mgr
	c.owner = owned.NewOwner(client, OwnerName, "Reports", func(any) { c.queue.Add(everything) }, c.Log)
	c.reports = watched.New(client, resource, metav1.NamespaceAll, Name, c.reportChanged, c.Log)
	return manager.Registration[string]{Name: "report", Reconciler: c, Queue: &c.queue, Store: c.Store,
		Changed: c.changed, Kinds: []*snapshot.Kind{snapshot.CustomResourceDefinitions}}.AddTo(mgr)
}

// changed enqueues what a change of the snapshot affects.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		if name != "" {
			c.queue.AddAfter(name, eventBatch)
		}
	}
	if change.Constraints || slices.ContainsFunc(change.Objects, concernsAll) {
		c.queue.AddAfter(everything, eventBatch)
	}
}

// concernsAll reports whether a change of an object in cluster scope may change every Report: whether Reports are
// served, and what suspended policies wait for.
func concernsAll(change snapshot.ObjectChange) bool {
	o := change.Object()
	return o.Kind() == snapshot.Policies || o.Kind() == snapshot.PolicySets ||
		o.Kind() == snapshot.CustomResourceDefinitions && o.Key() == definition
}

// reportChanged enqueues the namespace of a Report that changed.
func (c *Controller) reportChanged(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.queue.Add(name.Namespace)
	}
}

// Reconcile makes the Report of a namespace what the rules say now.
func (c *Controller) Reconcile(ctx context.Context, namespace string) (reconcile.Result, error) {
	current := c.Store.Load()
	owner, err := c.ready(ctx, current)
	if err != nil || owner == nil {
		return reconcile.Result{}, err
	}
	if namespace != everything {
		ns, now := current.Namespace(namespace), c.Now()
		var result reconcile.Result
		if next := rules.NextChange(ns, now); !next.IsZero() { // the verdict on a plan changes then, without an event
			result.RequeueAfter = next.Sub(now)
		}
		return result, c.reconcile(ctx, ns, now, owner)
	}
	for ns := range current.All() {
		if len(ns.Installed())+len(ns.Plans()) > 0 {
			c.queue.Add(ns.Name())
		}
	}
	for _, report := range c.reports.Informer.GetStore().List() {
		c.reportChanged(report)
	}
	return reconcile.Result{}, nil
}

// ready opens the watch of Reports once they are served, and returns their owner; nil if one of both is missing. What
// is missing enqueues everything when it appears.
func (c *Controller) ready(ctx context.Context, current *snapshot.Snapshot) (*metav1.OwnerReference, error) {
	if !c.opened {
		var err error
		if c.opened, err = c.served(current); err != nil || !c.opened {
			return nil, err
		}
	}
	if err := errors.Join(c.owner.Open(ctx, c.manager), c.reports.Open(ctx, c.manager)); err != nil {
		return nil, err
	}
	return c.owner.Reference(), nil
}

// served reports whether there are Reports: by their definition or, once in a term, by asking, since an API server of
// their own may serve them. Asking again would be a request for each change while they are not served.
func (c *Controller) served(current *snapshot.Snapshot) (bool, error) {
	d := current.Find(snapshot.CustomResourceDefinitions, definition).Definition()
	if d != nil && d.Established {
		return true, nil
	}
	if c.asked {
		return false, nil
	}
	_, err := c.manager.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("find out whether Reports are served: %w", err)
	}
	if c.asked = true; err != nil {
		c.Log.Info("the API server does not serve Reports, none are written until the definitions of OpenReports are installed",
			"groupVersion", resource.GroupVersion().String())
	}
	return err == nil, nil
}

// reconcile writes the Report of a namespace if it is not what the rules say. Every write applies only to the version
// that was observed.
func (c *Controller) reconcile(
	ctx context.Context, ns *state.Namespace, now time.Time, owner *metav1.OwnerReference,
) error {
	namespace := ns.Name()
	stored, _, _ := c.reports.Informer.GetStore().GetByKey(namespace + "/" + Name) // it returns no errors
	live, _ := stored.(*unstructured.Unstructured)                                 // nil if there is none
	next := reportOf(ns, now)
	switch {
	case ns.Deleting() || next == nil && live == nil:
		return nil
	case live != nil && !ours(live, owner):
		c.Log.Info("report not written: another client has made one of this name, which is left alone",
			"namespace", namespace, "name", Name)
		return nil
	case next == nil:
		if err := c.Writer.Delete(ctx, live.DeepCopy()); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("delete the Report of namespace %s: %w", namespace, err)
		}
		c.Log.Info("report deleted", "namespace", namespace)
		return nil
	}
	before := &reports.Report{}
	if live != nil && runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, before) != nil {
		before = &reports.Report{} // it is written anew
	}
	stamp(next, before, now)
	next.TypeMeta = metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	next.Namespace, next.Name = namespace, Name
	u := owned.Desired(live, owned.Unstructured(next), owner)
	if owned.Same(live, u) {
		return nil
	}
	switch err := c.Writer.Put(ctx, u); {
	case apply.Outdated(err):
		return nil // its event enqueues the namespace
	case err != nil:
		return fmt.Errorf("write the Report of namespace %s: %w", namespace, err)
	}
	c.Log.Info("report written", "namespace", namespace, "pass", next.Summary.Pass, "fail", next.Summary.Fail,
		"warn", next.Summary.Warn, "skip", next.Summary.Skip)
	return nil
}

// ours reports whether a Report is one of Opgate: by its label or, where another client has removed that, by its owner.
func ours(live *unstructured.Unstructured, owner *metav1.OwnerReference) bool {
	return live.GetLabels()[metakey.ManagedBy] == owned.ManagedBy ||
		slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
}
