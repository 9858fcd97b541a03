package diff

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/snapshot"
)

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
			return nil, fmt.Errorf("compare InstallPlan %s: %s", key, text.Escape(err.Error()))
		}
		results = append(results, found...)
	}
	return results, nil
}

func fromNamespace(ctx context.Context, reader *cluster.Reader, key types.NamespacedName) ([]*result, error) {
	plan, err := reader.Plan(ctx, key)
	if err != nil {
		return nil, err
	}
	state, err := reader.Read(ctx, cluster.Options{Namespace: key.Namespace, Kinds: ofNamespace})
	if err != nil {
		return nil, err
	}
	changes, err := reader.Changes(ctx, key, carrier.Replacements(state.Snapshot.Namespace(key.Namespace), plan))
	if err != nil {
		return nil, err
	}
	return resultsOf(plan, changes), nil
}
