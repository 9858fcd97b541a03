package policy

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/rules/dependency"
)

// prune deletes objects of the Policy that have no template any more; all of them if the Policy is disabled.
func (l *look) prune(ctx context.Context) error {
	kept := map[dependency.Ref]bool{}
	for i := range l.read.Templates {
		kept[l.read.Templates[i].Ref] = !l.read.Disabled
	}
	l.memory.keep(kept, l.live)
	if (!l.read.NamesKnown || !l.verified) && !l.read.Disabled {
		return nil // an unknown name might be any of them, and an unverified Policy changes nothing
	}
	return l.deleteAll(ctx, func(u *unstructured.Unstructured) bool { return !kept[refOf(u)] })
}

// finish deletes the cluster-scoped objects of a Policy that is being deleted, and then removes the finalizer. Namespaced objects are
// garbage collected, since the Policy owns them.
func (l *look) finish(ctx context.Context) error {
	l.verify()
	l.follow(l.targets())
	if !slices.Contains(l.stored.Finalizers, dependency.Finalizer) {
		return nil
	}
	err := l.deleteAll(ctx, func(u *unstructured.Unstructured) bool { return u.GetNamespace() == "" })
	if err != nil {
		return err
	}
	return l.release(ctx)
}

// release removes the finalizer if no cluster-scoped object is left that requires it.
func (l *look) release(ctx context.Context) error {
	if !slices.Contains(l.stored.Finalizers, dependency.Finalizer) {
		return nil
	}
	kinds := l.watches.Kinds()
	for ref := range l.live {
		if ref.Namespace == "" {
			return nil // the deletion event enqueues the Policy
		}
	}
	if !l.read.Deleting && !l.read.Disabled {
		for i := range l.read.Templates {
			ref := l.read.Templates[i].Ref
			if k, served := kinds.Lookup(ref.Group, ref.Kind); served && !k.Namespaced {
				return nil
			}
		}
	}
	for _, k := range kinds.Templates() {
		if k.Namespaced {
			continue
		}
		if ready, forbidden := l.watches.Template(k.Group, k.Kind); !ready && forbidden == nil {
			l.again(soon) // not read yet: the objects may belong to any Policy
			return nil
		}
	}
	_, err := l.hold(ctx, l.stored, false)
	l.stale = true
	return err
}

// deleteAll deletes some of the Policy's objects, in a fixed order. A deletion that fails does not stop the others.
func (l *look) deleteAll(ctx context.Context, some func(*unstructured.Unstructured) bool) error {
	var errs []error
	for _, u := range sorted(l.live) {
		if !some(u) || u.GetDeletionTimestamp() != nil || !dependency.LiveOf(u.Object, l.read).Ours {
			continue
		}
		ref := refOf(u)
		kind, served := l.watches.Kinds().Lookup(ref.Group, ref.Kind)
		if !served {
			continue
		}
		errs = append(errs, l.delete(ctx, kind, l.memory.template(ref), u).err)
	}
	return errors.Join(errs...)
}

func sorted(live map[dependency.Ref]*unstructured.Unstructured) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, 0, len(live))
	for _, u := range live {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return refOf(a).Compare(refOf(b)) })
	return all
}
