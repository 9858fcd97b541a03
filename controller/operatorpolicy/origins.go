package operatorpolicy

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// withOrigins returns ClusterServiceVersions with the origins of those that are copies of a policy's package, and with the originals in
// other namespaces that serve this one: OLM creates no copies of them if OLMConfig disables copies (disableCopiedCSVs).
func (r *reconciler) withOrigins(p *rules.OperatorPolicy, csvs []*compliance.Installed) []*compliance.Installed {
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

// originals returns the ClusterServiceVersions of a policy's package that are installed for all namespaces in others, without those that
// have a copy.
func (r *reconciler) originals(p *rules.OperatorPolicy, copies []*compliance.Installed) (originals []*compliance.Installed) {
	s := r.Store.Load()
	for _, namespace := range s.InstalledGlobally(p.Package) {
		if namespace == p.Concerns() {
			continue
		}
		for _, o := range s.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(namespace)) {
			copied := func(c *compliance.Installed) bool { return c.CopiedFrom == namespace && c.Metadata.Name == o.Name }
			if pkg, _ := o.Bundle(); pkg != p.Package || o.Copied() || o.VirtualOperator() || slices.ContainsFunc(copies, copied) {
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
	r.origins.add(namespace, dependent) // before reading: a change in between triggers another evaluation
	s := r.Store.Load()
	original := s.Find(snapshot.ClusterServiceVersions, types.NamespacedName{Namespace: namespace, Name: name})
	if original == nil {
		return nil
	}
	ns := s.Namespace(namespace)
	origin := &compliance.Origin{CSV: installed(original), Drifted: ns.Drifted(name), Plans: ns.Plans(),
		Subscriptions: list(s, snapshot.Subscriptions, namespace, (*snapshot.Object).Subscription)}
	if groups := s.Objects(snapshot.OperatorGroups, snapshot.InNamespace(namespace)); len(groups) == 1 {
		origin.Targets, _, _ = unstructured.NestedStringSlice(groups[0].Unstructured().Object, "status", "namespaces") // of another type: there are none
	}
	return origin
}

// before returns the Subscriptions that the status of a policy relates to it.
func (r *reconciler) before(p *rules.OperatorPolicy) (subscriptions []*olm.Subscription) {
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
			r.origins.add(key.Namespace, p.Concerns())
		}
		if found := r.Store.Load().Find(snapshot.Subscriptions, key); found != nil {
			subscriptions = append(subscriptions, found.Subscription())
		}
	}
	return subscriptions
}

// dependents records which namespaces were evaluated with the contents of another one. The zero value is ready for use.
type dependents struct {
	mu sync.Mutex
	on map[string]map[string]struct{}
}

func (d *dependents) add(on, dependent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on == nil {
		d.on = map[string]map[string]struct{}{}
	}
	if d.on[on] == nil {
		d.on[on] = map[string]struct{}{}
	}
	d.on[on][dependent] = struct{}{}
}

// take returns the dependents of a namespace and removes them: their next evaluation adds them again.
func (d *dependents) take(on string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var taken []string
	for dependent := range d.on[on] {
		taken = append(taken, dependent)
	}
	delete(d.on, on)
	return taken
}
