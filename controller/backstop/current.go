package backstop

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/snapshot"
)

// pageSize bounds what is read of policies at a time.
const pageSize = 500

// catchUp waits, before the first write of a term, until the snapshot has every policy and every Constraint that the API
// server stores. From then on it is never older than what the last leader wrote.
func (r *reconciler) catchUp(ctx context.Context) error {
	if r.current {
		return nil
	}
	for _, kind := range []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Constraints} {
		stored, newest, err := r.storedOf(ctx, kind)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, signal.Timeout)
		err = r.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return includes(s, kind, stored, newest) })
		cancel()
		if err != nil {
			return fmt.Errorf("wait until the watches show every stored %s: %w", kind.Kind, err)
		}
	}
	r.current = true
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
	for o := range s.AllObjects(kind) {
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
