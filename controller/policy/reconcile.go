package policy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

// reconciler reconciles for one manager.
type reconciler struct {
	*Options
	watches *watches.Watches
	wake    *waker
	memory  memory
	budget  budget
	// objects writes the objects of templates, heads Policies and PolicySets, client events.
	objects dynamic.Interface
	heads   metadata.Interface
	client  client.Client
}

// Reconcile processes one item of work.
func (r *reconciler) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	if w.subject == set {
		return reconcile.Result{}, r.reconcileSet(ctx, w.NamespacedName)
	}
	stored := r.Store.Load().Policy(w.NamespacedName)
	if stored == nil {
		r.watches.Set(w.NamespacedName, nil)
		r.wake.add(policy, r.budget.forget(w.NamespacedName)...)
		r.memory.forget(w.NamespacedName)
		return reconcile.Result{}, nil
	}
	if stored.Read == nil {
		return reconcile.Result{}, nil // its content cannot be trusted, so nothing is changed
	}
	l := &look{reconciler: r, stored: stored, key: w.NamespacedName, memory: r.memory.policy(w.NamespacedName, stored.UID), now: r.Now(),
		read: r.scoped(stored.Read), live: r.owned(w.NamespacedName), observed: map[watches.Target]dependency.Observed{}}
	err := l.reconcile(ctx)
	return reconcile.Result{RequeueAfter: l.after}, err
}

// look is one reconciliation of a Policy.
type look struct {
	*reconciler
	key    types.NamespacedName
	stored *storedPolicy
	read   *dependency.Policy
	memory *policyMemory
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
	// unread is set if something has not been read yet.
	unread bool
	// cycle is a cycle that includes the Policy; computed once, if a dependency is not met.
	cycle  []dependency.Ref
	cycled bool
}

// again requeues the Policy after a delay, unless it is enqueued earlier.
func (l *look) again(after time.Duration) {
	if after > 0 && (l.after == 0 || after < l.after) {
		l.after = after
	}
}

func (l *look) reconcile(ctx context.Context) error {
	if l.read.Deleting {
		return l.finish(ctx)
	}
	if l.excluded(l.key.Namespace) {
		l.follow(nil)
		return l.status(ctx, nil)
	}
	l.verify()
	l.follow(l.targets())
	var outcomes []dependency.TemplateOutcome
	var errs []error
	if !l.read.Disabled {
		for i := range l.read.Templates {
			out, err := l.template(ctx, &l.read.Templates[i])
			outcomes = append(outcomes, out)
			errs = append(errs, err)
		}
	}
	l.noteCycle()
	if err := l.prune(ctx); err != nil {
		errs = append(errs, err)
	}
	if l.stale {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, l.release(ctx), l.status(ctx, outcomes))...)
}

// scoped returns a parsed Policy, with namespaces only for namespaced kinds.
func (r *reconciler) scoped(read *dependency.Policy) *dependency.Policy {
	return read.Scoped(func(group, kind string) bool {
		k, served := r.watches.Kinds().Lookup(group, kind)
		return served && !k.Namespaced
	})
}

// excluded reports whether Policies of a namespace are ignored.
func (r *reconciler) excluded(namespace string) bool {
	return slices.Contains(r.ExcludedNamespaces, namespace)
}

// verify checks whether the permissions of the Policy's author were verified for its present content.
func (l *look) verify() {
	if l.memory.digested != l.stored.Generation || l.stored.Generation == 0 {
		digest, err := dependency.DigestOf(l.stored.Object)
		if err != nil {
			return
		}
		l.memory.digest, l.memory.digested = digest, l.stored.Generation
	}
	l.verification, l.verified = dependency.Verify(l.Key(), l.stored.Object, l.memory.digest)
}

// unverified returns why nothing is created for a template because of its author's permissions, "" for no such reason.
func (l *look) unverified(t *dependency.Template) string {
	if !l.verified {
		return dependency.UnverifiedText
	}
	return l.verification.Uncovered(t)
}

