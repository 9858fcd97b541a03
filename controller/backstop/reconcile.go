package backstop

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// retryDelay is the requeue delay while the user name of this process is not known.
const retryDelay = time.Second

// compileInterval is how long what was compiled stays, unless an exception in it ends: API servers look for new
// policies once a second, and each of them compiles what it finds.
const compileInterval = time.Second

// input is what the objects depend on in one namespace.
type input struct {
	policies  []*operatorpolicy.Policy
	accounts  []string
	operators []string
	kept      []bundle.Kept
	catalogs  []olm.Catalog
}

// inputOf returns the input of a namespace; accounts count only where policies govern something, and operators only if
// a policy or a Constraint protects some.
func inputOf(ns *state.Namespace, protecting []*constraint.Definition) (in input) {
	in.kept = bundle.KeptIn(ns)
	if len(protecting) > 0 || ns.Protects() {
		in.operators, in.catalogs = ns.Operators(), ns.ProtectedCatalogs()
	}
	if len(ns.Policies()) > 0 {
		in.policies, in.accounts = ns.Policies(), ns.StepAccounts()
	}
	return in
}

// same reports whether the objects are the same for two inputs: the status of a policy counts as far as it is read.
func (in input) same(other input) bool {
	same := slices.EqualFunc(in.policies, other.policies, func(a, b *operatorpolicy.Policy) bool {
		x, y := *a, *b
		x.Object, y.Object, x.VersionRange, y.VersionRange = nil, nil, nil, nil
		return a == b || a.Origin() == b.Origin() && reflect.DeepEqual(x, y) &&
			fmt.Sprint(a.VersionRange) == fmt.Sprint(b.VersionRange) // which has functions, and may be nil
	})
	in.policies, other.policies = nil, nil
	return same && reflect.DeepEqual(in, other)
}

// protecting returns the Constraints that restrict deletions.
func protecting(s *snapshot.Snapshot) []*constraint.Definition {
	return slices.DeleteFunc(slices.Clone(s.Constraints().Definitions()),
		func(d *constraint.Definition) bool { return d.Deletion == nil })
}

// compiled are objects to store.
type compiled struct {
	// objects are by kind.key; nil until something was compiled.
	objects map[string]*unstructured.Unstructured
	// at is when they were compiled.
	at time.Time
	// until is when the first exception ends that they contain; zero if they contain none. behind is set if they are to
	// be compiled again at the end of compileInterval, since their inputs have changed.
	until  time.Time
	behind bool
}

