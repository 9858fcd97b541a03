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

// reconciler works for one manager.
type reconciler struct {
	*Options
	watches *watches.Watches
	wake    *waker
	memory  memory
	budget  budget
	// objects writes those of templates, heads Policies and PolicySets, client events.
	objects dynamic.Interface
	heads   metadata.Interface
	client  client.Client
}

// Reconcile does one piece of work.
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
		return reconcile.Result{}, nil // nothing of it can be relied on, and nothing is touched
	}
	l := &look{reconciler: r, stored: stored, key: w.NamespacedName, memory: r.memory.policy(w.NamespacedName, stored.UID), now: r.Now(),
		read: r.scoped(stored.Read), live: r.owned(w.NamespacedName), observed: map[watches.Target]dependency.Observed{}}
	err := l.reconcile(ctx)
	return reconcile.Result{RequeueAfter: l.after}, err
}

// look is one look at a Policy, and what is done then.
type look struct {
	*reconciler
	key    types.NamespacedName
	stored *storedPolicy
	read   *dependency.Policy
	memory *policyMemory
	now    time.Time

	// verified: the Policy has a valid mark, and that says verification.
	verified     bool
	verification dependency.Verification
	// observed is what was looked at.
	observed map[watches.Target]dependency.Observed
	// live are the Policy's objects.
	live map[dependency.Ref]*unstructured.Unstructured
	// after is when to look again though nothing happens; zero for never.
	after time.Duration
	// stale tells that something that was looked at has changed, or will in a moment, which wakes the loop.
	stale bool
	// unread tells that something has not been read yet.
	unread bool
	// cycle is one that the Policy is part of; it is looked for once, if anything is waited for.
	cycle  []dependency.Ref
	cycled bool
}

// again has the Policy looked at again after a while, if not before.
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

// scoped is what was read of a Policy, with namespaces only where kinds have them.
func (r *reconciler) scoped(read *dependency.Policy) *dependency.Policy {
	return read.Scoped(func(group, kind string) bool {
		k, served := r.watches.Kinds().Lookup(group, kind)
		return served && !k.Namespaced
	})
}

// excluded tells whether nothing is done for Policies of a namespace.
func (r *reconciler) excluded(namespace string) bool {
	return slices.Contains(r.ExcludedNamespaces, namespace)
}

// verify finds out whether the rights of the Policy's author were verified when it was written as it is.
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

// unverified is why nothing is made of a template for want of its author's rights, "" if there is no such reason.
func (l *look) unverified(t *dependency.Template) string {
	if !l.verified {
		return dependency.UnverifiedText
	}
	return l.verification.Uncovered(t)
}

// applicable reports whether the object of a template could be made as far as is known: what it depends on is of interest only then,
// and must not cost anything before (threat O23).
func (l *look) applicable(t *dependency.Template) bool {
	if !t.Readable || t.Fault != "" || l.unverified(t) != "" {
		return false
	}
	kind, served := l.watches.Kinds().Lookup(t.Ref.Group, t.Ref.Kind)
	_, forbidden := l.watches.Template(t.Ref.Group, t.Ref.Kind)
	return kindFault(t, kind, served, l.Gatekeeper, forbidden) == ""
}

// targets are what has to be known for the Policy: what it depends on, and what its templates make.
func (l *look) targets() []watches.Target {
	targets := map[watches.Target]struct{}{} // most templates depend on the same
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

// follow watches what is among the targets and within the budget. Others for whom that leaves more, or less, look again.
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

// findings are what the dependencies of a template come to.
func (l *look) findings(t *dependency.Template) []dependency.Finding {
	findings := make([]dependency.Finding, len(t.Dependencies))
	for i, d := range t.Dependencies {
		findings[i] = dependency.Evaluate(d, l.observe(d))
	}
	return findings
}

// observe is what is known of a dependency, the same for all templates.
func (l *look) observe(d dependency.Dependency) dependency.Observed {
	known, seen := l.observed[target(d)]
	if !seen {
		known = l.observeNow(d)
		l.observed[target(d)] = known
	}
	return known
}

// observeNow looks. Policies and PolicySets are known here, all else to the watches.
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

// circle is a cycle that the Policy is part of.
func (l *look) circle() []dependency.Ref {
	if !l.cycled {
		l.cycle, l.cycled = l.Store.Load().Order().PolicyCycle(l.key.Namespace, l.key.Name), true
	}
	return l.cycle
}

// noteCycle has those who wait for this Policy look again where it was found to wait for itself, or does so no longer: they
// do as well, and say so. So it goes round.
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
