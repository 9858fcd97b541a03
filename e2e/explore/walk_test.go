package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// atOnce is how many walks are played at the same time. OLM sends five requests a second, whatever the number.
	atOnce = 3
	// grace is how long an edit may take to be in force, or an approval to become an installation.
	grace = 5 * time.Second
	// fieldManager is that of users.
	fieldManager = "explore"
)

// explorer plays walks on one cluster, several at a time.
type explorer struct {
	*harness.OLMEnv
	address string
	// turns has one value for each walk that is being played.
	turns chan struct{}
	// mu is locked while OLM or Opgate is restarted: meanwhile other walks do nothing.
	mu sync.RWMutex
}

// walk is a script that is being played.
type walk struct {
	*explorer
	place
	log func(format string, args ...any)
	// state is what users have written, without what was refused.
	state state
	// pauses are from when to when the invariants were awaited.
	pauses [][2]time.Time
	// removing is whether a policy may have removed the user's Subscription, adopted whether one may have changed it.
	removing, adopted bool
	// askedManual is whether the user's Subscription has ever asked for Manual.
	askedManual bool
	// owners are the policies that own the OperatorGroups of the namespaces, as far as the model knows.
	owners [2]string

	mu         sync.Mutex
	history    []moment
	approvals  map[string]time.Time // by namespace and ClusterServiceVersion
	violations []error
}

// moment is since when a state may have been in force.
type moment struct {
	since time.Time
	state state
}

