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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// reconciler reconciles for one manager. There is one worker.
type reconciler struct {
	*Controller
	writer apply.Writer
	mapper meta.RESTMapper
	// owner is the ClusterRole that owns the Reports, heads are the metadata of these.
	owner *owned.Owner
	heads *watched.Watch
	// asked is set once the API server was asked whether it serves Reports, opened once they are watched.
	asked, opened bool
	// known is what is stored, by namespace, as far as this replica has read or written it.
	known map[string]stored
}

// stored is the version of a Report, and what it was made from.
type stored struct {
	resourceVersion string
	report          *reports.Report
}

// Reconcile makes the Report of a namespace what the rules say now.
func (r *reconciler) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	current := r.Store.Load()
	owner, err := r.ready(ctx, current)
	if err != nil || owner == nil {
		return reconcile.Result{}, err
	}
	if !w.everything {
		ns, now := current.WithDependencies(w.namespace), r.Now()
		var result reconcile.Result
		if next := rules.NextChange(ns, now); !next.IsZero() { // the verdict on a plan changes then, without an event
			result.RequeueAfter = next.Sub(now)
		}
		return result, r.reconcile(ctx, ns, now, owner)
	}
	for ns := range current.All() {
		if len(ns.Installed())+len(ns.Plans()) > 0 {
			r.queue.Add(work{namespace: ns.Name()})
		}
	}
	for _, head := range r.heads.Informer.GetStore().List() {
		r.queue.Add(work{namespace: head.(*metav1.PartialObjectMetadata).Namespace})
	}
	return reconcile.Result{}, nil
}

// ready opens the watch of Reports once they are served, and returns their owner; nil if one of both is missing. What
// is missing enqueues everything when it appears.
func (r *reconciler) ready(ctx context.Context, current *snapshot.Snapshot) (*metav1.OwnerReference, error) {
	if !r.opened {
		var err error
		if r.opened, err = r.served(current); err != nil || !r.opened {
			return nil, err
		}
	}
	if err := errors.Join(r.owner.Open(ctx), r.heads.Open(ctx)); err != nil {
		return nil, err
	}
	return r.owner.Reference(), nil
}

// served reports whether there are Reports: by their definition or, once in a term, by asking, since an API server of
// their own may serve them. Asking again would be a request for each change while they are not served.
func (r *reconciler) served(current *snapshot.Snapshot) (bool, error) {
	for o := range current.AllObjects(snapshot.CustomResourceDefinitions) {
		if d := o.Definition(); d != nil && d.Established && d.GroupKind() == kind.GroupKind() {
			return true, nil
		}
	}
	if r.asked {
		return false, nil
	}
	_, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("find out whether Reports are served: %w", err)
	}
	if r.asked = true; err != nil {
		r.Log.Info("the API server does not serve Reports, none are written until the definitions of OpenReports are installed",
			"groupVersion", resource.GroupVersion().String())
	}
	return err == nil, nil
}

// reconcile writes the Report of a namespace if it is not what the rules say.
func (r *reconciler) reconcile(
	ctx context.Context, ns *state.Namespace, now time.Time, owner *metav1.OwnerReference,
) error {
	namespace := ns.Name()
	next := reportOf(ns, now)
	head := r.head(namespace)
	switch known, ok := r.known[namespace]; {
	case ns.Deleting():
		return nil
	case next == nil && head == nil:
		delete(r.known, namespace)
		return nil
	case next == nil:
		return r.remove(ctx, head)
	case ok && head != nil && head.ResourceVersion == known.resourceVersion &&
		equality.Semantic.DeepEqual(known.report, next):
		return nil
	}
	live, err := r.live(ctx, namespace)
	if err != nil {
		return err
	}
	if live != nil && !ours(live, owner) {
		r.Log.Info("report not written: another client has made one of this name, which is left alone",
			"namespace", namespace, "name", Name)
		return nil
	}
	version, err := r.put(ctx, live, next.DeepCopy(), owner)
	switch {
	case apply.Outdated(err):
		return nil // its event enqueues the namespace
	case err != nil:
		return fmt.Errorf("write the Report of namespace %s: %w", namespace, err)
	}
	r.known[namespace] = stored{version, next}
	return nil
}

// head returns the metadata of the Report of a namespace as last observed, nil if there is none.
func (r *reconciler) head(namespace string) *metav1.PartialObjectMetadata {
	object, exists, err := r.heads.Informer.GetStore().GetByKey(namespace + "/" + Name)
	if err != nil || !exists {
		return nil
	}
	return object.(*metav1.PartialObjectMetadata)
}

// live reads a Report, nil if there is none.
func (r *reconciler) live(ctx context.Context, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := r.writer.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: Name}, u)
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
func (r *reconciler) put(
	ctx context.Context, live *unstructured.Unstructured, next *reports.Report,
	owner *metav1.OwnerReference,
) (string, error) {
	before := &reports.Report{}
	if live != nil && runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, before) != nil {
		before = &reports.Report{} // it is written anew
	}
	stamp(next, before, r.Now())
	next.TypeMeta = metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	next.Namespace, next.Name = next.Scope.Name, Name
	u := owned.Desired(live, owned.Unstructured(next), owner)
	if owned.Same(live, u) {
		return live.GetResourceVersion(), nil
	}
	if err := r.writer.Put(ctx, u); err != nil {
		return "", err
	}
	r.Log.Info("report written", "namespace", next.Namespace, "pass", next.Summary.Pass, "fail", next.Summary.Fail,
		"warn", next.Summary.Warn,
		"skip", next.Summary.Skip)
	return u.GetResourceVersion(), nil
}

// remove deletes the Report of a namespace in which nothing is installed any more.
func (r *reconciler) remove(ctx context.Context, head *metav1.PartialObjectMetadata) error {
	delete(r.known, head.Namespace)
	gone := head.DeepCopy()
	gone.SetGroupVersionKind(kind)
	if err := r.writer.Delete(ctx, gone); err != nil && !apply.Outdated(err) {
		return fmt.Errorf("delete the Report of namespace %s: %w", head.Namespace, err)
	}
	r.Log.Info("report deleted", "namespace", head.Namespace)
	return nil
}
