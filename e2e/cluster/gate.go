package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// gateReadyTimeout bounds the time until Opgate has read its first full snapshot and is ready.
	gateReadyTimeout = speed.Wait
	// gateStopTimeout bounds a graceful stop.
	gateStopTimeout = speed.Wait
	// requestTimeout bounds one request to Opgate's own endpoints.
	requestTimeout = 30 * time.Second
)

// GateOptions configure StartOpgate. The zero value is useful.
type GateOptions struct {
	// Loop is whether Opgate's background loop runs. Without it Opgate only judges what others write, and keeps the
	// backstop.
	Loop bool
	// WithoutBackstop leaves refusals to the webhooks. With the backstop, as the chart ships it, the API server answers
	// before them where it can: the webhooks' words, warnings, events and metrics do not appear then.
	WithoutBackstop bool
	// SecureMetrics serves metrics by HTTPS, with names of policies, to those who may get them.
	SecureMetrics bool
	// Reports is whether Opgate writes Reports of OpenReports. InstallReports adds the definitions and the rights.
	Reports bool
	// ChartRights starts Opgate with the flags on rights that the chart has by default. The rights themselves are up to
	// the test.
	ChartRights bool
	// Replaces is an earlier process, which has ended. The new one has its address and certificate, as pods have those
	// of their Service. Otherwise the API server reads all policies again, since the CustomResourceDefinition names
	// both.
	Replaces *Gate
	// Unready makes StartOpgate return before Opgate is ready: it refuses all reviews then. The webhooks are in effect,
	// as after a replica that has been ready.
	Unready bool
	// OLMIdentity is OLM's user name for Opgate and the webhook configurations. Default: OLMUserName.
	OLMIdentity string
	// MemoryLimit is the process's limit of private memory, in bytes, and what it reads as the limit of its
	// container. Beyond it the process is killed. Default: no limit.
	MemoryLimit uint64
	// MayExceedMemoryLimit leaves the process alone beyond MemoryLimit. Linux counts as private memory what Go has
	// returned to it, too, which no container is charged for: some 80 MiB of 600.
	MayExceedMemoryLimit bool
	// Args are added to the arguments of "opgate-server serve", which are those of the chart but for the overrides of
	// the harness. They win over both.
	Args []string
}

// Gate is a process that runs "opgate-server serve".
type Gate struct {
	// Started is when the process was started.
	Started time.Time

	cluster     *Cluster
	process     *process
	webhook     string // host:port
	certificate servingCertificate
	health      string
	metrics     string
	secure      bool // metrics by HTTPS
	backstop    bool // kept by this process
	client      *http.Client
}

// StartOpgate runs Opgate as a process of its own with TLS, waits until it is ready, points the webhook configurations
// of manifests/base/webhooks.yaml to it, and waits until the API server calls it. When it returns, every write is
// judged.
//
// Each call starts another process; the webhook configurations point to the last. They stay when Opgate is stopped:
// what follows is an outage, in which failurePolicy Fail refuses writes.
func (c *Cluster) StartOpgate(ctx context.Context, opts GateOptions) (*Gate, error) {
	binary, err := c.programs.Server(ctx)
	if err != nil {
		return nil, fmt.Errorf("start opgate: %w", err)
	}
	if opts.OLMIdentity == "" {
		opts.OLMIdentity = OLMUserName
	}
	c.held.forget()
	gate, err := c.launch(ctx, binary, opts)
	if err != nil {
		return nil, fmt.Errorf("start opgate: %w", err)
	}
	if err := c.openGate(ctx, gate, &opts); err != nil {
		err = fmt.Errorf("start opgate: %w; its log ends with\n%s", err, tail.File(gate.LogPath(), logLines))
		_, stopErr := gate.Stop()
		return nil, errors.Join(err, stopErr)
	}
	return gate, nil
}

// launch starts the process.
func (c *Cluster) launch(ctx context.Context, binary string, opts GateOptions) (*Gate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	dir := filepath.Join(c.dir, fmt.Sprintf("opgate-%d", len(c.gates)+1))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	addresses, err := c.Addresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	gate := &Gate{
		cluster:  c,
		webhook:  addresses[0],
		health:   addresses[1],
		metrics:  addresses[2],
		secure:   opts.SecureMetrics,
		backstop: !opts.WithoutBackstop,
		client:   &http.Client{Transport: speed.Transport(http.DefaultTransport, requestTimeout)},
	}
	if earlier := opts.Replaces; earlier != nil {
		gate.webhook, gate.certificate = earlier.webhook, earlier.certificate
	} else if gate.certificate, err = writeServingCertificate(dir); err != nil {
		return nil, err
	}
	shipped, err := shippedArguments()
	if err != nil {
		return nil, err
	}
	args, err := serveArguments(shipped, c.overrides(gate, &opts))
	if err != nil {
		return nil, err
	}
	args = append(args, opts.Args...)

	fmt.Fprintln(c.log, "starting opgate")
	environment := append(os.Environ(), "KUBECONFIG=", "GOGC=") // as in a pod: it sets its own
	if opts.MemoryLimit > 0 {
		environment = append(environment, fmt.Sprintf("OPGATE_MEMORY_LIMIT=%d", opts.MemoryLimit))
	}
	gate.Started = time.Now()
	gate.process, err = startProcessIn(ctx, true, environment, filepath.Join(dir, "opgate.log"), binary, args...)
	if err != nil {
		return nil, err
	}
	if opts.MemoryLimit > 0 && !opts.MayExceedMemoryLimit {
		limit := unix.Rlimit{Cur: opts.MemoryLimit, Max: opts.MemoryLimit}
		if err := unix.Prlimit(gate.process.pid(), unix.RLIMIT_DATA, &limit, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("limit the memory of opgate: %w", err), gate.process.kill())
		}
	}
	c.gates = append(c.gates, gate)
	c.loop, c.reports = c.loop || opts.Loop, c.reports || opts.Reports
	c.backstop = c.backstop || !opts.WithoutBackstop
	c.secureMetrics = c.secureMetrics || opts.SecureMetrics
	return gate, nil
}

