package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeKind is what a probe decides.
type probeKind string

const (
	startup   probeKind = "startup"
	readiness probeKind = "readiness"
	liveness  probeKind = "liveness"
)

// quickPeriod is that of readiness and startup probes that set a longer one, so that tests do not wait. A pod is ready
// sooner than on a real cluster, and not ready sooner as well: after failureThreshold quick failures. What ends a
// process takes as long as it does there: failureThreshold failures of a liveness probe in its own period, and the time
// that as many of a startup probe would take.
const quickPeriod = 200 * time.Millisecond

// outcome is a changed result of a probe.
type outcome struct {
	kind probeKind
	err  error // nil if all is well
}

// probes are those of one process.
type probes struct {
	pod      *pod
	outcomes chan outcome // changes of results; a process begins without an outcome
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

func newProbes(ctx context.Context, p *pod) *probes {
	ctx, cancel := context.WithCancel(ctx)
	return &probes{pod: p, outcomes: make(chan outcome), ctx: ctx, cancel: cancel}
}

// start starts a probe, if there is one.
func (p *probes) start(kind probeKind, probe *corev1.Probe) {
	if probe != nil {
		p.all.Go(func() { p.run(kind, probe) })
	}
}

// stop stops all of them. The caller must not receive outcomes any more.
func (p *probes) stop() {
	p.cancel()
	p.all.Wait()
}

func (p *probes) run(kind probeKind, probe *corev1.Probe) {
	period := time.Duration(probe.PeriodSeconds) * time.Second
	needed, allowed := int(probe.SuccessThreshold), int(probe.FailureThreshold)
	if kind != liveness && period > quickPeriod {
		if kind == startup {
			allowed *= int(period / quickPeriod)
		}
		period = quickPeriod
	}
	if !p.sleep(time.Duration(probe.InitialDelaySeconds) * time.Second) {
		return
	}
	well, known := 0, false // how often in a row, negative if it failed; whether an outcome was sent
	var reported error
	for {
		err := p.pod.check(p.ctx, probe)
		if p.ctx.Err() != nil {
			return
		}
		if errors.Is(err, http.ErrSchemeMismatch) {
			p.pod.node.fail(fmt.Errorf("%s: its %s probe reaches another protocol than it expects: %w", p.pod, kind,
				err))
		}
		if err == nil {
			well = max(well, 0) + 1
		} else {
			well = min(well, 0) - 1
		}
		if decided := well >= needed || -well >= allowed; decided && (!known || (reported == nil) != (err == nil)) {
			select {
			case p.outcomes <- outcome{kind, err}:
				known, reported = true, err
			case <-p.ctx.Done():
				return
			}
			if kind == startup {
				return
			}
		}
		if !p.sleep(period) {
			return
		}
	}
}

// sleep reports false if the probes are stopped meanwhile.
func (p *probes) sleep(duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// probeTransport is that of a kubelet: it verifies no certificate and does not reuse connections.
var probeTransport = &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // a kubelet does not verify it
	DisableKeepAlives: true,
	Proxy:             nil,
}

// check runs a probe once.
func (p *pod) check(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	switch {
	case probe.TCPSocket != nil:
		address, err := p.probeAddress(probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	case probe.HTTPGet != nil:
		return p.get(ctx, probe.HTTPGet)
	default:
		return errors.New("only httpGet and tcpSocket can be probed here")
	}
}

func (p *pod) get(ctx context.Context, action *corev1.HTTPGetAction) error {
	address, err := p.probeAddress(action.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if action.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+action.Path, nil)
	if err != nil {
		return err
	}
	for _, header := range action.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	client := http.Client{
		Transport:     probeTransport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if scheme == "http" && isHTTPS(response) {
		return fmt.Errorf("%s: it serves HTTPS: %w", request.URL, http.ErrSchemeMismatch)
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answers %s", action.Path, response.Status)
	}
	return nil
}

// isHTTPS reports whether a response is that of a server in Go that expected TLS.
func isHTTPS(response *http.Response) bool {
	if response.StatusCode != http.StatusBadRequest {
		return false
	}
	const answer = "Client sent an HTTP request to an HTTPS server."
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(len(answer))))
	return err == nil && string(body) == answer
}

// probeAddress is where a port of the container is on this machine.
func (p *pod) probeAddress(port intstr.IntOrString) (string, error) {
	address, ok := "", false
	if port.Type == intstr.String {
		address, ok = p.namedAddresses()[port.StrVal]
	} else {
		address, ok = p.address(port.IntVal)
	}
	if !ok {
		return "", fmt.Errorf("the container declares no port %s", port.String())
	}
	return address, nil
}

// address is where a port of the container is on this machine. It may be called from any goroutine.
func (p *pod) address(port int32) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address, ok := p.addresses[port]
	return address, ok
}
