package policy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// reconciler reconciles for one manager.
type reconciler struct {
	*Controller
	watches *watches.Watches
	state   state
	// objects writes the objects of templates, writer all others.
	objects dynamic.Interface
	writer  apply.Writer
}

// Reconcile processes one item of work.
func (r *reconciler) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	if w.kind == set {
		return reconcile.Result{}, r.reconcileSet(ctx, w.NamespacedName)
	}
	if len(r.Key()) == 0 {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	current := r.Store.Load()
	stored := current.Policy(w.NamespacedName)
	if stored == nil {
		r.watches.Set(w.NamespacedName, time.Time{}, nil)
		r.state.Delete(w.NamespacedName)
		return reconcile.Result{}, nil
	}
	if stored.Read == nil {
		return reconcile.Result{}, nil // its content cannot be trusted, so nothing is changed
	}
	rec := &reconciliation{reconciler: r, stored: stored, key: w.NamespacedName,
		state: r.state.policy(w.NamespacedName, stored.UID), now: r.Now(),
		read: current.Graph().Policy(w.Namespace, w.Name), live: r.watches.Owned(w.NamespacedName),
		observed: map[watches.Target]dependency.Observed{}}
	err := rec.reconcile(ctx)
	return reconcile.Result{RequeueAfter: rec.after}, err
}

// reconciliation is one reconciliation of a Policy.
type reconciliation struct {
	*reconciler
	key    types.NamespacedName
	stored *storedPolicy
	read   *dependency.Policy
	state  *policyState
	now    time.Time

	// verified is set if the Policy has a valid mark; verification is what the mark says.
	verified     bool
	verification dependency.Verification
	// observed caches the observed dependencies.
	observed map[watches.Target]dependency.Observed
	// live are the Policy's objects.
	live map[dependency.Ref]*unstructured.Unstructured
	// after is when to requeue without an event; zero for never.
	after time.Duration
	// stale is set if something that was read has changed or is about to, whose event enqueues the Policy.
	stale bool
	// cycle is a cycle that includes the Policy.
	cycle []dependency.Ref
}

// again requeues the Policy after a delay, unless it is enqueued earlier.
func (rec *reconciliation) again(after time.Duration) {
	if after > 0 && (rec.after == 0 || after < rec.after) {
		rec.after = after
	}
}

func (rec *reconciliation) reconcile(ctx context.Context) error {
	if rec.read.Deleting {
		return rec.finish(ctx)
	}
	if rec.excluded(rec.key.Namespace) {
		rec.follow(nil)
		return rec.status(ctx, nil)
	}
	rec.verify()
	rec.follow(rec.targets())
	rec.cycle = rec.Store.Load().Graph().PolicyCycle(rec.key.Namespace, rec.key.Name)
	var outcomes []dependency.TemplateOutcome
	var errs []error
	if !rec.read.Disabled {
		for i := range rec.read.Templates {
			out, err := rec.template(ctx, &rec.read.Templates[i])
			outcomes = append(outcomes, out)
			errs = append(errs, err)
		}
	}
	rec.noteCycle()
	if err := rec.prune(ctx); err != nil {
		errs = append(errs, err)
	}
	if rec.stale {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, rec.release(ctx), rec.status(ctx, outcomes))...)
}

// excluded reports whether Policies of a namespace are ignored.
func (r *reconciler) excluded(namespace string) bool {
	return slices.Contains(r.ExcludedNamespaces, namespace)
}

// verify checks whether the permissions of the Policy's author were verified for its present content.
func (rec *reconciliation) verify() {
	if digest, err := dependency.DigestOf(rec.stored.Object); err == nil {
		rec.verification, rec.verified = dependency.Verify(rec.Key(), rec.stored.Object, digest)
	}
}

// unverified returns why nothing is created for a template because of its author's permissions, "" for no such reason.
func (rec *reconciliation) unverified(t *dependency.Template) string {
	if !rec.verified {
		return dependency.UnverifiedText
	}
	return rec.verification.Uncovered(t)
}

