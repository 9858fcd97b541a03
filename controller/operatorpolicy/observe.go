package operatorpolicy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// observe returns the input that all policies of a namespace share, from a snapshot, without requests to the API server.
func observe(s *snapshot.Snapshot, namespace string) *compliance.Input {
	in := &compliance.Input{Namespace: s.Namespace(namespace), Deployments: map[string]compliance.Deployment{},
		CatalogSource: func(c olm.Catalog) *olm.CatalogSource { return catalogSource(s, c) }}
	if namespace == "" {
		return in
	}
	for _, o := range s.Objects(snapshot.Deployments, snapshot.InNamespace(namespace)) {
		d := o.Deployment()
		in.Deployments[o.Name] = compliance.Deployment{ObjectMeta: o.Metadata(), Available: d.Available,
			Stalled: d.Stalled}
	}
	for o := range s.AllObjects(snapshot.CatalogSources) {
		in.Catalogs = append(in.Catalogs, olm.Catalog{Namespace: o.Namespace, Name: o.Name})
	}
	slices.SortFunc(in.Catalogs, func(a, b olm.Catalog) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return in
}

// crds returns the CustomResourceDefinitions that OLM labelled as an operator's, sorted by name.
func crds(s *snapshot.Snapshot, pkg, namespace string) []compliance.CRD {
	var found []compliance.CRD
	for o := range s.AllObjects(snapshot.CustomResourceDefinitions) {
		if d := o.Definition(); belongs(d, pkg, namespace) {
			crd := compliance.CRD{ObjectMeta: d.Metadata, Operators: d.Operators}
			crd.ResourceVersion = o.ResourceVersion
			found = append(found, crd)
		}
	}
	slices.SortFunc(found, func(a, b compliance.CRD) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// migrated returns what shows that OLM v1 manages an operator, sorted by kind and name.
func migrated(s *snapshot.Snapshot, pkg, namespace string) []*olm.Migrated {
	var found []*olm.Migrated
	for _, kind := range extensionKinds {
		for o := range s.AllObjects(kind) {
			if m := o.Migrated(); m != nil && m.Of(pkg, namespace) {
				found = append(found, m)
			}
		}
	}
	slices.SortFunc(found, func(a, b *olm.Migrated) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// belongs reports whether OLM has labelled a CustomResourceDefinition as an operator's.
func belongs(d *snapshot.Definition, pkg, namespace string) bool {
	return d != nil && len(d.Operators) > 0 && slices.Contains(d.Operators, compliance.OperatorLabel(pkg, namespace))
}

// catalogSource returns a CatalogSource, or nil.
func catalogSource(s *snapshot.Snapshot, c olm.Catalog) *olm.CatalogSource {
	if o := s.Find(snapshot.CatalogSources, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}); o != nil {
		return o.CatalogSource()
	}
	return nil
}
