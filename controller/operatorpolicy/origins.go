package operatorpolicy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// withOrigins returns ClusterServiceVersions with the origins of those that are copies of a policy's package, and with
// the originals in other namespaces that serve this one: OLM creates no copies of them if OLMConfig disables copies
// (disableCopiedCSVs).
func (r *reconciler) withOrigins(p *operatorpolicy.Policy, csvs []*compliance.Installed) []*compliance.Installed {
	if p.MustNotHave || p.Concerns() == "" {
		return csvs
	}
	csvs = slices.Clone(csvs) // the policies of a namespace share the slice
	for i := range csvs {
		c := *csvs[i]
		if c.CopiedFrom == "" || c.CopiedFrom == c.Metadata.Namespace || c.Package != "" && c.Package != p.Package {
			continue
		}
		c.Origin = r.origin(c.CopiedFrom, c.Metadata.Name, c.Metadata.Namespace)
		csvs[i] = &c
	}
	return append(csvs, r.originals(p, csvs)...)
}

// originals returns the ClusterServiceVersions of a policy's package that are installed for all namespaces in others,
// without those that have a copy.
func (r *reconciler) originals(
	p *operatorpolicy.Policy, copies []*compliance.Installed,
) (originals []*compliance.Installed) {
	s := r.Store.Load()
	for _, namespace := range s.InstalledGlobally(p.Package) {
		if namespace == p.Concerns() {
			continue
		}
		for _, o := range s.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(namespace)) {
			copied := func(c *compliance.Installed) bool {
				return c.CopiedFrom == namespace &&
					c.Metadata.Name == o.Name
			}
			if pkg, _ := o.Bundle(); pkg != p.Package || o.Copied() || o.VirtualOperator() ||
				slices.ContainsFunc(copies, copied) {
				continue
			}
			if origin := r.origin(namespace, o.Name, p.Concerns()); origin != nil {
				c := *origin.CSV
				c.CopiedFrom, c.Origin = namespace, origin
				originals = append(originals, &c)
			}
		}
	}
	return originals
}

// origin returns the namespace of an original, for the evaluation of another one; nil if there is no such original.
func (r *reconciler) origin(namespace, name, dependent string) *compliance.Origin {
	r.state.depends(dependent, namespace) // before reading: a change in between triggers another evaluation
	s := r.Store.Load()
	original := s.Find(snapshot.ClusterServiceVersions, types.NamespacedName{Namespace: namespace, Name: name})
	if original == nil {
		return nil
	}
	ns := s.Namespace(namespace)
	origin := &compliance.Origin{CSV: installed(original), Drifted: ns.Drifted(name), Plans: ns.Plans(),
		Subscriptions: list(s, snapshot.Subscriptions, namespace, (*snapshot.Object).Subscription)}
	if groups := s.Objects(snapshot.OperatorGroups, snapshot.InNamespace(namespace)); len(groups) == 1 {
		// of another type: there are none
		origin.Targets, _, _ = unstructured.NestedStringSlice(groups[0].Unstructured().Object, "status", "namespaces")
	}
	return origin
}

// before returns the Subscriptions that the status of a policy relates to it.
func (r *reconciler) before(p *operatorpolicy.Policy) (subscriptions []*olm.Subscription) {
	if p.MustNotHave || p.Concerns() == "" {
		return nil
	}
	for i := range p.Object.Status.RelatedObjects {
		o := &p.Object.Status.RelatedObjects[i].Object
		if o.Kind != olm.KindSubscription {
			continue
		}
		key := types.NamespacedName{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
		if key.Namespace != p.Concerns() {
			r.state.depends(p.Concerns(), key.Namespace)
		}
		if found := r.Store.Load().Find(snapshot.Subscriptions, key); found != nil {
			subscriptions = append(subscriptions, found.Subscription())
		}
	}
	return subscriptions
}
