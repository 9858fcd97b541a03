package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/apiproxy"
	"github.com/opgate/opgate/e2e/node"
)

const (
	// writeTimeout bounds each request of users, so that one that a paused component never answers does not end the
	// campaign.
	writeTimeout = 10 * time.Second
	// retryInterval is how often users try again.
	retryInterval = 300 * time.Millisecond
)

// play is a schedule that is being played.
type play struct {
	*site
	row    schedule
	random *rand.Rand
	// own is the namespace of the policy that is written while the fault lasts, extra one that verbs of the schedule
	// need, "" for none.
	own, extra string
	// leader and follower are the replicas as they were when the fault began.
	leader, standby node.Pod
	began           time.Time
	*watcher
	*attacker

	undo []func(context.Context) error
}

// play plays a schedule, and checks the invariants.
func (s *site) play(t *testing.T, row schedule) {
	if err := s.olm.Err(); err != nil {
		t.Fatal(err)
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(row.id))
	p := &play{site: s, row: row, random: rand.New(rand.NewPCG(*seed, name.Sum64())), own: s.NewNamespace(t)}
	ctx := t.Context()
	if err := p.findReplicas(ctx); err != nil {
		t.Fatal(err)
	}
	p.began = time.Now()
	p.attacker, p.watcher = &attacker{play: p}, newWatcher()
	p.startWatcher(ctx)
	attacks, stopAttacks := context.WithCancel(ctx)
	var attacking sync.WaitGroup
	attack := func() { attacking.Go(func() { p.attack(attacks) }) }
	if !row.ungoverned {
		attack()
	}

	var writing sync.WaitGroup
	var writeErr error
	writing.Go(func() { writeErr = p.write(ctx) })
	err := p.run(ctx, row.script)
	err = errors.Join(err, p.end(context.WithoutCancel(ctx)))
	ended := time.Now()
	writing.Wait()
	if err := errors.Join(err, writeErr); err != nil {
		t.Errorf("%s: %v", row.script, err)
	}
	if row.ungoverned {
		p.governAgain(t)
		attack()
	}
	p.recovers(t, ended)
	stopAttacks()
	attacking.Wait()
	resting := p.within(t, "Opgate rests", *limit, p.rests)
	p.stopWatcher()
	p.check(t)
	t.Logf("%s: at rest after %s; %d attacks, %d writes", row.id, resting, p.attempts, p.acknowledged)
	p.clean(context.WithoutCancel(ctx))
	s.done++
}

