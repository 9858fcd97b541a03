package operatorpolicy

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
)

// setOrigins sets the origins of copies of a policy's package, and the originals in other namespaces that serve the
// policy's namespace without a copy: OLM creates none if OLMConfig disables copies (disableCopiedCSVs).
func (r *reconciler) setOrigins(p *operatorpolicy.Policy, in *compliance.Input) {
	if p.MustNotHave || p.Concerns() == "" {
		return
	}
	in.Origins = map[*olm.CSV]*compliance.Origin{}
	for _, c := range in.Namespace.CSVs() {
		from := c.Metadata.Labels.CopiedFrom
		if from == "" || from == c.Metadata.Namespace || c.Bundle.Package != "" && c.Bundle.Package != p.Package {
			continue
		}
		if origin := r.origin(from, c.Metadata.Name, c.Metadata.Namespace); origin != nil {
			in.Origins[c] = origin
		}
	}
	s := r.Store.Load()
	for _, namespace := range s.InstalledGlobally(p.Package) {
		if namespace == p.Concerns() {
			continue
		}
		for _, c := range s.Namespace(namespace).CSVs() {
			copied := func(o *olm.CSV) bool {
				return o.Metadata.Labels.CopiedFrom == namespace && o.Metadata.Name == c.Metadata.Name
			}
			if c.Bundle.Package != p.Package || c.Metadata.Labels.CopiedFrom != "" || c.IsVirtual() ||
				slices.ContainsFunc(in.Namespace.CSVs(), copied) {
				continue
			}
			if origin := r.origin(namespace, c.Metadata.Name, p.Concerns()); origin != nil {
				in.Originals = append(in.Originals, origin.CSV)
				in.Origins[origin.CSV] = origin
			}
		}
	}
}

// origin returns an original with its namespace, for the evaluation of another one; nil if there is none.
func (r *reconciler) origin(namespace, name, dependent string) *compliance.Origin {
	r.state.depends(dependent, namespace) // before reading: a change in between triggers another evaluation
	ns := r.Store.Load().Namespace(namespace)
	i := slices.IndexFunc(ns.CSVs(), func(c *olm.CSV) bool { return c.Metadata.Name == name })
	if i < 0 {
		return nil
	}
	return &compliance.Origin{CSV: ns.CSVs()[i], Namespace: ns}
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
