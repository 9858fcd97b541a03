package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// fromFiles compares the plans of files: those that are named, or else those that OLM has not run.
func fromFiles(
	files []string, namespace string, named []types.NamespacedName, stdin io.Reader, stderr io.Writer,
) (results []*result, err error) {
	// What is compared are objects of a cluster, in any directory.
	objects, err := manifests.Read(files, stdin, stderr, manifests.Options{Namespace: namespace})
	if err != nil {
		return nil, self.Unusable("nothing was compared: %v", err)
	}
	cluster, missing := objects.Snapshot(facts.Cluster{}), slices.Clone(named)
	for _, o := range objects.Objects {
		plan, ok := o.Value.(*olm.InstallPlan)
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if !ok || len(named) > 0 && !slices.Contains(named, key) || len(named) == 0 && plan.Finished() {
			continue
		}
		missing = slices.DeleteFunc(missing, func(other types.NamespacedName) bool { return other == key })
		replacements := carrier.Replacements(cluster.Namespace(plan.Metadata.Namespace), plan)
		results = append(results, resultsOf(plan, objects.Files.Changes(plan, replacements))...)
	}
	switch {
	case len(missing) > 0:
		return nil, self.Unusable("the input has no InstallPlan %s", missing[0])
	case len(results) == 0:
		return nil, self.Unusable(
			"the input has no InstallPlan that is still to be run; name one of the others as NAMESPACE/NAME")
	}
	return results, nil
}

// resultsOf returns a result for each ClusterServiceVersion of a plan.
func resultsOf(plan *olm.InstallPlan, changes *state.PlanChanges) []*result {
	var results []*result
	for _, name := range namesOf(plan, changes) {
		set := changes.ByCSV[name]
		if set == nil {
			set = &change.Set{CSV: name,
				Fault: "its package is not known: neither its bundle nor a Subscription in the input says which it is"}
		}
		results = append(results, &result{plan: plan.Metadata.Key(), Set: set})
	}
	if len(results) == 0 {
		results = append(results, &result{plan: plan.Metadata.Key(),
			Set: &change.Set{Fault: "the plan names no ClusterServiceVersion"}})
	}
	return results
}

// namesOf returns the ClusterServiceVersions of a plan, those in its spec first.
func namesOf(plan *olm.InstallPlan, changes *state.PlanChanges) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range plan.Spec.CSVNames {
		add(name)
	}
	for _, r := range changes.Replacements {
		add(r.CSV)
	}
	return names
}

// ofNamespace are the kinds that a plan is compared with: what is installed in its namespace, the plans that installed
// it, and the Subscriptions, which name packages and channels.
var ofNamespace = []*snapshot.Kind{snapshot.ClusterServiceVersions, snapshot.InstallPlans, snapshot.Subscriptions}

// fromCluster compares plans of the cluster of the current context.
func fromCluster(ctx context.Context, flags cli.Kubeconfig, named []types.NamespacedName) ([]*result, error) {
	reader, err := cluster.Connect(flags)
	if err != nil {
		return nil, err
	}
	var results []*result
	for _, key := range named {
		found, err := fromNamespace(ctx, reader, key)
		if err != nil {
			return nil, fmt.Errorf("compare InstallPlan %s: %w", key, err)
		}
		results = append(results, found...)
	}
	return results, nil
}

func fromNamespace(ctx context.Context, reader *cluster.Reader, key types.NamespacedName) ([]*result, error) {
	state, err := reader.Read(ctx, cluster.Options{Namespace: key.Namespace, Kinds: ofNamespace})
	if err != nil {
		return nil, err
	}
	ns := state.Snapshot.Namespace(key.Namespace)
	i := slices.IndexFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == key.Name })
	if i < 0 {
		return nil, errors.New("there is none of this name")
	}
	changes, err := reader.Changes(ctx, key, carrier.Replacements(ns, ns.Plans()[i]))
	if err != nil {
		return nil, err
	}
	return resultsOf(ns.Plans()[i], changes), nil
}
