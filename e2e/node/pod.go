package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
)

const (
	// firstBackoff is how long a container that has ended waits until it starts again. Each time it is twice as long,
	// up to lastBackoff, until it has been ready. A kubelet begins with ten seconds and takes up to five minutes.
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// retryInterval is how often a pod checks whether it can start.
	retryInterval = 200 * time.Millisecond
	// logLines is how much of a pod's log an error quotes.
	logLines = 20
)

// pod is a pod on the node. Only its goroutine uses its fields, unless stated otherwise.
type pod struct {
	node *Node
	dir  string
	log  string

	// From any goroutine.
	object  atomic.Pointer[corev1.Pod]        // as it was last seen
	process atomic.Pointer[cluster.Companion] // the last one, which may have ended
	changed chan struct{}                     // wakes it when object has changed
	stale   chan struct{}                     // wakes it when Secrets or ConfigMaps have changed
	gone    chan struct{}                     // closed when the object is no more

	mu        sync.Mutex // of the next two
	ip        string
	addresses map[int32]string // where the container's ports are on this machine

	volumes    map[string]map[string][]byte // what was last written, by volumes and paths
	kubeconfig string
	state      state
	written    *corev1.PodStatus
}

func newPod(n *Node, object *corev1.Pod) *pod {
	dir := filepath.Join(n.dir(), object.Namespace+"_"+object.Name+"_"+string(object.UID))
	p := &pod{
		node: n, dir: dir, log: filepath.Join(dir, "log"),
		changed: make(chan struct{}, 1), stale: make(chan struct{}, 1), gone: make(chan struct{}),
		volumes: map[string]map[string][]byte{},
	}
	p.object.Store(object)
	return p
}

// view returns the public state of the pod, if it has had a process. It may be called from any goroutine.
func (p *pod) view() (Pod, bool) {
	process := p.process.Load()
	object := p.object.Load()
	if process == nil || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	view := Pod{Namespace: object.Namespace, Name: object.Name, Log: p.log, Addresses: p.namedAddresses()}
	p.mu.Lock()
	view.IP = p.ip
	p.mu.Unlock()
	select {
	case <-process.Exited():
	default:
		view.PID = process.PID()
	}
	return view, true
}

// namedAddresses are the addresses of the container's ports, by their names. It may be called from any goroutine.
func (p *pod) namedAddresses() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	named := map[string]string{}
	for _, port := range p.object.Load().Spec.Containers[0].Ports {
		if port.Name != "" {
			named[port.Name] = p.addresses[port.ContainerPort]
		}
	}
	return named
}

// run keeps the container running until the pod is deleted or ctx ends.
func (p *pod) run(ctx context.Context) {
	backoff := firstBackoff
	for !p.ending(ctx) {
		process, err := p.start(ctx)
		if err != nil {
			if p.state.wait(err) {
				fmt.Fprintf(p.node.log, "%s waits: %v\n", p, err)
			}
			p.report(ctx)
			p.pause(ctx, retryInterval)
			continue
		}
		p.supervise(ctx, process)
		if ctx.Err() != nil {
			return
		}
		if p.state.ready {
			backoff = firstBackoff
		}
		p.state.end(process.State())
		if p.ending(ctx) {
			break
		}
		fmt.Fprintf(p.node.log, "%s has ended: %s\n", p, process.State())
		p.checkBind()
		if !p.restarts() {
			p.state.final = true
			break
		}
		p.state.restarts++
		p.report(ctx)
		p.pause(ctx, backoff)
		backoff = min(2*backoff, lastBackoff)
	}
	p.finish(ctx)
}

// checkBind makes tests end whose pod finds a port in use. The port is reserved for the pod, so another start would not
// help.
func (p *pod) checkBind() {
	if end := tail.File(p.log, logLines); p.state.last.ExitCode != 0 &&
		strings.Contains(end, syscall.EADDRINUSE.Error()) {
		p.node.fail(fmt.Errorf("%s cannot listen, since a program outside the tests uses its port; its log ends with\n%s", p, end))
	}
}

func (p *pod) String() string {
	object := p.object.Load()
	return "pod " + object.Namespace + "/" + object.Name
}

// restarts reports whether the container starts again after it has ended.
func (p *pod) restarts() bool {
	switch p.object.Load().Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return p.state.terminated.ExitCode != 0
	default:
		return true
	}
}

// ending reports whether the pod is being deleted.
func (p *pod) ending(ctx context.Context) bool {
	select {
	case <-p.gone:
		return true
	default:
		return ctx.Err() != nil || p.object.Load().DeletionTimestamp != nil
	}
}

