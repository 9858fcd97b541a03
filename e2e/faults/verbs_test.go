package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/apiproxy"
	"github.com/opgate/opgate/e2e/node"
)

// verbs are the faults that scripts are made of. What they do is undone at the end of the script.
var verbs = map[string]func(p *play, ctx context.Context, args []string) error{
	"pause":         (*play).stop,          // leader, follower, apiserver, etcd or olm
	"kill":          (*play).kill,          // the same; replicas are started again by their node
	"wait":          (*play).wait,          // for a duration, or a random one of a range, such as 2s-3s
	"end":           (*play).endNow,        // undoes all that was done so far
	"delay":         (*play).delay,         // requests of replicas, by a duration
	"refuse":        (*play).refuse,        // new connections of replicas
	"refusewatches": (*play).refuseWatches, // new watches of replicas
	"reset":         (*play).reset,         // all connections of replicas, a number of times
	"blackhole":     (*play).blackHole,     // all connections of replicas
	"stall":         (*play).stall,         // watches of replicas, of a resource or of all
	"compact":       (*play).compact,       // etcd
	"lease":         (*play).lease,         // steal, delete, empty, long, future or release
	"secret":        (*play).secret,        // delete or garbage, and its name
	"rights":        (*play).rights,        // names of roles that become empty
	"webhooks":      (*play).webhooks,      // cabundle, empty or delete
	"backstop":      (*play).backstop,      // delete, a number of times
	"conversion":    (*play).conversion,    // none
	"certificates":  (*play).certificates,  // short
	"definition":    (*play).definition,    // delete, and names
	"namespace":     (*play).namespace,     // delete the one of the new policy
	"policies":      (*play).policies,      // recreate or many, a number of times, or unreadable
	"allow":         (*play).allow,         // the later version, in another namespace
	"forbid":        (*play).forbid,        // the later version there
	"subscribe":     (*play).subscribe,     // to the latest version there
}

// run plays a script.
func (p *play) run(ctx context.Context, script string) error {
	for _, step := range strings.Split(script, ";") {
		words := strings.Fields(step)
		do := verbs[words[0]]
		if do == nil {
			return fmt.Errorf("unknown verb %q", words[0])
		}
		if err := do(p, ctx, words[1:]); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(step), err)
		}
	}
	return nil
}

// replicas are those of a name.
func (p *play) replicas(name string) []node.Pod {
	switch name {
	case "leader":
		return []node.Pod{p.leader}
	case "follower":
		return []node.Pod{p.standby}
	case "both":
		return []node.Pod{p.leader, p.standby}
	}
	return nil
}

var components = map[string]cluster.Component{"apiserver": cluster.APIServer, "etcd": cluster.Etcd}

func (p *play) signal(ctx context.Context, name string, sig syscall.Signal) error {
	if component := components[name]; component != "" {
		return p.SignalComponent(ctx, component, sig)
	}
	var errs []error
	if name == "olm" {
		for _, operator := range p.olm.Operators() {
			errs = append(errs, operator.Signal(sig))
		}
	}
	for _, pod := range p.replicas(name) {
		errs = append(errs, p.Node.Signal(pod, sig))
	}
	return errors.Join(errs...)
}

func (p *play) stop(ctx context.Context, args []string) error {
	p.atEnd(func(ctx context.Context) error { return p.signal(ctx, args[0], syscall.SIGCONT) })
	return p.signal(ctx, args[0], syscall.SIGSTOP)
}

func (p *play) kill(ctx context.Context, args []string) error {
	name := args[0]
	switch component := components[name]; {
	case component != "":
		p.atEnd(func(ctx context.Context) error { return p.StartComponent(ctx, component) })
		return p.KillComponent(ctx, component)
	case name == "olm":
		var errs []error
		for _, operator := range p.olm.Operators() {
			p.atEnd(operator.Start)
			errs = append(errs, operator.Kill())
		}
		return errors.Join(errs...)
	}
	return p.signal(ctx, name, syscall.SIGKILL)
}

// wait waits. The durations of faults are not scaled, since those of leases and of staleness are not.
func (p *play) wait(ctx context.Context, args []string) error {
	low, high, _ := strings.Cut(args[0], "-")
	least, err := time.ParseDuration(low)
	if err != nil {
		return err
	}
	if high != "" {
		most, err := time.ParseDuration(high)
		if err != nil {
			return err
		}
		least += time.Duration(p.random.Int64N(int64(most - least)))
	}
	return pause(ctx, least)
}

func (p *play) endNow(ctx context.Context, _ []string) error { return p.end(ctx) }

func (p *play) delay(_ context.Context, args []string) error {
	d, err := time.ParseDuration(args[1])
	p.disturb(p.replicas(args[0]), apiproxy.Fault{Delay: d})
	return err
}

func (p *play) refuse(_ context.Context, args []string) error {
	p.disturb(p.replicas(args[0]), apiproxy.Fault{Refuse: true})
	return nil
}

func (p *play) refuseWatches(_ context.Context, args []string) error {
	p.disturb(p.replicas(args[0]), apiproxy.Fault{RefuseWatches: []string{apiproxy.All}})
	return nil
}

func (p *play) blackHole(_ context.Context, args []string) error {
	p.disturb(p.replicas(args[0]), apiproxy.Fault{BlackHole: true})
	return nil
}

func (p *play) stall(_ context.Context, args []string) error {
	p.disturb(p.replicas(args[0]), apiproxy.Fault{Stall: []string{args[1]}})
	return nil
}

func (p *play) reset(ctx context.Context, args []string) error {
	times, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for range times {
		for _, pod := range p.replicas(args[0]) {
			p.proxyOf(pod).Reset()
		}
		if err := pause(ctx, time.Duration(p.random.Int64N(int64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) compact(ctx context.Context, _ []string) error { return p.Compact(ctx) }

// namespace deletes the new namespace once the later version waits there, and waits until it is another one.
func (p *play) namespace(ctx context.Context, _ []string) error {
	if err := p.planWaits(ctx, p.own); err != nil {
		return err
	}
	of := harness.Named("Namespace", "", p.own)
	before, err := p.Clients[cluster.Admin].Of(of).Get(ctx, p.own, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := p.Clients[cluster.Admin].Of(of).Delete(ctx, p.own, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return p.retry(ctx, func(ctx context.Context) error {
		now, err := p.Clients[cluster.Admin].Of(of).Get(ctx, p.own, metav1.GetOptions{})
		if err == nil && now.GetUID() == before.GetUID() {
			err = errors.New("the namespace is still there")
		}
		return err
	})
}

// planWaits waits until a plan for the later version waits in a namespace.
func (p *play) planWaits(ctx context.Context, namespace string) error {
	return p.retry(ctx, func(ctx context.Context) error {
		plans, err := p.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range plans.Items {
			if forbidden(&plans.Items[i]) {
				return nil
			}
		}
		return fmt.Errorf("there are %d plans in %s, none of which is for %s", len(plans.Items), namespace,
			harness.Etcd4)
	})
}
