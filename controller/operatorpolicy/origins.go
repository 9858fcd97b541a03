package operatorpolicy

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// withOrigins returns ClusterServiceVersions with the origins of those that are copies of a policy's package.
func (r *reconciler) withOrigins(p *rules.OperatorPolicy, csvs []compliance.CSV) []compliance.CSV {
	if p.MustNotHave || p.Concerns() == "" {
		return csvs
	}
	csvs = slices.Clone(csvs) // the policies of a namespace share the slice
	for i := range csvs {
		c := &csvs[i]
		if c.CopiedFrom == "" || c.CopiedFrom == c.Namespace || c.Package != "" && c.Package != p.Package {
			continue
		}
		c.Origin = r.origin(c)
	}
	return csvs
}

// origin returns the namespace that a copy names as its source; nil if it has no original.
func (r *reconciler) origin(c *compliance.CSV) *compliance.Origin {
	r.origins.add(c.CopiedFrom, c.Namespace) // before reading: a change in between triggers another evaluation
	s := r.Store.Load()
	original := s.Find(snapshot.ClusterServiceVersions, types.NamespacedName{Namespace: c.CopiedFrom, Name: c.Name})
	if original == nil {
		return nil
	}
	ns := s.Namespace(c.CopiedFrom)
	return &compliance.Origin{CSV: csv(original), Drifted: ns.Drifted(c.Name), Plans: ns.Plans(),
		OperatorGroups: groups(s, c.CopiedFrom), Subscriptions: subscriptions(s, c.CopiedFrom)}
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
