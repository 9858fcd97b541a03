package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/snapshot"
)

const (
	// OwnerName is the ClusterRole that grants the rights to Reports, and owns them: they are deleted with it.
	OwnerName = "opgate-reports"
	// Name is the name of every Report.
	Name = "opgate"
	// OmittedAnnotation is the number of results that a Report does not list.
	OmittedAnnotation = "opgate.io/omitted-results"
	// eventBatch is how long the events of a namespace are batched: an installation causes a dozen.
	eventBatch = time.Second
)

// labels are set on every Report, and select them. Those of the release would make GitOps tools take the objects for their own.
var labels = map[string]string{"app.kubernetes.io/managed-by": "opgate", "app.kubernetes.io/part-of": "opgate"}

var (
	kind         = schema.GroupVersionKind{Group: reports.SchemeGroupVersion.Group, Version: reports.SchemeGroupVersion.Version, Kind: "Report"}
	resource     = reports.SchemeGroupVersion.WithResource("reports")
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Writes count the writes. Required.
	Writes *apply.Metrics
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller keeps the Reports while this replica leads.
type Controller struct {
	Options
	queue manager.Queue[work]
}

// work is one item of the queue: the Report of a namespace, or everything.
type work struct {
	namespace  string
	everything bool
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if o.Store == nil || o.Writes == nil || o.Now == nil {
		return nil, errors.New("report controller options: Store, Writes and Now are required")
	}
	return &Controller{Options: o}, nil
}

// AddTo adds the controller to a manager, to run while it leads. It may be called for one manager after another.
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
	r := &reconciler{Controller: c, client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), start: make(chan struct{}), known: map[string]stored{}}
	everything := func() { c.queue.Add(work{everything: true}) }
	if r.owner, err = watched.New(objects, clusterRoles, "", OwnerName, everything, c.Log); err != nil {
		return fmt.Errorf("watch ClusterRole %s: %w", OwnerName, err)
	}
	if err := r.watch(heads); err != nil {
		return fmt.Errorf("watch Reports: %w", err)
	}
	if err := mgr.Add(ctrlmanager.RunnableFunc(r.runWatches)); err != nil {
		return fmt.Errorf("add the watches of Reports: %w", err)
	}
	return manager.Registration[work]{
		Name:       "report",
		Reconciler: r,
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

// concernsAll reports whether a change of an object in cluster scope may change every Report: whether Reports are served, and what suspended
// policies wait for.
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

// watch makes the watch of the metadata of Reports.
func (r *reconciler) watch(client metadata.Interface) error {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	r.heads = metadatainformer.NewFilteredMetadataInformer(client, resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	err := r.heads.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		r.Log.Info("watch interrupted, retrying", "resource", resource.Resource, "error", err.Error())
	})
	if err != nil {
		return err
	}
	changed := func(object any) {
		if o, err := meta.Accessor(object); err == nil && o.GetName() == Name {
			r.queue.Add(work{namespace: o.GetNamespace()})
		}
	}
	_, err = r.heads.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, now any) { changed(now) },
		DeleteFunc: func(last any) {
			if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unknown.Obj
			}
			changed(last)
		},
	})
	return err
}

// runWatches watches the owner, and Reports once they are served, until the context ends.
func (r *reconciler) runWatches(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.owner.Informer.RunWithContext(ctx) })
	select {
	case <-r.start:
		r.heads.RunWithContext(ctx)
	case <-ctx.Done():
	}
	return nil
}
