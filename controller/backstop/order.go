package backstop

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/snapshot"
)

const (
	// writerAnnotation is the term of leadership in which an object was written.
	writerAnnotation = "opgate.io/written-by"
	// pageSize bounds what is read of policies at a time.
	pageSize = 500
)

// sources are the kinds that the objects are compiled from, each with the annotation of an object that has the
// resourceVersion up to which it contains all changes of the kind.
var sources = [...]struct {
	kind       *snapshot.Kind
	annotation string
}{
	{snapshot.OperatorPolicies, "opgate.io/newest-policy"},
	{snapshot.Constraints, "opgate.io/newest-constraint"},
}

// position is a resourceVersion for each of sources; "" where none is known.
type position [len(sources)]string

// annotations are those of an object that contains all changes up to the position.
func (p position) annotations() map[string]string {
	all := map[string]string{}
	for i, source := range sources {
		all[source.annotation] = p[i]
	}
	return all
}

// errBehind means that a stored object contains newer policies than the snapshot.
var errBehind = errors.New("the stored object contains newer policies than this replica knows")

// catchUp waits until the snapshot has every policy and every Constraint that the API server stores: before the first
// write of a term, and when a stored object contains newer ones. So the objects never go back to earlier policies, also
// after a restart (threat G22).
func (r *reconciler) catchUp(ctx context.Context) error {
	if r.newest != (position{}) {
		return nil
	}
	var reached position
	for i, source := range sources {
		stored, newest, err := r.storedOf(ctx, source.kind)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, signal.Timeout)
		err = r.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return includes(s, source.kind, stored, newest) })
		cancel()
		if err != nil {
			return fmt.Errorf("wait until the watches show every stored %s: %w", source.kind.Kind, err)
		}
		reached[i] = newest
	}
	r.newest = reached
	return nil
}

// storedOf returns the resourceVersions of all stored objects of a kind, and that of the list, as the API server has
// them now.
func (r *reconciler) storedOf(
	ctx context.Context, of *snapshot.Kind,
) (stored map[types.UID]string, newest string, err error) {
	// Another program may own the definition, with another version.
	mapping, err := r.writer.Client.RESTMapper().RESTMapping(of.GroupKind())
	stored = map[types.UID]string{}
	page := &metav1.PartialObjectMetadataList{}
	for err == nil {
		page.SetGroupVersionKind(mapping.GroupVersionKind)
		if err = r.reader.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			break
		}
		for i := range page.Items {
			stored[page.Items[i].UID] = page.Items[i].ResourceVersion
		}
		if page.Continue == "" {
			return stored, page.ResourceVersion, nil
		}
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, "0", nil // no definition, no objects
	}
	return nil, "", fmt.Errorf("list objects of kind %s: %w", of.Kind, err)
}

// includes reports whether a snapshot is not older than a list of all objects of a kind.
func includes(s *snapshot.Snapshot, kind *snapshot.Kind, stored map[types.UID]string, newest string) bool {
	found := 0
	for o := range s.Each(kind) {
		version, listed := stored[o.UID]
		switch {
		case listed && !snapshot.Older(o.ResourceVersion, version):
			found++
		case listed, !snapshot.Older(newest, o.ResourceVersion): // it was changed, or deleted, before the list
			return false
		}
	}
	return found == len(stored)
}

// position returns the resourceVersions up to which a snapshot contains all changes, as far as is known.
func (r *reconciler) position(s *snapshot.Snapshot) position {
	reached := r.newest
	for i, source := range sources {
		for o := range s.Each(source.kind) {
			if snapshot.Older(reached[i], o.ResourceVersion) {
				reached[i] = o.ResourceVersion
			}
		}
	}
	return reached
}

// behind returns errBehind, once for each version of a stored object, if that contains newer policies or Constraints
// than those that were compiled. What is newer than the list that follows was written by another client.
func (r *reconciler) behind(live *unstructured.Unstructured) error {
	if live == nil || r.listedFor == live.GetResourceVersion() {
		return nil
	}
	for i, source := range sources {
		if snapshot.Older(r.compiled.newest[i], live.GetAnnotations()[source.annotation]) {
			r.newest, r.listedFor = position{}, live.GetResourceVersion()
			return errBehind
		}
	}
	return nil
}
