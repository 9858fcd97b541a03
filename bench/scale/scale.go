// Package scale measures Opgate on clusters with many namespaces, each with a policy, a Subscription and a plan that
// requires approval: a real kube-apiserver and etcd, the process of Opgate, and objects as OLM writes them.
package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
)

// Options configure Run and Measure.
type Options struct {
	// Namespaces are the numbers of namespaces that are measured, each on a cluster of its own. Default: 100, 1,000,
	// 10,000.
	Namespaces []int
	// Edits is how many policies are edited to measure propagation, Events how many Subscriptions OLM writes to measure
	// what an event costs, Approvals how many plans require approval at once, at most one in each namespace. Defaults:
	// 200, 1,000, 1,000.
	Edits, Events, Approvals int
	// Rest is how long CPU time is measured while nothing happens, Settled how long Opgate has sent no request and used
	// hardly any CPU time when it counts as idle. Defaults: 30 s, 10 s.
	Rest, Quiet time.Duration
	// MemoryLimit is what Opgate reads as the memory limit of its container, in bytes. It is not killed beyond.
	// Default: none.
	MemoryLimit uint64
	// Backstop is Opgate's mode. Default: that of the chart, enforce.
	Backstop string
	// Server is the binary of opgate-server. Default: one that is built from this checkout.
	Server string
	// Revision is what was measured, for the report.
	Revision string
	// Progress is called with a line for each step. Default: nothing is.
	Progress func(line string)
	// Now is the clock. Required.
	Now func() time.Time
}

// Validate returns an error that names what is missing or wrong, and sets defaults.
func (o *Options) Validate() error {
	if o.Now == nil {
		return errors.New("scale options: Now is required")
	}
	for _, of := range []struct {
		name    string
		value   *int
		usually int
	}{{"edits", &o.Edits, 200}, {"events", &o.Events, 1_000}, {"approvals", &o.Approvals, 1_000}} {
		if *of.value < 0 {
			return fmt.Errorf("scale options: %d %s: it must not be negative", *of.value, of.name)
		}
		if *of.value == 0 {
			*of.value = of.usually
		}
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []int{100, 1_000, 10_000}
	}
	for _, n := range o.Namespaces {
		if n < 1 {
			return fmt.Errorf("scale options: %d namespaces: at least 1 is needed", n)
		}
	}
	if o.Rest == 0 {
		o.Rest = 30 * time.Second
	}
	if o.Quiet == 0 {
		o.Quiet = 10 * time.Second
	}
	if o.Backstop == "" {
		o.Backstop = "enforce"
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return nil
}

// ClusterOptions are those of a cluster that Measure needs.
func ClusterOptions() cluster.Options { return cluster.Options{Audit: true} }

// Run measures each number of namespaces on a new cluster. With an error it returns what was measured before.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	report := newReport(&o)
	for _, n := range o.Namespaces {
		row, err := onNewCluster(ctx, o, n)
		if row != nil {
			report.Rows = append(report.Rows, *row)
		}
		if err != nil {
			return report, fmt.Errorf("%d namespaces: %w", n, err)
		}
	}
	return report, nil
}

func onNewCluster(ctx context.Context, o Options, n int) (_ *Row, err error) {
	options := ClusterOptions()
	options.Log = lines(o.Progress)
	options.Programs = &cluster.Programs{Gate: o.Server}
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	return Measure(ctx, c, n, o)
}

// lines calls a function with what is written.
type lines func(line string)

// Write is called with whole lines.
func (l lines) Write(p []byte) (int, error) {
	l(string(p[:max(0, len(p)-1)]))
	return len(p), nil
}

// site is a cluster that is measured.
type site struct {
	Options
	*cluster.Cluster
	admin, olm dynamic.Interface
	log        auditLog
	names      []string
	// replicas are the processes; the first one leads.
	replicas []*cluster.Gate
	row      *Row
}

