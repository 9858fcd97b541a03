package escape

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// retryDelay is the requeue delay while the input is not complete.
const retryDelay = time.Second

// reconciler reconciles for one manager.
type reconciler struct {
	*Controller
	// reader reads complete ClusterServiceVersions.
	reader client.Reader
	// outage returns the time since when no replica may have answered reviews; zero if none ever did.
	outage func() time.Time
	// judged are the candidates that were judged. There is one worker.
	judged map[types.UID]bool
}

// candidate reports whether admission may not have reviewed a ClusterServiceVersion. Creation times have a resolution
// of seconds.
func (r *reconciler) candidate(o *snapshot.Object) bool {
	last := r.outage()
	if last.IsZero() || o.Copied() || slices.Contains(r.ExcludedNamespaces, o.Namespace) {
		return false
	}
	created := o.CreationTimestamp
	return !created.Time.Before(last.Add(-skew)) && !created.After(r.until())
}

// until returns the time from which this replica is sure to receive reviews.
func (r *reconciler) until() time.Time { return r.started().Add(settling) }

// Reconcile judges one ClusterServiceVersion.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	old, recorded := r.Records.get(key)
	current := r.Store.Load()
	head := current.Find(snapshot.ClusterServiceVersions, key)
	gone := head == nil || head.DeletionTimestamp != nil
	if recorded && (gone || head.UID != old.UID) {
		return reconcile.Result{}, r.store(ctx, record{Namespace: key.Namespace, Name: key.Name})
	}
	if gone || !recorded && (!r.candidate(head) || r.judged[head.UID]) {
		return reconcile.Result{}, nil
	}
	ns := current.Namespace(key.Namespace)
	if !ns.Decidable() {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	csv, err := r.read(ctx, head)
	if err != nil || csv == nil {
		return reconcile.Result{}, err
	}
	escapes, known := rules.JudgeEscape(csv, ns)
	next := record{UID: head.UID, Namespace: key.Namespace, Name: key.Name, Reasons: escapes}
	switch {
	case recorded && !known: // its plan was deleted: what it was refused for stays, unless the policy was edited
		next.Reasons = slices.DeleteFunc(slices.Clone(old.Reasons),
			func(why rules.Escape) bool { return ns.GenerationOf(why.PolicyRef) != why.Generation })
	case !recorded && !known && r.Now().Before(r.until()):
		return reconcile.Result{RequeueAfter: retryDelay}, nil // the snapshot may not have its plan yet
	case !recorded:
		r.judged[head.UID] = true
		next.Reasons = slices.DeleteFunc(next.Reasons,
			func(why rules.Escape) bool { return !r.before(current, ns, why.PolicyRef, head) })
	}
	if reflect.DeepEqual(old, next) || !recorded && len(next.Reasons) == 0 {
		return reconcile.Result{}, nil
	}
	if err := r.store(ctx, next); err != nil || recorded {
		return reconcile.Result{}, err
	}
	r.Log.Info("found an operator that was installed while Opgate was not running and is not allowed",
		"namespace", key.Namespace, "clusterserviceversion", key.Name, "reasons", next.message())
	r.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: olm.V1alpha1.String(), Kind: olm.KindClusterServiceVersion,
			Namespace: key.Namespace, Name: key.Name, UID: head.UID},
		Reason: "Escaped", Action: events.Install, Warning: true, Note: next.message(),
	})
	return reconcile.Result{}, nil
}

// store records an escape, or that it is none any more if it has no reasons.
func (r *reconciler) store(ctx context.Context, one record) error {
	left, err := r.Records.replace(ctx, one)
	r.Writes.Left("escapes", left)
	r.Writes.Wrote(apply.Update, "Lease", err)
	if err != nil {
		return err
	}
	if len(one.Reasons) == 0 {
		r.Log.Info("escape is gone, or allowed now", "namespace", one.Namespace, "name", one.Name)
	}
	r.Changed(one.Namespace)
	return nil
}

// read reads a complete ClusterServiceVersion; nil if it has changed.
func (r *reconciler) read(ctx context.Context, head *snapshot.Object) (*olm.CSV, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(snapshot.ClusterServiceVersions.GroupVersionKind)
	if err := r.reader.Get(ctx, head.Key(), u); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if u.GetUID() != head.UID {
		return nil, nil
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return olm.Decode[olm.CSV](raw)
}

// before reports whether a policy existed before a ClusterServiceVersion. Creation times have a resolution of seconds:
// one created in the same second as the policy is not reported.
func (r *reconciler) before(current *snapshot.Snapshot, ns *state.Namespace, by verdict.PolicyRef,
	csv *snapshot.Object) bool {
	var created metav1.Time
	for _, c := range current.ConstraintObjects() {
		if by.Kind == verdict.KindConstraint && c.Name == by.Name {
			created = c.CreationTimestamp
		}
	}
	for _, p := range ns.Policies() {
		if p.Object != nil && p.Ref() == by {
			created = p.Object.CreationTimestamp
		}
	}
	return !created.IsZero() && created.Before(&csv.CreationTimestamp)
}
