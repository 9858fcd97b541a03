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
	in := &compliance.Input{Deployments: map[string]compliance.Deployment{},
		Content:       func(kind string, of *olm.ObjectMeta) map[string]any { return storedFields(s, kind, of) },
		CatalogSource: func(c olm.Catalog) *olm.CatalogSource { return catalogSource(s, c) }}
	if namespace == "" {
		return in
	}
	ns := s.Namespace(namespace)
	in.NamespaceExists = ns.Exists() && !ns.Deleting()
	in.OperatorGroups = list(s, snapshot.OperatorGroups, namespace, (*snapshot.Object).OperatorGroup)
	in.Subscriptions = list(s, snapshot.Subscriptions, namespace, (*snapshot.Object).Subscription)
	in.CSVs = list(s, snapshot.ClusterServiceVersions, namespace, installed)
	for _, o := range s.Objects(snapshot.Deployments, snapshot.InNamespace(namespace)) {
		d := o.Deployment()
		in.Deployments[o.Name] = compliance.Deployment{ObjectMeta: o.Metadata(), Available: d.Available,
			Stalled: d.Stalled}
	}
	for o := range s.Each(snapshot.CatalogSources) {
		in.Catalogs = append(in.Catalogs, olm.Catalog{Namespace: o.Namespace, Name: o.Name})
	}
	slices.SortFunc(in.Catalogs, func(a, b olm.Catalog) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return in
}

// list returns the objects of a kind in a namespace.
func list[T any](s *snapshot.Snapshot, kind *snapshot.Kind, namespace string, of func(*snapshot.Object) *T) (all []*T) {
	for _, o := range s.Objects(kind, snapshot.InNamespace(namespace)) {
		all = append(all, of(o))
	}
	return all
}

// storedFields returns the stored fields of an object.
func storedFields(s *snapshot.Snapshot, kind string, of *olm.ObjectMeta) map[string]any {
	stored := snapshot.Subscriptions
	if kind == olm.KindOperatorGroup {
		stored = snapshot.OperatorGroups
	}
	if o := s.Find(stored, types.NamespacedName{Namespace: of.Namespace, Name: of.Name}); o != nil {
		return o.Unstructured().Object
	}
	return nil
}

// crds returns the CustomResourceDefinitions that OLM labelled as an operator's, sorted by name.
func crds(s *snapshot.Snapshot, pkg, namespace string) []compliance.CRD {
	var found []compliance.CRD
	for o := range s.Each(snapshot.CustomResourceDefinitions) {
		if d := o.Definition(); belongs(d, pkg, namespace) {
			found = append(found, compliance.CRD{ObjectMeta: o.Metadata(), Operators: d.Operators})
		}
	}
	slices.SortFunc(found, func(a, b compliance.CRD) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// migrated returns what shows that OLM v1 manages an operator, sorted by kind and name.
func migrated(s *snapshot.Snapshot, pkg, namespace string) []*olm.Migrated {
	var found []*olm.Migrated
	for _, kind := range extensionKinds {
		for o := range s.Each(kind) {
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

// installed returns a ClusterServiceVersion.
func installed(o *snapshot.Object) *compliance.Installed {
	csv := o.CSV()
	c := &compliance.Installed{CSV: csv, CopiedFrom: csv.Metadata.Labels.CopiedFrom}
	c.Package, c.Version = o.Bundle()
	return c
}
