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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
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
	resource = reports.SchemeGroupVersion.WithResource("reports")
)

// Controller keeps the Reports on the leader. All fields are required unless they have a default.
type Controller struct {
	apply.Shared

	queue   manager.Queue[work]
	manager ctrl.Manager
	// owner is the ClusterRole that owns the Reports, heads are the metadata of these.
	owner *owned.Owner
	heads *watched.Watch
	// asked is set once the API server was asked whether it serves Reports, opened once they are watched.
	asked, opened bool
	// known is what is stored, by namespace, as far as this replica has read or written it. There is one worker.
	known map[string]stored
}

// work is one item of the queue: the Report of a namespace, or everything.
type work struct {
	namespace  string
	everything bool
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	config := mgr.GetConfig()
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	heads, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c.Client, c.manager, c.known = mgr.GetClient(), mgr, map[string]stored{}
	everything := func() { c.queue.Add(work{everything: true}) }
	if c.owner, err = owned.NewOwner(objects, OwnerName, "Reports", everything, c.Log); err != nil {
		return err
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: owned.Labels})
	informer := metadatainformer.NewFilteredMetadataInformer(heads, resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	if c.heads, err = watched.NewWatch(informer, c.reportChanged,
		c.Log.WithValues("resource", resource.Resource)); err != nil {
		return fmt.Errorf("watch Reports: %w", err)
	}
	return manager.Registration[work]{
		Name:       "report",
		Reconciler: c,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    c.changed,
		Kinds:      []*snapshot.Kind{snapshot.CustomResourceDefinitions},
	}.AddTo(mgr)
}

// changed enqueues what a change of the snapshot affects.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		if name != "" {
			c.queue.AddAfter(work{namespace: name}, eventBatch)
		}
	}
	if change.Constraints || slices.ContainsFunc(change.Objects, concernsAll) {
		c.queue.AddAfter(work{everything: true}, eventBatch)
	}
}

// concernsAll reports whether a change of an object in cluster scope may change every Report: whether Reports are
// served, and what suspended policies wait for.
func concernsAll(change snapshot.ObjectChange) bool {
	o := change.Object()
	switch o.Kind() {
	case snapshot.Policies, snapshot.PolicySets:
		return true
	case snapshot.CustomResourceDefinitions:
		return o.Definition() != nil && o.Definition().Group == kind.Group
	}
	return false
}

// reportChanged enqueues the namespace of a Report that changed.
func (c *Controller) reportChanged(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil && name.Name == Name {
		c.queue.Add(work{namespace: name.Namespace})
	}
}

// stored is the version of a Report, and what it was made from.
type stored struct {
	resourceVersion string
	report          *reports.Report
}

// Reconcile makes the Report of a namespace what the rules say now.
func (c *Controller) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	current := c.Store.Load()
	owner, err := c.ready(ctx, current)
	if err != nil || owner == nil {
		return reconcile.Result{}, err
	}
	if !w.everything {
		ns, now := current.Namespace(w.namespace), c.Now()
		var result reconcile.Result
		if next := rules.NextChange(ns, now); !next.IsZero() { // the verdict on a plan changes then, without an event
			result.RequeueAfter = next.Sub(now)
		}
		return result, c.reconcile(ctx, ns, now, owner)
	}
	for ns := range current.All() {
		if len(ns.Installed())+len(ns.Plans()) > 0 {
			c.queue.Add(work{namespace: ns.Name()})
		}
	}
	for _, head := range c.heads.Informer.GetStore().List() {
		c.queue.Add(work{namespace: head.(*metav1.PartialObjectMetadata).Namespace})
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
	if err := errors.Join(c.owner.Open(ctx, c.manager), c.heads.Open(ctx, c.manager)); err != nil {
		return nil, err
	}
	return c.owner.Reference(), nil
}