// openGate waits until the process is ready, unless Unready is set, and makes the API server call it.
func (c *Cluster) openGate(ctx context.Context, gate *Gate, opts *GateOptions) error {
	if !opts.Unready {
		if err := gate.WaitForReady(ctx); err != nil {
			return err
		}
		fmt.Fprintln(c.log, "opgate is ready")
	}
	if err := c.installConversion(ctx, gate.WebhookURL(), gate.certificate.ca); err != nil {
		return err
	}
	if err := installWebhooks(ctx, c.masters, c.checkout.Webhooks(),
		target{url: gate.WebhookURL(), ca: gate.certificate.ca, olm: opts.OLMIdentity,
			inEffect: opts.Unready}); err != nil {
		return err
	}
	if opts.WithoutBackstop && c.keptBackstop() {
		if err := c.removeBackstop(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintln(c.log, "the API server asks opgate")
	return nil
}

// WaitForReady waits until Opgate is ready.
func (g *Gate) WaitForReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-g.process.exited():
			cancel(fmt.Errorf("it exited with code %d before it was ready", g.process.exitCode()))
		case <-ctx.Done():
		}
	}()

	last := errors.New("no answer")
	err := speed.Poll(ctx, pollInterval, gateReadyTimeout,
		func(ctx context.Context) (bool, error) {
			last = g.get(ctx, "/readyz", nil)
			return last == nil, nil
		})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("wait until it is ready: %w: %w", err, last)
	}
}

// Stop asks Opgate to end and returns its exit code, -1 if a signal ended it. Calling it again returns the same code.
// When Opgate does not end in time it is killed, which is an error.
func (g *Gate) Stop() (exitCode int, err error) {
	if err := g.process.terminate(gateStopTimeout); err != nil {
		return g.process.exitCode(), fmt.Errorf("stop opgate: %w; its log ends with\n%s", err,
			tail.File(g.LogPath(), logLines))
	}
	return g.process.exitCode(), nil
}

// Kill ends Opgate at once, as a crash would.
func (g *Gate) Kill() error {
	if err := g.process.kill(); err != nil {
		return fmt.Errorf("kill opgate: %w", err)
	}
	return nil
}

// Pause stops Opgate as it is, as the suspension of its machine would. Resume makes it go on.
func (g *Gate) Pause() error { return g.process.signal(unix.SIGSTOP) }

// Resume makes Opgate go on after Pause.
func (g *Gate) Resume() error { return g.process.signal(unix.SIGCONT) }

// Restarts is how often the process has ended with exit code 0 and was started again, as a kubelet does: when it led
// and has lost the Lease.
func (g *Gate) Restarts() int64 { return g.process.starts.Load() }

// Exited is closed when the process has ended, for another reason.
func (g *Gate) Exited() <-chan struct{} { return g.process.exited() }

// LogPath is the file that the process logs to.
func (g *Gate) LogPath() string { return g.process.log }

// HealthURL is the address of Opgate's health endpoints, without a path.
func (g *Gate) HealthURL() string { return "http://" + g.health }

// MetricsURL is the address of Opgate's metrics.
func (g *Gate) MetricsURL() string {
	if g.secure {
		return "https://" + g.metrics + "/metrics"
	}
	return "http://" + g.metrics + "/metrics"
}

// CA is the certificate authority that a client of the webhooks has to trust, as PEM.
func (g *Gate) CA() []byte { return g.certificate.ca }

// WebhookURL is the address of Opgate's webhooks, without a path.
func (g *Gate) WebhookURL() string { return "https://" + g.webhook }

// PeakMemory returns the most memory that the process has had resident since it started, in bytes.
func (g *Gate) PeakMemory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.process.pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("there is no VmHWM in the status of the process")
}

// Usage is what a process has used.
type Usage struct {
	// CPU is its time in user mode and in the kernel.
	CPU time.Duration
	// Resident is its memory now, Peak is the most that it has had since it started; both in bytes.
	Resident, Peak int64
}

// Usage returns what the process has used.
func (g *Gate) Usage() (Usage, error) {
	var u Usage
	pid := g.process.pid()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			u.Peak = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			u.Resident = kib << 10
		}
	}
	u.CPU, err = cpuTime(pid)
	return u, err
}