// pause waits for a while, or until the pod is ending.
func (p *pod) pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	for !p.ending(ctx) {
		select {
		case <-ctx.Done():
		case <-p.gone:
		case <-p.changed:
		case <-timer.C:
			return
		}
	}
}

// start starts the container, once all that it needs exists.
func (p *pod) start(ctx context.Context) (*cluster.Companion, error) {
	object := p.object.Load()
	if object.Spec.NodeName == "" {
		if err := p.bind(ctx, object); err != nil {
			return nil, because("Pending", err)
		}
	}
	program, err := p.prepare(ctx, object)
	if err != nil {
		return nil, err
	}
	process, err := cluster.StartProgram(ctx, program)
	if err != nil {
		return nil, because("RunContainerError", err)
	}
	p.process.Store(process)
	return process, nil
}

// bind does what the scheduler does.
func (p *pod) bind(ctx context.Context, object *corev1.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: Name},
	}
	return p.node.client.CoreV1().Pods(object.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// supervise probes and signals a process until it has ended.
func (p *pod) supervise(ctx context.Context, process *cluster.Companion) {
	container := p.object.Load().Spec.Containers[0]
	probes := newProbes(ctx, p)
	defer probes.stop()

	p.state.run()
	begin := func() {
		p.state.started, p.state.ready = true, container.ReadinessProbe == nil
		probes.start(readiness, container.ReadinessProbe)
		probes.start(liveness, container.LivenessProbe)
	}
	if container.StartupProbe == nil {
		begin()
	} else {
		probes.start(startup, container.StartupProbe)
	}

	var term, kill <-chan time.Time
	end := func(grace, head time.Duration) { term, kill = time.After(head), time.After(max(grace, head)) }
	for {
		if kill == nil && p.object.Load().DeletionTimestamp != nil {
			end(p.grace(), p.preStop())
		}
		p.report(ctx)
		select {
		case <-process.Exited():
			return
		case <-ctx.Done():
			p.kill(process)
			return
		case <-p.gone:
			p.kill(process)
			return
		case <-p.changed:
		case <-p.stale:
			if err := p.writeVolumes(ctx, p.object.Load()); err != nil {
				// As with a kubelet, earlier content stays.
				fmt.Fprintf(p.node.log, "%s keeps its volumes: %v\n", p, err)
			}
		case <-term:
			p.signal(process, syscall.SIGTERM)
		case <-kill:
			p.signal(process, syscall.SIGKILL)
		case outcome := <-probes.outcomes:
			switch {
			case outcome.kind == readiness:
				p.state.ready = outcome.err == nil
			case outcome.kind == startup && outcome.err == nil:
				begin()
			case outcome.err != nil && kill == nil:
				fmt.Fprintf(p.node.log, "%s is ended, its %s probe fails: %v\n", p, outcome.kind, outcome.err)
				end(p.grace(), p.preStop())
			}
		}
	}
}

// grace is how long the process may take to end, from the moment when it is decided that it ends.
func (p *pod) grace() time.Duration {
	object := p.object.Load()
	seconds := object.Spec.TerminationGracePeriodSeconds
	if object.DeletionGracePeriodSeconds != nil {
		seconds = object.DeletionGracePeriodSeconds
	}
	return time.Duration(*seconds) * time.Second
}

// preStop is how much of that has to pass before SIGTERM.
func (p *pod) preStop() time.Duration {
	lifecycle := p.object.Load().Spec.Containers[0].Lifecycle
	if lifecycle == nil || lifecycle.PreStop == nil {
		return 0
	}
	return time.Duration(lifecycle.PreStop.Sleep.Seconds) * time.Second // prepare rejects all others
}

func (p *pod) kill(process *cluster.Companion) {
	if err := process.Kill(); err != nil {
		fmt.Fprintf(p.node.log, "%s: %v\n", p, err)
	}
}

func (p *pod) signal(process *cluster.Companion, sig os.Signal) {
	if err := process.Signal(sig); err != nil {
		fmt.Fprintf(p.node.log, "%s: %v\n", p, err)
	}
}

// finish writes how the pod has ended, and removes it once it is to be deleted.
func (p *pod) finish(ctx context.Context) {
	p.state.final = true
	p.report(ctx)
	for !p.ending(ctx) {
		select {
		case <-ctx.Done():
		case <-p.gone:
		case <-p.changed:
		}
	}
	if ctx.Err() != nil {
		return
	}
	object := p.object.Load()
	options := *metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(object.UID))
	if err := p.node.client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, options); ignoreGone(err) != nil {
		fmt.Fprintf(p.node.log, "delete %s: %v\n", p, err)
	}
}