// served reports whether there are Reports: by their definition or, once in a term, by asking, since an API server of
// their own may serve them. Asking again would be a request for each change while they are not served.
func (c *Controller) served(current *snapshot.Snapshot) (bool, error) {
	for o := range current.AllObjects(snapshot.CustomResourceDefinitions) {
		if d := o.Definition(); d != nil && d.Established && d.GroupKind() == kind.GroupKind() {
			return true, nil
		}
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

// reconcile writes the Report of a namespace if it is not what the rules say.
func (c *Controller) reconcile(
	ctx context.Context, ns *state.Namespace, now time.Time, owner *metav1.OwnerReference,
) error {
	namespace := ns.Name()
	next := reportOf(ns, now)
	head := c.head(namespace)
	switch known, ok := c.known[namespace]; {
	case ns.Deleting():
		return nil
	case next == nil && head == nil:
		delete(c.known, namespace)
		return nil
	case next == nil:
		return c.remove(ctx, head)
	case ok && head != nil && head.ResourceVersion == known.resourceVersion &&
		equality.Semantic.DeepEqual(known.report, next):
		return nil
	}
	live, err := c.live(ctx, namespace)
	if err != nil {
		return err
	}
	if live != nil && !ours(live, owner) {
		c.Log.Info("report not written: another client has made one of this name, which is left alone",
			"namespace", namespace, "name", Name)
		return nil
	}
	version, err := c.put(ctx, live, next.DeepCopy(), owner)
	switch {
	case apply.Outdated(err):
		return nil // its event enqueues the namespace
	case err != nil:
		return fmt.Errorf("write the Report of namespace %s: %w", namespace, err)
	}
	c.known[namespace] = stored{version, next}
	return nil
}

// head returns the metadata of the Report of a namespace as last observed, nil if there is none.
func (c *Controller) head(namespace string) *metav1.PartialObjectMetadata {
	object, exists, err := c.heads.Informer.GetStore().GetByKey(namespace + "/" + Name)
	if err != nil || !exists {
		return nil
	}
	return object.(*metav1.PartialObjectMetadata)
}

// live reads a Report, nil if there is none.
func (c *Controller) live(ctx context.Context, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := c.Writer.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: Name}, u)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read the Report of namespace %s: %w", namespace, err)
	}
	return u, nil
}

// ours reports whether a Report is one of Opgate: by its label or, where another client has removed that, by its owner.
func ours(live *unstructured.Unstructured, owner *metav1.OwnerReference) bool {
	return live.GetLabels()[metakey.ManagedBy] == owned.ManagedBy ||
		slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
}

// put creates or updates a Report if it differs, and returns the version that is stored.
func (c *Controller) put(
	ctx context.Context, live *unstructured.Unstructured, next *reports.Report,
	owner *metav1.OwnerReference,
) (string, error) {
	before := &reports.Report{}
	if live != nil && runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, before) != nil {
		before = &reports.Report{} // it is written anew
	}
	stamp(next, before, c.Now())
	next.TypeMeta = metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	next.Namespace, next.Name = next.Scope.Name, Name
	u := owned.Desired(live, owned.Unstructured(next), owner)
	if owned.Same(live, u) {
		return live.GetResourceVersion(), nil
	}
	if err := c.Writer.Put(ctx, u); err != nil {
		return "", err
	}
	c.Log.Info("report written", "namespace", next.Namespace, "pass", next.Summary.Pass, "fail", next.Summary.Fail,
		"warn", next.Summary.Warn,
		"skip", next.Summary.Skip)
	return u.GetResourceVersion(), nil
}

// remove deletes the Report of a namespace in which nothing is installed any more.
func (c *Controller) remove(ctx context.Context, head *metav1.PartialObjectMetadata) error {
	delete(c.known, head.Namespace)
	gone := head.DeepCopy()
	gone.SetGroupVersionKind(kind)
	if err := c.Writer.Delete(ctx, gone); err != nil && !apply.Outdated(err) {
		return fmt.Errorf("delete the Report of namespace %s: %w", head.Namespace, err)
	}
	c.Log.Info("report deleted", "namespace", head.Namespace)
	return nil
}