// findReplicas waits until there are two replicas that are ready, one of which leads.
func (p *play) findReplicas(ctx context.Context) error {
	last := errors.New("not looked yet")
	err := harness.Poll(ctx, harness.WaitTimeout, func(ctx context.Context) (bool, error) {
		leading := 0
		pods := p.pods(ctx)
		for _, pod := range pods {
			values, err := scrape(ctx, pod)
			if err != nil {
				last = err
				return false, nil //nolint:nilerr // it is asked again
			}
			if values["opgate_loop_leading"] == 1 {
				leading++
				p.leader = pod
			} else {
				p.standby = pod
			}
			if code, body, err := harness.GetURL(ctx, "http://"+pod.Addresses["health"]+"/readyz"); err != nil ||
				code != 200 {
				last = fmt.Errorf("%s is not ready: %d %s %w", pod.Name, code, body, err)
				return false, nil
			}
		}
		last = fmt.Errorf("of %d replicas %d lead", len(pods), leading)
		return len(pods) == 2 && leading == 1, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// pods are those that are to stay, and have a process.
func (p *play) pods(ctx context.Context) []node.Pod {
	stored, err := p.Clients[cluster.Admin].Of(harness.Named("Pod", cluster.OpgateNamespace, "")).List(ctx,
		metav1.ListOptions{})
	return slices.DeleteFunc(p.Node.Pods(cluster.OpgateNamespace), func(pod node.Pod) bool {
		staying := func(u unstructured.Unstructured) bool {
			return u.GetName() == pod.Name && u.GetDeletionTimestamp() == nil
		}
		return pod.PID == 0 || err == nil && !slices.ContainsFunc(stored.Items, staying)
	})
}

// write writes the policy for the new namespace, up to one and a half seconds after the fault began, and tries again
// until it is stored.
func (p *play) write(ctx context.Context) error {
	if err := pause(ctx, time.Duration(p.random.Int64N(int64(1500*time.Millisecond)))); err != nil {
		return err
	}
	return p.retry(ctx, func(ctx context.Context) error {
		_, err := p.Clients[cluster.Admin].Of(policy(p.own)).Create(ctx, policy(p.own), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the answer to an earlier request was lost
		}
		return err
	})
}

// retry does what a user does, until it succeeds.
func (p *play) retry(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := harness.Poll(ctx, 3**limit, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// end undoes what the script did, the last first.
func (p *play) end(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(p.undo) {
		errs = append(errs, undo(ctx))
	}
	p.undo = nil
	return errors.Join(errs...)
}

// atEnd makes end call a function.
func (p *play) atEnd(undo func(context.Context) error) { p.undo = append(p.undo, undo) }

// disturb sets the fault of the proxies of some replicas until the end.
func (p *play) disturb(pods []node.Pod, fault apiproxy.Fault) {
	for _, pod := range pods {
		proxy := p.proxyOf(pod)
		proxy.Set(fault)
		p.atEnd(func(context.Context) error {
			proxy.Set(apiproxy.Fault{})
			return nil
		})
	}
}

// recovers waits until everything is as it was before the fault.
func (p *play) recovers(t *testing.T, ended time.Time) {
	t.Helper()
	judged := p.within(t, "another catalog is refused", *limit, p.catalogRefused)
	p.over.Store(true)
	approved := p.within(t, "the allowed version is approved", *limit, p.allowedApproved)
	elapsed := p.within(t, "the status is that of an undisturbed policy", 2**limit, func(ctx context.Context) error {
		status, err := p.status(ctx, p.own)
		if err == nil && status != p.reference {
			err = fmt.Errorf("it is\n%s\nwant\n%s", status, p.reference)
		}
		return err
	})
	p.within(t, "one replica leads, and both are ready", *limit, p.findReplicas)
	t.Logf("%s: %s: the fault took %s; judged after %s, approved after %s more, settled after %s more",
		p.row.id, p.row.script, seconds(ended.Sub(p.began)), judged, approved, elapsed)
}

func seconds(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// within waits until check returns nil, and returns how long that took.
func (p *play) within(
	t *testing.T, what string, limit time.Duration, check func(ctx context.Context) error,
) time.Duration {
	t.Helper()
	began := time.Now()
	last := errors.New("not looked yet")
	err := harness.Poll(t.Context(), limit, func(ctx context.Context) (bool, error) {
		if p.violated() {
			return true, nil // check reports it
		}
		if err := check(ctx); err == nil || ctx.Err() == nil { // else only the time is up
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		t.Errorf("%s: %v", what, errors.Join(err, last))
	}
	return seconds(time.Since(began))
}

// governAgain stores the policy of the permanent namespace, which was lost, and waits until it holds the plan again.
func (p *play) governAgain(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{p.permanent, p.own} {
		if err := p.retry(t.Context(), func(ctx context.Context) error {
			_, err := p.Clients[cluster.Admin].Of(policy(namespace)).Create(ctx, policy(namespace),
				metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	p.within(t, "the policy that stands is in force", 2**limit, func(ctx context.Context) error {
		if status, err := p.status(ctx, p.permanent); err != nil || status != p.reference {
			return fmt.Errorf("its status is %s: %w", status, err)
		}
		return nil
	})
	p.acknowledged = 0
}

// clean removes what OLM would go on working on.
func (p *play) clean(ctx context.Context) {
	admin := p.Clients[cluster.Admin]
	for _, namespace := range []string{p.own, p.extra} {
		if namespace == "" {
			continue
		}
		name := policy(namespace).GetName()
		_ = admin.Resource(harness.OperatorPolicies).Namespace(cluster.PolicyNamespace).Delete(ctx, name,
			metav1.DeleteOptions{})
		for _, kind := range []string{"Subscription", "ClusterServiceVersion", "InstallPlan"} {
			_ = admin.Of(harness.Named(kind, namespace, "")).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{})
		}
	}
}

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
