package policy

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/rules/dependency"
)

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
	return rec.deleteAll(ctx, func(u *unstructured.Unstructured) bool { return !kept[refOf(u)] })
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
	kinds := rec.watches.Kinds()
	for ref := range rec.live {
		if ref.Namespace == "" {
			return nil // the deletion event enqueues the Policy
		}
	}
	if !rec.read.Deleting && !rec.read.Disabled {
		for i := range rec.read.Templates {
			ref := rec.read.Templates[i].Ref
			if k, served := kinds.Lookup(ref.Group, ref.Kind); served && !k.Namespaced {
				return nil
			}
		}
	}
	for _, k := range kinds.Templates() {
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
	for _, u := range sorted(rec.live) {
		if !some(u) || u.GetDeletionTimestamp() != nil || !dependency.LiveOf(u.Object, rec.read).Ours {
			continue
		}
		ref := refOf(u)
		kind, served := rec.watches.Kinds().Lookup(ref.Group, ref.Kind)
		if !served {
			continue
		}
		errs = append(errs, rec.delete(ctx, kind, rec.state.template(ref), u).err)
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
