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
	// newestAnnotation is the resourceVersion up to which an object contains all changes of policies.
	newestAnnotation = "opgate.io/newest-policy"
	// writerAnnotation is the term of leadership in which an object was written.
	writerAnnotation = "opgate.io/written-by"
	// pageSize bounds what is read of policies at a time.
	pageSize = 500
)

// errBehind means that a stored object contains newer policies than the snapshot.
var errBehind = errors.New("the stored object contains newer policies than this replica knows")

// catchUp waits until the snapshot has every policy that the API server stores: before the first write of a term, and
// when a stored object contains newer policies. So the objects never go back to earlier policies, also after a restart
// (threat G22).
func (r *reconciler) catchUp(ctx context.Context) error {
	if r.newest != "" {
		return nil
	}
	stored, newest, err := r.storedPolicies(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, signal.Timeout)
	defer cancel()
	if err := r.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return includes(s, stored, newest) }); err != nil {
		return fmt.Errorf("wait until the watches show every stored OperatorPolicy: %w", err)
	}
	r.newest = newest
	return nil
}

// storedPolicies returns the resourceVersions of all stored policies, and that of the list, as the API server has them
// now.
func (r *reconciler) storedPolicies(ctx context.Context) (stored map[types.UID]string, newest string, err error) {
	kind := snapshot.OperatorPolicies.GroupVersionKind
	// Another program may own the definition, with another version.
	mapping, err := r.writer.Client.RESTMapper().RESTMapping(kind.GroupKind())
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
		return nil, "0", nil // no definition, no policies
	}
	return nil, "", fmt.Errorf("list OperatorPolicies: %w", err)
}

// includes reports whether a snapshot is not older than a list of policies.
func includes(s *snapshot.Snapshot, stored map[types.UID]string, newest string) bool {
	found := 0
	for o := range s.Each(snapshot.OperatorPolicies) {
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

// position returns the resourceVersion up to which a snapshot contains all changes of policies, as far as is known.
func (r *reconciler) position(s *snapshot.Snapshot) string {
	newest := r.newest
	for o := range s.Each(snapshot.OperatorPolicies) {
		if snapshot.Older(newest, o.ResourceVersion) {
			newest = o.ResourceVersion
		}
	}
	return newest
}

// behind returns errBehind, once for each version of a stored object, if that contains newer policies than those that
// were compiled. What is newer than the list that follows was written by another client.
func (r *reconciler) behind(live *unstructured.Unstructured) error {
	if live == nil || r.listedFor == live.GetResourceVersion() ||
		!snapshot.Older(r.compiled.newest, live.GetAnnotations()[newestAnnotation]) {
		return nil
	}
	r.newest, r.listedFor = "", live.GetResourceVersion()
	return errBehind
}