// applicable reports whether the object of a template could be created as far as is known: its dependencies are observed only then,
// and must not cost anything before (threat O23).
func (l *look) applicable(t *dependency.Template) bool {
	if !t.Readable || t.Fault != "" || l.unverified(t) != "" {
		return false
	}
	kind, served := l.watches.Kinds().Lookup(t.Ref.Group, t.Ref.Kind)
	_, forbidden := l.watches.Template(t.Ref.Group, t.Ref.Kind)
	return kindFault(t, kind, served, l.Gatekeeper, forbidden) == ""
}

// targets returns what the Policy needs to observe: its dependencies and the objects of its templates.
func (l *look) targets() []watches.Target {
	targets := map[watches.Target]struct{}{} // most templates have the same dependencies
	for i := range l.read.Templates {
		t := &l.read.Templates[i]
		if t.Readable {
			targets[watches.Target{Ref: t.Ref, Version: t.Version, Template: true}] = struct{}{}
			if m := l.memory.templates[t.Ref]; m != nil && m.contested {
				targets[watches.Target{Ref: t.Ref, Version: t.Version}] = struct{}{}
			}
		}
		if l.read.Disabled || l.read.Deleting || !l.applicable(t) {
			continue
		}
		for _, d := range t.Dependencies {
			targets[target(d)] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(targets))
}

// follow watches those targets that are within the budget, and enqueues the Policies whose share changes.
func (l *look) follow(targets []watches.Target) {
	objects := map[dependency.Ref]struct{}{}
	for _, t := range targets {
		if !t.Template {
			objects[t.Ref] = struct{}{}
		}
	}
	l.wake.add(policy, l.budget.set(l.stored, objects)...)
	l.watches.Set(l.key, slices.DeleteFunc(targets, func(t watches.Target) bool { return !t.Template && l.budget.beyond(l.key, t.Ref) }))
}

func target(d dependency.Dependency) watches.Target {
	return watches.Target{Ref: d.Ref, Version: d.Version}
}

// findings returns the results of the dependencies of a template.
func (l *look) findings(t *dependency.Template) []dependency.Finding {
	findings := make([]dependency.Finding, len(t.Dependencies))
	for i, d := range t.Dependencies {
		findings[i] = dependency.Evaluate(d, l.observe(d))
	}
	return findings
}

// observe returns the state of a dependency, the same for all templates.
func (l *look) observe(d dependency.Dependency) dependency.Observed {
	known, seen := l.observed[target(d)]
	if !seen {
		known = l.observeNow(d)
		l.observed[target(d)] = known
	}
	return known
}

// observeNow reads Policies and PolicySets from the store, all other objects from the watches.
func (l *look) observeNow(d dependency.Dependency) dependency.Observed {
	if l.budget.beyond(l.key, d.Ref) {
		return dependency.Observed{Reason: dependency.TooMany, Detail: dependency.DefaultLimits.BeyondText()}
	}
	observed := l.watches.Observe(target(d))
	if observed.Reason == dependency.NoKind {
		return observed
	}
	key := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	switch {
	case d.IsPolicy():
		return l.Store.Load().Policy(key).Known().Observed()
	case d.IsSet():
		return l.Store.Load().PolicySet(key).Known().Observed()
	}
	return observed
}

// circle returns a cycle that includes the Policy.
func (l *look) circle() []dependency.Ref {
	if !l.cycled {
		l.cycle, l.cycled = l.Store.Load().Graph().PolicyCycle(l.key.Namespace, l.key.Name), true
	}
	return l.cycle
}

// noteCycle enqueues the dependents of this Policy when it starts or stops being part of a cycle, so that every Policy of the
// cycle reports it.
func (l *look) noteCycle() {
	found := len(l.cycle) > 0
	if found == l.memory.cycle {
		return
	}
	l.memory.cycle = found
	waiting := []dependency.Ref{dependency.PolicyRef(l.key.Namespace, l.key.Name)}
	for _, s := range l.wake.members.sets(l.key) {
		waiting = append(waiting, dependency.SetRef(s.Namespace, s.Name))
	}
	for i := range l.read.Templates {
		waiting = append(waiting, l.read.Templates[i].Ref)
	}
	for _, ref := range waiting {
		l.wake.add(policy, l.watches.Dependents(ref)...)
	}
}