// applicable reports whether the object of a template could be created as far as is known, and else why not, unless the
// template itself says so: its dependencies are observed only then, and must not cost anything before. Ready is set if
// the existing objects of its kind are known.
func (rec *reconciliation) applicable(t *dependency.Template) (applicable bool, fault string, ready bool) {
	fault = rec.unverified(t)
	if !t.Readable || t.Fault != "" || fault != "" {
		return false, fault, false
	}
	ready, forbidden := rec.watches.Template(t.Ref.Group, t.Ref.Kind)
	fault = rec.kindFault(t, rec.watches.Lookup(t.Ref.Group, t.Ref.Kind), forbidden)
	return fault == "", fault, ready
}

// targets returns what the Policy needs to observe: its dependencies and the objects of its templates.
func (rec *reconciliation) targets() []watches.Target {
	targets := map[watches.Target]struct{}{} // most templates have the same dependencies
	for i := range rec.read.Templates {
		t := &rec.read.Templates[i]
		if t.Readable {
			targets[watches.Target{Ref: t.Ref, Version: t.Version, Template: true}] = struct{}{}
			if m := rec.state.templates[t.Ref]; m != nil && m.contested {
				targets[watches.Target{Ref: t.Ref, Version: t.Version}] = struct{}{}
			}
		}
		if applicable, _, _ := rec.applicable(t); !applicable || rec.read.Disabled || rec.read.Deleting {
			continue
		}
		for _, d := range t.Dependencies {
			targets[target(*d)] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(targets))
}

// follow watches targets.
func (rec *reconciliation) follow(targets []watches.Target) {
	rec.watches.Set(rec.key, rec.stored.CreationTimestamp.Time, targets)
}

func target(d dependency.Dependency) watches.Target {
	return watches.Target{Ref: d.Ref, Version: d.Version}
}

// results returns the results of the dependencies of a template.
func (rec *reconciliation) results(t *dependency.Template) []dependency.Result {
	results := make([]dependency.Result, len(t.Dependencies))
	for i, d := range t.Dependencies {
		results[i] = dependency.Evaluate(*d, rec.observe(*d))
	}
	return results
}

// observe returns the state of a dependency, the same for all templates. It reads Policies and PolicySets from the
// store, all other objects from the watches.
func (rec *reconciliation) observe(d dependency.Dependency) dependency.Observed {
	if known, seen := rec.observed[target(d)]; seen {
		return known
	}
	observed := rec.watches.Observe(rec.key, target(d))
	key := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	switch {
	case observed.Reason == dependency.NoKind:
	case d.IsPolicy():
		observed = rec.Store.Load().Policy(key).Known().Observed()
	case d.IsSet():
		observed = rec.Store.Load().PolicySet(key).Known().Observed()
	}
	rec.observed[target(d)] = observed
	return observed
}

// noteCycle enqueues all Policies of a cycle that this Policy starts or stops being part of, so that each reports it:
// they depend on what is in it.
func (rec *reconciliation) noteCycle() {
	if slices.Equal(rec.cycle, rec.state.cycle) {
		return
	}
	for _, ref := range slices.Concat(rec.cycle, rec.state.cycle) {
		rec.enqueue(policy, rec.watches.Dependents(ref)...)
	}
	rec.state.cycle = rec.cycle
}

// prune deletes objects of the Policy that have no template any more; all of them if the Policy is disabled.
func (rec *reconciliation) prune(ctx context.Context) error {
	kept := map[dependency.Ref]bool{}
	for i := range rec.read.Templates {
		kept[rec.read.Templates[i].Ref] = !rec.read.Disabled
	}
	rec.state.keep(kept, rec.live)
	if (!rec.read.NamesKnown || !rec.verified) && !rec.read.Disabled {
		return nil // an unknown name might be any of them, and an unverified Policy changes nothing
	}
	return rec.deleteAll(ctx, func(u *unstructured.Unstructured) bool { return !kept[dependency.RefOf(u)] })
}

// finish deletes the cluster-scoped objects of a Policy that is being deleted, and then removes the finalizer.
// Namespaced objects are garbage collected, since the Policy owns them.
func (rec *reconciliation) finish(ctx context.Context) error {
	rec.verify()
	rec.follow(rec.targets())
	if !slices.Contains(rec.stored.Finalizers, dependency.Finalizer) {
		return nil
	}
	err := rec.deleteAll(ctx, func(u *unstructured.Unstructured) bool { return u.GetNamespace() == "" })
	if err != nil {
		return err
	}
	return rec.release(ctx)
}

// release removes the finalizer if no cluster-scoped object is left that requires it.
func (rec *reconciliation) release(ctx context.Context) error {
	if !slices.Contains(rec.stored.Finalizers, dependency.Finalizer) {
		return nil
	}
	for ref := range rec.live {
		if ref.Namespace == "" {
			return nil // the deletion event enqueues the Policy
		}
	}
	if !rec.read.Deleting && !rec.read.Disabled {
		for i := range rec.read.Templates {
			ref := rec.read.Templates[i].Ref
			if k := rec.watches.Lookup(ref.Group, ref.Kind); k != nil && !k.Namespaced {
				return nil
			}
		}
	}
	for _, k := range rec.watches.Templates() {
		if k.Namespaced {
			continue
		}
		if ready, forbidden := rec.watches.Template(k.Group, k.Kind); !ready && forbidden == nil {
			rec.again(retryDelay) // not read yet: the objects may belong to any Policy
			return nil
		}
	}
	_, err := rec.setFinalizer(ctx, rec.stored, false)
	rec.stale = true
	return err
}

// deleteAll deletes some of the Policy's objects, in a fixed order. A deletion that fails does not stop the others.
func (rec *reconciliation) deleteAll(ctx context.Context, some func(*unstructured.Unstructured) bool) error {
	var errs []error
	for _, u := range slices.SortedFunc(maps.Values(rec.live), func(a, b *unstructured.Unstructured) int {
		return dependency.RefOf(a).Compare(dependency.RefOf(b))
	}) {
		if !some(u) || u.GetDeletionTimestamp() != nil || !dependency.LiveOf(u.Object, rec.read).Ours {
			continue
		}
		ref := dependency.RefOf(u)
		if kind := rec.watches.Lookup(ref.Group, ref.Kind); kind != nil {
			if err := rec.delete(ctx, kind, rec.state.template(ref), u); !errors.Is(err, errOutdated) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// status writes the status of the Policy if it differs, and reports what changed.
func (rec *reconciliation) status(ctx context.Context, outcomes []dependency.TemplateOutcome) error {
	before := rec.stored.Object
	status, reported := dependency.NextStatus(dependency.StatusInput{Policy: before, Read: rec.read,
		Excluded: rec.excluded(rec.key.Namespace), Outcomes: outcomes, Now: rec.now})
	written, err := rec.writer.Status(ctx, snapshot.Policies, snapshot.InCluster(), before, before.Status, status)
	if !written {
		return err
	}
	log.FromContext(ctx).Info("status written", "policy", rec.key.String(), "compliant", status.ComplianceState,
		"pendingDependencies", status.PendingDependencies)
	rec.report(rec.stored, reported, rec.now.String())
	return err
}

// report records events of a Policy, best effort: the status has all that they say. Those of one occurrence that are
// equal are one.
func (r *reconciler) report(about *storedPolicy, reported []dependency.Event, occurrence string) {
	for _, e := range reported {
		r.Events.Record(events.Event{Regarding: corev1.ObjectReference{APIVersion: policyv1.GroupVersion.String(),
			Kind: policyv1.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID},
			Reason: dependency.EventReason, Action: dependency.EventReason, Warning: e.Warning, Note: e.Message,
			Occurrence: occurrence})
	}
}

// reconcileSet writes the status of a PolicySet if it differs.
func (r *reconciler) reconcileSet(ctx context.Context, key types.NamespacedName) error {
	stored := r.Store.Load().PolicySet(key)
	if stored == nil || stored.Read == nil || stored.DeletionTimestamp != nil {
		return nil
	}
	member := func(name string) *dependency.Policy {
		return r.Store.Load().Policy(types.NamespacedName{Namespace: key.Namespace, Name: name}).Known()
	}
	before := stored.Object
	status := dependency.NextSetStatus(stored.Read, &before.Status, member, r.excluded(key.Namespace), r.Now())
	written, err := r.writer.Status(ctx, snapshot.PolicySets, snapshot.InCluster(), before, before.Status, status)
	if written {
		log.FromContext(ctx).Info("status written", "policySet", key.String(), "compliant", status.Compliant)
	}
	return err
}
