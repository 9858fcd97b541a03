package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
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
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/watched"
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
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
	// Writes count the writes.
	Writes *apply.Metrics
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[work]
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
	r := &reconciler{Controller: c, mapper: mgr.GetRESTMapper(), known: map[string]stored{},
		writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}}
	everything := func() { c.queue.Add(work{everything: true}) }
	if r.owner, err = owned.NewOwner(objects, OwnerName, "Reports", everything, c.Log); err != nil {
		return err
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: owned.Labels})
	informer := metadatainformer.NewFilteredMetadataInformer(heads, resource, metav1.NamespaceAll, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	if r.heads, err = watched.NewWatch(informer, c.reportChanged,
		c.Log.WithValues("resource", resource.Resource)); err != nil {
		return fmt.Errorf("watch Reports: %w", err)
	}
	for _, w := range []ctrlmanager.Runnable{r.owner, r.heads} {
		if err := mgr.Add(w); err != nil {
			return fmt.Errorf("add the watches of Reports: %w", err)
		}
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