// Measure measures one cluster, which nothing else uses, with n namespaces. The cluster has an audit log. With an error
// it returns what was measured before.
func Measure(ctx context.Context, c *cluster.Cluster, n int, o Options) (*Row, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &site{Options: o, Cluster: c, log: auditLog{path: c.AuditLog(), seen: map[string]bool{}},
		row: &Row{Namespaces: n}}
	for i := range n {
		s.names = append(s.names, fmt.Sprintf("tenant-%05d", i))
	}
	for user, to := range map[cluster.User]*dynamic.Interface{cluster.Admin: &s.admin, cluster.OLM: &s.olm} {
		config, err := c.RESTConfig(user)
		if err != nil {
			return nil, err
		}
		config.QPS = -1 // no limit of our own
		config.WarningHandlerWithContext = rest.NoWarnings{}
		if *to, err = dynamic.NewForConfig(config); err != nil {
			return nil, err
		}
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"creating the catalog, and namespaces with Subscriptions and plans", s.setUp},
		{"starting a replica", s.startLeader},
		{"creating policies", s.createPolicies},
		{"at rest", s.rest},
		{"events", s.events},
		{"starting a second replica", s.startSecond},
		{"editing policies", s.propagation},
		{"approvals", s.approvals},
		{"at rest again", s.memory},
	} {
		o.Progress(fmt.Sprintf("%d namespaces: %s", n, step.what))
		if err := step.do(ctx); err != nil {
			return s.row, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return s.row, nil
}

// start starts a replica.
func (s *site) start(ctx context.Context) error {
	gate, err := s.StartOpgate(ctx, cluster.GateOptions{Loop: true, MemoryLimit: s.MemoryLimit,
		MayExceedMemoryLimit: true,
		Args:                 []string{"--backstop=" + s.Backstop}})
	if err == nil {
		s.replicas = append(s.replicas, gate)
	}
	return err
}

// each calls a function for every index, so many at a time, and reports progress.
func (s *site) each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	const steps = 10
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var running sync.WaitGroup
	for range min(n, atOnce) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
				if d := int(done.Add(1)); n >= 1_000 && d%(n/steps) == 0 {
					s.Progress(fmt.Sprintf("  %d of %d", d, n))
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// again repeats a request that fails because the API server, or Opgate, does not answer in time: a machine may be that
// busy.
func again[T any](ctx context.Context, s *site, do func() (T, error)) (T, error) {
	for began := s.Now(); ; {
		result, err := do()
		busy := apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsTooManyRequests(err)
		if !busy || s.Now().Sub(began) > busyTimeout {
			return result, err
		}
		if err := s.pause(ctx, time.Second); err != nil {
			return result, err
		}
	}
}

// busyTimeout bounds again.
const busyTimeout = 2 * time.Minute

// waitQuiet waits until Opgate sends no requests and answers none.
func (s *site) waitQuiet(ctx context.Context) error {
	began := s.Now()
	busy := began
	cpu, err := s.cpu()
	if err != nil {
		return err
	}
	for since := began; ; {
		if err := s.pause(ctx, time.Second); err != nil {
			return err
		}
		used, err := s.cpu()
		if err != nil {
			return err
		}
		if now := s.Now(); used-cpu > time.Duration(idleShare*float64(now.Sub(since))) {
			busy = now
		}
		cpu, since = used, s.Now()
		_, last, err := s.log.since(began.Add(-s.Quiet))
		if err != nil {
			return err
		}
		if s.Now().Sub(last) >= s.Quiet && s.Now().Sub(busy) >= s.Quiet {
			return nil
		}
		if s.Now().Sub(began) > settleTimeout {
			return fmt.Errorf("opgate is still busy after %s", settleTimeout)
		}
	}
}

const (
	// settleTimeout bounds settle.
	settleTimeout = 20 * time.Minute
	// idleShare is how much of a core replicas use at most when they are idle, for each second.
	idleShare = 0.1
)

// cpu returns the CPU time of all replicas.
func (s *site) cpu() (sum time.Duration, err error) {
	for _, replica := range s.replicas {
		usage, err := replica.Usage()
		if err != nil {
			return 0, err
		}
		sum += usage.CPU
	}
	return sum, nil
}

// pause lets time pass.
func (s *site) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, replica := range s.replicas {
		select {
		case <-replica.Exited():
			return fmt.Errorf("replica %d has ended: its log is %s", i+1, replica.LogPath())
		default:
		}
	}
	return nil
}

// load is how busy the machine is, as the kernel reports it; "" where it does not.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	var one, five, fifteen string
	if err != nil {
		return ""
	}
	if _, err := fmt.Sscan(string(data), &one, &five, &fifteen); err != nil {
		return ""
	}
	return one + " " + five + " " + fifteen
}
