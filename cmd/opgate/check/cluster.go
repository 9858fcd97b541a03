package check

import (
	"context"

	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// onCluster is the file of objects that were read from a cluster.
const onCluster = "cluster"

// What is said if nothing was judged.
const (
	nothingRead   = "the input holds no OperatorPolicy, Constraint, Policy, PolicySet, Subscription, InstallPlan, CatalogSource or OperatorGroup"
	nothingStored = "no operator is installed, and no InstallPlan waits for approval"
)

// judgings returns how objects are judged, with --diff under the old and the new policies. With --cluster it reads the cluster.
func (o *options) judgings(ctx context.Context) (how [2]*judging, err error) {
	versions, err := o.versions.cluster()
	if err != nil {
		return how, err
	}
	for i := range how {
		how[i] = &judging{mode: rules.ApprovalMode(o.approvalMode), again: o.asIf == asIfApprovedNow, installed: o.diff || o.cluster, nothing: nothingRead,
			within: func(m *manifests) (*surroundings, error) { return &surroundings{Snapshot: inFiles(m, versions)}, nil }}
	}
	if !o.cluster {
		return how, nil
	}
	reader, err := cluster.Connect(o.kubeconfig)
	if err != nil {
		return how, self.Unusable("nothing was judged: %v", err)
	}
	state, err := reader.Read(ctx, cluster.Options{})
	if err != nil {
		return how, self.Unusable("nothing was judged: %v", err)
	}
	for i := range how {
		how[i].within = func(m *manifests) (*surroundings, error) { return o.onTop(ctx, state, m, how[i].gone) }
		how[i].nothing = nothingStored
	}
	return how, nil
}

// onTop returns a cluster with the objects of the input in place of its own, and without those that are gone.
func (o *options) onTop(ctx context.Context, state *cluster.State, m *manifests, gone []*snapshot.Object) (*surroundings, error) {
	if len(m.objects)+len(gone) > 0 {
		var err error
		if state, err = state.Again(ctx, kept(m), gone); err != nil {
			return nil, err
		}
	}
	around := &surroundings{Snapshot: state.Snapshot, notes: state.Notes}
	if o.diff || len(o.files) == 0 {
		around.stored = storedIn(around, m, o.diff)
	}
	return around, nil
}

// storedIn returns what is judged of a cluster, without objects of the input: what is installed and what waits and, if asked for,
// Subscriptions.
func storedIn(around *surroundings, m *manifests, subscriptions bool) (stored []*object) {
	given := map[identity]bool{}
	for _, o := range m.objects {
		given[identity{o.kind, o.namespace, o.name}] = true
	}
	add := func(o *object, namespace, name string) {
		o.place, o.tree, o.namespace, o.name = place{file: onCluster}, &tree{}, namespace, name
		if !given[identity{o.kind, namespace, name}] {
			stored = append(stored, o)
		}
	}
	for ns := range around.All() {
		if subscriptions {
			for _, s := range ns.Subscriptions() {
				add(&object{kind: olm.KindSubscription, subscription: s}, ns.Name(), s.Metadata.Name)
			}
		}
		for _, installed := range ns.Installed() {
			add(&object{kind: olm.KindClusterServiceVersion}, ns.Name(), installed.CSV)
		}
		for _, plan := range ns.Plans() {
			if ns.Waits(plan) {
				add(&object{kind: olm.KindInstallPlan, plan: plan}, ns.Name(), plan.Metadata.Name)
			}
		}
	}
	return stored
}

// kept returns the objects of the input as the gate keeps them.
func kept(m *manifests) (objects []*snapshot.Object) {
	for _, o := range m.objects {
		if o.stored != nil {
			objects = append(objects, o.stored)
		}
	}
	return objects
}
