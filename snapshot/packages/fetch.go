package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// fetcher fetches a package once.
type fetcher func(ctx context.Context, q query) (*catalog.Package, error)

// errAbsent is the error for a package that does not exist, although the API is served.
var errAbsent = errors.New("no such package")

func isAbsent(err error) bool { return errors.Is(err, errAbsent) }

// manifests fetches from the package server.
type manifests struct{ client dynamic.Interface }

// Fetch reads a package of a catalog once, for commands; the parts of the catalog that are not known are empty.
func Fetch(ctx context.Context, client dynamic.Interface, pkg string, source olm.Catalog) (*catalog.Package, error) {
	return manifests{client}.fetch(ctx, query{pkg, source})
}

// fetch reads in the namespace of the catalog: a catalog outside of OLM's global namespace serves its packages only
// there, and the global ones are served everywhere.
func (m manifests) fetch(ctx context.Context, q query) (*catalog.Package, error) {
	client := m.client.Resource(olm.PackageManifests).Namespace(cmp.Or(q.catalog.Namespace, metav1.NamespaceDefault))
	got, err := client.Get(ctx, q.pkg, metav1.GetOptions{})
	if err != nil {
		return nil, explain(q, err)
	}
	if p := catalog.Decode(got.Object); p != nil && p.Name == q.pkg && matches(q.catalog, p.Catalog) {
		return p, nil
	}
	if len(validation.IsValidLabelValue(q.catalog.Name)) > 0 { // no catalog has that name
		return nil, fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
	}
	// A package in several catalogs is several objects of one name, and GET returns any of them.
	selector := labels.Set{}
	if q.catalog.Name != "" {
		selector["catalog"] = q.catalog.Name
	}
	if q.catalog.Namespace != "" {
		selector["catalog-namespace"] = q.catalog.Namespace
	}
	list, err := client.List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(selector).String(),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", q.pkg).String(),
	})
	if err != nil {
		return nil, explain(q, err)
	}
	for i := range list.Items {
		if p := catalog.Decode(list.Items[i].Object); p != nil && p.Name == q.pkg && matches(q.catalog, p.Catalog) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
}

// explain distinguishes a missing package from a missing API: only the former error names the package.
func explain(q query, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read PackageManifest: %w", err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == q.pkg {
		return fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
	}
	return fmt.Errorf("PackageManifests are not served: %w", err)
}
