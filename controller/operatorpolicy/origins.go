package operatorpolicy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/rules"
)

// withOrigins returns ClusterServiceVersions with the origins of those that are copies of a policy's package.
func (r *reconciler) withOrigins(ctx context.Context, p *rules.Policy, csvs []compliance.CSV) ([]compliance.CSV, error) {
	if p.MustNotHave || p.Concerns() == "" {
		return csvs, nil
	}
	csvs = slices.Clone(csvs) // the policies of a namespace share them
	for i := range csvs {
		c := &csvs[i]
		if c.CopiedFrom == "" || c.CopiedFrom == c.Namespace || c.Package != "" && c.Package != p.Package {
			continue
		}
		var err error
		if c.Origin, err = r.origin(ctx, c); err != nil {
			return nil, err
		}
	}
	return csvs, nil
}

// origin reads what a copy names as the one it was copied from; nil where there is none.
func (r *reconciler) origin(ctx context.Context, c *compliance.CSV) (*compliance.Origin, error) {
	r.origins.add(c.CopiedFrom, c.Namespace) // before reading: a change in between triggers another evaluation
	original := whole(gvkCSV).(*unstructured.Unstructured)
	switch err := r.cache.Get(ctx, client.ObjectKey{Namespace: c.CopiedFrom, Name: c.Name}, original); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ClusterServiceVersion %s/%s: %w", c.CopiedFrom, c.Name, err)
	}
	ns := r.Store.Load().Namespace(c.CopiedFrom)
	o := &compliance.Origin{CSV: csv(original), Drifted: ns.Drifted(c.Name), Plans: ns.Plans()}
	if err := r.each(ctx, gvkOperatorGroup, c.CopiedFrom, func(u *unstructured.Unstructured) {
		o.OperatorGroups = append(o.OperatorGroups, compliance.OperatorGroup{Object: object(u, true), GenerateName: u.GetGenerateName()})
	}); err != nil {
		return nil, err
	}
	return o, r.each(ctx, gvkSubscription, c.CopiedFrom, func(u *unstructured.Unstructured) { o.Subscriptions = append(o.Subscriptions, subscription(u)) })
}

// dependents remembers which namespaces were evaluated by what is in another one. The zero value is ready for use.
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

// take returns the dependents of a namespace and forgets them: their next evaluation adds them again.
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