// Reconcile makes the stored objects those that the policies compile to.
func (r *Controller) Reconcile(ctx context.Context, _ item) (reconcile.Result, error) {
	if r.Mode == Off {
		r.Metrics.set(stateOff)
		return reconcile.Result{}, r.deleteAll(ctx)
	}
	state, err := r.reconcile(ctx)
	if err != nil {
		r.Metrics.set(stateFailed)
		if apierrors.IsInvalid(err) || meta.IsNoMatchError(err) {
			r.features.Store(nil) // the API server may be another version than before
		}
		return reconcile.Result{}, err
	}
	if state == "" {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	r.Metrics.set(state)
	if next := r.compiled.next(); !next.IsZero() {
		return reconcile.Result{RequeueAfter: max(next.Sub(r.Now()), time.Millisecond)}, nil
	}
	return reconcile.Result{}, nil
}

// next returns when to compile again; zero if that depends on a change.
func (c *compiled) next() time.Time {
	again := c.at.Add(compileInterval)
	if c.behind && (c.until.IsZero() || again.Before(c.until)) {
		return again
	}
	return c.until
}

// reconcile returns the state that was reached; "" if the input is not complete.
func (r *Controller) reconcile(ctx context.Context) (state string, err error) {
	user := r.User()
	if user == "" {
		return "", nil
	}
	features, err := r.detect(ctx)
	if err != nil {
		return "", err
	}
	if !features.ValidatingAdmissionPolicy && !features.MutatingAdmissionPolicy {
		r.compiled = compiled{}
		return stateUnsupported, nil
	}
	if err := r.openWatches(ctx, features); err != nil {
		return "", err
	}
	owner := r.owner.Reference()
	if owner == nil {
		r.compiled = compiled{}
		return stateUnowned, nil // its event enqueues the item
	}
	if err := r.catchUp(ctx); err != nil {
		return "", err
	}
	r.compile(user, features)
	if err := r.store(ctx, owner); err != nil {
		return "", err
	}
	if r.Mode == Audit {
		return stateAudited, nil
	}
	return stateEnforced, nil
}

// openWatches starts the watches of the kinds that are served, and waits until they show what is stored.
func (r *Controller) openWatches(ctx context.Context, features backstop.Features) error {
	err := r.owner.Open(ctx, r.manager)
	for _, k := range kinds {
		served := features.ValidatingAdmissionPolicy
		if k == kinds[0] || k == kinds[1] {
			served = features.MutatingAdmissionPolicy
		}
		if served && err == nil {
			err = r.watches[k.key()].Open(ctx, r.manager)
		}
	}
	return err
}

// compile compiles the policies of the snapshot, if they or what else the objects depend on changed, at once if the
// last time is long enough ago.
func (r *Controller) compile(user string, features backstop.Features) {
	last, now, edited := &r.compiled, r.Now(), r.edited.Load()
	ended, since := !last.until.IsZero() && !now.Before(last.until), now.Sub(last.at)
	last.behind = edited && since >= 0 && since < compileInterval
	if last.objects != nil && !ended && (last.behind || !edited) {
		return
	}
	r.edited.Store(false) // before the snapshot is loaded
	current := r.Store.Load()
	from := backstop.Input{Constraints: protecting(current), Operators: map[string][]string{}, Kept: map[string][]bundle.Kept{},
		Accounts: map[string][]string{}, OLM: r.OLM, Opgate: user, Namespace: r.Namespace, ApprovalMode: r.ApprovalMode,
		ExcludedNamespaces: r.ExcludedNamespaces, Features: features, Audit: r.Mode == Audit, Labels: owned.Labels, Now: now}
	for ns := range current.All() {
		in := inputOf(ns, from.Constraints)
		from.Policies, from.Catalogs = append(from.Policies, in.policies...), append(from.Catalogs, in.catalogs...)
		from.Accounts[ns.Name()], from.Operators[ns.Name()], from.Kept[ns.Name()] = in.accounts, in.operators, in.kept
	}
	r.compiled = compiled{at: now, objects: map[string]*unstructured.Unstructured{}}
	objects := backstop.Compile(from)
	for _, p := range from.Policies {
		if end := p.Exceptions().End(now); !end.IsZero() && (r.compiled.until.IsZero() || end.Before(r.compiled.until)) {
			r.compiled.until = end
		}
	}
	r.Full("backstop", "", objects.Left)
	r.Full("deletion", "", objects.Unprotected)
	for _, o := range objects.All {
		u := owned.Unstructured(o)
		r.compiled.objects[u.GetKind()+"/"+u.GetName()] = u
	}
}

// written is an object as it was sent, and as the API server stored it: a later version may set fields that this one
// does not know.
type written struct{ sent, stored *unstructured.Unstructured }

// store writes the objects that differ from what is stored: policies before bindings, which the API server would not
// know what to do with, and deletes the others, bindings first.
func (r *Controller) store(ctx context.Context, owner *metav1.OwnerReference) error {
	for _, k := range kinds {
		if object := r.compiled.objects[k.key()]; object != nil {
			if err := r.put(ctx, k, object, owner); err != nil {
				return fmt.Errorf("write %s: %w", k.key(), err)
			}
		}
	}
	for _, k := range slices.Backward(kinds) {
		live := r.watches[k.key()].Get()
		if r.compiled.objects[k.key()] != nil || live == nil || live.GetDeletionTimestamp() != nil {
			continue
		}
		delete(r.written, k.key())
		if err := r.Writer.Delete(ctx, live); err != nil && !apply.Outdated(err) {
			return fmt.Errorf("delete %s: %w", k.key(), err)
		}
		r.Log.Info("deleted", "kind", k.name, "name", k.object)
	}
	return nil
}

// put creates or updates an object if it differs from what is stored. An object that is being deleted, or has changed
// since it was watched, is left to the event of that.
func (r *Controller) put(
	ctx context.Context, k kind, object *unstructured.Unstructured, owner *metav1.OwnerReference,
) error {
	live, last := r.watches[k.key()].Get(), r.written[k.key()]
	next := owned.Desired(live, object, owner)
	same := last != nil && reflect.DeepEqual(last.sent, object)
	switch {
	case live == nil:
	case live.GetDeletionTimestamp() != nil:
		return nil
	case owned.Same(live, next):
		r.written[k.key()] = &written{sent: object, stored: object}
		return nil
	case same && owned.Same(live, owned.Desired(live, last.stored, owner)):
		return nil
	}
	switch err := r.Writer.Put(ctx, next); {
	case apply.Outdated(err):
		return nil
	case err != nil:
		return err
	}
	stored := object.DeepCopy()
	stored.Object["spec"] = next.Object["spec"]
	r.written[k.key()] = &written{sent: object, stored: stored}
	if same {
		r.reportRestored(next, live == nil)
	} else {
		r.Log.Info("written", "kind", k.name, "name", k.object, "resourceVersion", next.GetResourceVersion())
	}
	return nil
}

// reportRestored reports that an object was restored.
func (r *Controller) reportRestored(object *unstructured.Unstructured, deleted bool) {
	what := "changed"
	if deleted {
		what = "deleted"
	}
	r.Metrics.restored.Inc()
	r.Log.Info("restored what another client "+what, "kind", object.GetKind(), "name", object.GetName())
	r.Events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName(),
			UID: object.GetUID()},
		Reason: "BackstopRestored", Action: events.Restore, Warning: true,
		Note: fmt.Sprintf("another client %s this %s, by which the API server refuses what Opgate would; "+
			"Opgate has restored it (--backstop=off removes it)", what, object.GetKind()),
		Occurrence: object.GetResourceVersion(), // each time is worth an event
	})
}

// deleteAll deletes the objects of an earlier mode. Without a right to, no release with that mode is left: the garbage
// collector deletes them with the ClusterRole that granted it.
func (r *Controller) deleteAll(ctx context.Context) error {
	for _, k := range slices.Backward(kinds) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(k.gvk())
		u.SetName(k.object)
		err := r.Writer.Client.Delete(ctx, u)
		switch {
		case err == nil:
			r.Writer.Metrics.Wrote(apply.Delete, k.name, nil)
			r.Log.Info("deleted", "kind", k.name, "name", k.object)
		case apierrors.IsForbidden(err):
			return nil
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("delete %s: %w", k.key(), err)
		}
	}
	return nil
}