// play plays a script in new namespaces. The error is about the first invariant that is not met, and names the action
// before it.
func (x *explorer) play(ctx context.Context, script []action, log func(format string, args ...any)) (err error) {
	x.turns <- struct{}{}
	defer func() { <-x.turns }()
	name := "walk-" + rand.String(6)
	w := &walk{explorer: x, log: log, state: state{}, approvals: map[string]time.Time{},
		place: place{namespaces: [2]string{name, name + "-second"}, address: x.address}}
	for _, namespace := range w.namespaces {
		if err := x.CreateTenantNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	w.record(w.state)
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer func() {
		cancel()
		watches.Wait()
		w.clean(context.WithoutCancel(ctx))
	}()
	for _, namespace := range w.namespaces {
		watches.Go(func() { w.watch(ctx, harness.InstallPlans, namespace, w.seePlan) })
		watches.Go(func() { w.watch(ctx, harness.ClusterServiceVersions, namespace, w.seeCSV) })
	}
	start := time.Now()
	for i, a := range script {
		if err := w.take(ctx, a); err != nil {
			return fmt.Errorf("after action %d, %s: %w", i+1, a, err)
		}
	}
	if err := w.end(ctx); err != nil {
		return fmt.Errorf("after all policies are deleted: %w", err)
	}
	log("%s: %d actions took %s", name, len(script), time.Since(start).Round(time.Second))
	return w.repeatedWrites()
}

// take does one action, and waits where it has to.
func (w *walk) take(ctx context.Context, a action) error {
	if a.verb == restart {
		w.explorer.mu.Lock()
		defer w.explorer.mu.Unlock()
		w.log("%s: %s", w.namespaces[0], a)
		return w.restart(ctx, a.kind)
	}
	if a.verb == await {
		defer w.own()
		return w.await(ctx, w.check)
	}
	w.explorer.mu.RLock()
	defer w.explorer.mu.RUnlock()
	if a.verb == approve {
		return w.approve(ctx)
	}
	var err error
	if a.verb == patch {
		if a, err = w.patch(ctx, a); err != nil {
			return err
		}
	}
	next := w.state.after(a)
	w.record(next)
	if a.verb != patch {
		err = w.write(ctx, a)
	}
	switch {
	case err == nil:
		w.state = next
		w.log("%s: %s", w.namespaces[0], a)
	case apierrors.IsForbidden(err):
		w.record(w.state)
		w.log("%s: %s: refused: %v", w.namespaces[0], a, err)
	default:
		return err
	}
	for _, f := range w.state.enforced(false) {
		w.removing = w.removing || f["complianceType"] == mustnothave
		w.adopted = w.adopted || f["complianceType"] == musthave
	}
	if a.kind == subscription {
		w.askedManual = a.verb != remove && (w.askedManual || w.state[a.key()].wish() == "Manual")
	}
	for i, owner := range w.owners {
		names, _ := w.state.installing(i == 1)
		if !slices.Contains(names, owner) || i == 0 && a.verb == remove && a.kind == operatorGroup {
			w.owners[i] = ""
		}
	}
	return w.violation()
}

// patch patches a Subscription as the tenant. It returns the action with the value that was stored, by which alone the
// gate can tell what the user wants.
func (w *walk) patch(ctx context.Context, a action) (action, error) {
	a.fields = maps.Clone(a.fields)
	client := w.Clients[cluster.Tenant].Of(harness.Named("Subscription", w.namespaces[0], a.name))
	for {
		live, err := client.Get(ctx, a.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		a.fields["stored"], _, _ = unstructured.NestedString(live.Object, "spec", "installPlanApproval")
		body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"installPlanApproval":%q}}`,
			live.GetResourceVersion(), a.fields["installPlanApproval"])
		_, err = client.Patch(ctx, a.name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		if !apierrors.IsConflict(err) {
			return a, err
		}
	}
}

// own notes the owners of OperatorGroups, now that the invariants are met: a policy that is the only one of a namespace,
// where no user wrote the group. Later ones do not change what it is.
func (w *walk) own() {
	for i := range w.owners {
		names, all := w.state.installing(i == 1)
		if len(names) == 1 && all == 1 && len(w.state.all(policy)) == 0 && (i == 1 || len(w.state.all(operatorGroup)) == 0) {
			w.owners[i] = names[0]
		}
	}
}

// write writes or deletes the objects of an action, as their users: teams own Subscriptions, admins the rest.
func (w *walk) write(ctx context.Context, a action) error {
	client := w.Clients[cluster.Admin]
	if a.kind == subscription {
		client = w.Clients[cluster.Tenant]
	}
	for _, u := range w.objects(a) {
		var err error
		if a.verb == remove {
			err = client.Of(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		} else {
			// The API server cannot patch, as the backstop asks for, what was defined some seconds ago.
			const early = "There can be a delay between when CustomResourceDefinitions"
			err = harness.Poll(ctx, harness.WaitTimeout, func(ctx context.Context) (bool, error) {
				_, err := client.Of(u).Apply(ctx, u.GetName(), u,
					metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
				if err != nil && strings.Contains(err.Error(), early) {
					return false, nil
				}
				return true, err
			})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// restart stops OLM's catalog operator, or Opgate, and starts it again.
func (w *walk) restart(ctx context.Context, program string) error {
	if program == "olm" {
		return errors.Join(w.OLM.CatalogOperator().Stop(ctx), w.OLM.CatalogOperator().Start(ctx))
	}
	if _, err := w.Gate.Stop(); err != nil {
		return err
	}
	gate, err := w.StartOpgate(context.WithoutCancel(ctx), cluster.GateOptions{Loop: true})
	if err != nil {
		return err
	}
	w.Gate = gate
	return nil
}

// approve approves the plans that wait, as an admin, and logs the answers.
func (w *walk) approve(ctx context.Context) error {
	for _, namespace := range w.namespaces {
		plans, _, err := w.plans(ctx, namespace)
		if err != nil {
			return err
		}
		for _, p := range plans {
			a, err := w.dryRun(ctx, p, false)
			if err != nil {
				return err
			}
			w.log("%s: kubectl opgate approve %s/%s: %s", w.namespaces[0], namespace, p.GetName(), a)
		}
	}
	return nil
}

// await waits until a check is passed. An installation that is not allowed is an error at once.
func (w *walk) await(ctx context.Context, check func(context.Context) error) error {
	from := time.Now()
	w.log("%s: wait", w.namespaces[0])
	var last error
	err := harness.Poll(ctx, *limit, func(ctx context.Context) (bool, error) {
		if err := errors.Join(w.OLM.Err(), w.violation()); err != nil {
			return false, err
		}
		w.explorer.mu.RLock()
		defer w.explorer.mu.RUnlock()
		if err := check(ctx); err == nil || ctx.Err() == nil { // else only the time is up
			last = err
		}
		return last == nil, nil
	})
	w.pauses = append(w.pauses, [2]time.Time{from, time.Now()})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// record notes that a state may be in force from now on.
func (w *walk) record(s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, moment{time.Now(), s})
}

// violation returns what was installed although nothing allowed it.
func (w *walk) violation() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.violations...)
}

// watch calls a function for every object of a namespace, each time that it is written, until ctx ends.
func (w *walk) watch(ctx context.Context, resource schemaResource, namespace string,
	see func(*unstructured.Unstructured, bool)) {
	for ctx.Err() == nil {
		events, err := w.Clients[cluster.Admin].Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for event := range events.ResultChan() {
			if u, ok := event.Object.(*unstructured.Unstructured); ok {
				see(u, event.Type == "ADDED")
			}
		}
	}
}

// seePlan notes when the versions of a plan were approved.
func (w *walk) seePlan(p *unstructured.Unstructured, _ bool) {
	if approved, _, _ := unstructured.NestedBool(p.Object, "spec", "approved"); !approved {
		return
	}
	names, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "clusterServiceVersionNames")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if key := p.GetNamespace() + "/" + name; w.approvals[key+p.GetName()].IsZero() {
			w.approvals[key], w.approvals[key+p.GetName()] = time.Now(), time.Now()
		}
	}
}

// seeCSV notes a version that none of the states allows that were in force since its approval.
func (w *walk) seeCSV(csv *unstructured.Unstructured, created bool) {
	if !created || csv.GetLabels()["olm.copiedFrom"] != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Now()
	if approved := w.approvals[csv.GetNamespace()+"/"+csv.GetName()]; !approved.IsZero() {
		since = approved
	}
	since = since.Add(-speed.Scale(grace))
	by := ""
	for i, m := range w.history {
		if i+1 < len(w.history) && w.history[i+1].since.Before(since) {
			continue
		}
		if by = m.state.forbidden(csv.GetName(), csv.GetNamespace() == w.namespaces[1]); by == "" {
			return
		}
	}
	w.violations = append(w.violations,
		fmt.Errorf(harness.Final+"%s was installed in %s: not allowed by %s", csv.GetName(), csv.GetNamespace(), by))
}

// end deletes all policies, and waits until Subscriptions are as their users wrote them.
func (w *walk) end(ctx context.Context) error {
	for _, kind := range []string{policy, operatorPolicy, constraint} {
		for _, name := range (&generator{state: w.state}).names(kind) {
			if err := w.take(ctx, action{verb: remove, kind: kind, name: name}); err != nil {
				return err
			}
		}
	}
	return w.await(ctx, w.checkEnd)
}

// clean deletes what OLM would go on working on, as far as it can.
func (w *walk) clean(ctx context.Context) {
	w.explorer.mu.RLock()
	defer w.explorer.mu.RUnlock()
	admin := w.Clients[cluster.Admin]
	for _, kind := range []string{"OperatorPolicy", "Policy"} {
		list, err := admin.Of(harness.Named(kind, cluster.PolicyNamespace, "")).List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			if name := list.Items[i].GetName(); strings.HasPrefix(name, w.namespaces[0]+"-") {
				_ = admin.Of(harness.Named(kind, cluster.PolicyNamespace, name)).Delete(ctx, name,
					metav1.DeleteOptions{})
			}
		}
	}
	for _, name := range (&generator{state: w.state}).names(constraint) {
		_ = w.write(ctx, action{verb: remove, kind: constraint, name: name})
	}
	watched := []string{"Subscription", "CatalogSource", "ClusterServiceVersion", "InstallPlan", "OperatorGroup"}
	for _, kind := range watched {
		for _, namespace := range w.namespaces {
			_ = admin.Of(harness.Named(kind, namespace, "")).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{})
		}
	}
}

// repeatedWrites returns an error if Opgate wrote the same object again and again while users did nothing.
func (w *walk) repeatedWrites() error {
	const most = 40
	for _, wait := range w.pauses {
		requests, err := w.OpgateRequests(wait[0], wait[1])
		if err != nil {
			return err
		}
		count := map[string]int{}
		for _, r := range requests {
			switch r.Verb {
			case "get", "list", "watch":
				continue
			}
			if o := r.Object; strings.HasPrefix(o.Namespace, w.namespaces[0]) ||
				strings.HasPrefix(o.Name, w.namespaces[0]) {
				count[strings.Join([]string{r.Verb, o.Resource, o.Subresource, o.Namespace, o.Name}, " ")]++
			}
		}
		for write, n := range count {
			if n > most {
				return fmt.Errorf("while users waited for %s Opgate wrote %d times: %s",
					wait[1].Sub(wait[0]).Round(time.Second), n, write)
			}
		}
	}
	return nil
}
