// Package node adds to a cluster what runs pods. The controllers of Kubernetes are real; the node is simulated: it
// takes every pod, runs a program of this machine in place of its image, probes it and writes its status, as scheduler
// and kubelet would, and it forwards the API server's connections to Services, as kube-proxy would. It also serves
// kubectl logs. So an installation can be tested whole, without containers.
//
// There is no isolation: programs can access the files and the network of this machine.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/e2e/cluster"
)

// Name is the name of the one node.
const Name = "local"

// Options configure Start.
type Options struct {
	// Images are the programs to run. The keys are images, with or without a tag; with it comes first. A pod of another
	// image does not start.
	Images map[string]Program
	// Controllers is the kube-controller-manager to run. Default: what assets.FindControllers returns.
	Controllers string
	// Log receives progress lines. Default: none.
	Log io.Writer
}

// Node is a running node with the controllers of Kubernetes. Its methods may be called from several goroutines.
type Node struct {
	cluster     *cluster.Cluster
	images      map[string]Program
	log         io.Writer
	client      kubernetes.Interface
	factory     informers.SharedInformerFactory
	controllers *cluster.Companion
	proxy       *proxy
	logs        *logServer
	cancel      context.CancelFunc // ends all pods
	workers     sync.WaitGroup     // one for each pod
	stop        func() error
	fail        func(error) // makes tests end

	mu      sync.Mutex
	pods    map[types.UID]*pod
	started int // how many pods have got an IP address
}

// Start starts the controllers and the node of a cluster that was started with Options.Node, and waits until the
// controllers work. Cluster.Stop stops it, if the caller does not; ctx bounds only the start.
func Start(ctx context.Context, c *cluster.Cluster, opts Options) (*Node, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Controllers == "" {
		var err error
		if opts.Controllers, err = assets.FindControllers(ctx, assets.Options{Log: opts.Log}); err != nil {
			return nil, err
		}
	}
	n := &Node{cluster: c, images: opts.Images, log: opts.Log, cancel: func() {}, fail: c.Fail,
		pods: map[types.UID]*pod{}}
	n.stop = sync.OnceValue(n.stopAll)
	c.AtStop(n.Stop)
	if err := n.start(ctx, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start node: %w", err), n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, opts Options) error {
	watch := stopwatch.Start()
	fmt.Fprintln(n.log, "starting kube-controller-manager and a node")
	// In group system:masters, since it does more than a kubelet.
	config, err := n.cluster.Credentials("system:node:"+Name, "system:masters")
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit
	config.WarningHandler = rest.NoWarnings{}
	if n.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := os.MkdirAll(n.dir(), 0o700); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	if n.logs, err = startLogServer(running, n); err != nil {
		return err
	}
	// Endpoints on a node that does not exist are ignored.
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Name}, Status: n.logs.status()}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	if n.controllers, err = startControllers(ctx, n.cluster, opts.Controllers); err != nil {
		return err
	}

	n.factory = informers.NewSharedInformerFactory(n.client, 0)
	if err := n.watch(running); err != nil {
		return err
	}
	if n.proxy, err = startProxy(running, n); err != nil {
		return err
	}
	n.factory.StartWithContext(running)
	if err := n.factory.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		return err
	}
	if err := waitForControllers(ctx, n.client, n.controllers); err != nil {
		return err
	}
	fmt.Fprintf(n.log, "the node is ready after %s\n", watch)
	return nil
}

// Stop ends the processes of all pods at once, as a loss of power would, and stops the controllers. Calling it again
// does nothing.
func (n *Node) Stop() error { return n.stop() }

func (n *Node) stopAll() error {
	n.cancel()
	if n.factory != nil {
		n.factory.Shutdown() // afterwards no pod is started
	}
	n.workers.Wait()
	var errs []error
	if n.proxy != nil {
		errs = append(errs, n.proxy.stop())
	}
	if n.logs != nil {
		errs = append(errs, n.logs.stop())
	}
	if n.controllers != nil {
		errs = append(errs, n.controllers.Stop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop node: %w", err)
	}
	return nil
}

// Controllers is the process of kube-controller-manager.
func (n *Node) Controllers() *cluster.Companion { return n.controllers }

// Pod is a pod on the node.
type Pod struct {
	Namespace, Name string
	// IP is its address in the cluster. Only the API server can reach it there.
	IP string
	// Addresses is where its ports can be reached on this machine, by their names.
	Addresses map[string]string
	// PID is its process, 0 if there is none at present.
	PID int
	// Log is the file that its processes have logged to.
	Log string
}

// Pods returns the pods in a namespace that have had a process and have not ended for good, sorted by name.
func (n *Node) Pods(namespace string) []Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pods []Pod
	for _, p := range n.pods {
		if view, ok := p.view(); ok && view.Namespace == namespace {
			pods = append(pods, view)
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// Signal sends a signal to the process of a pod, such as SIGSTOP, SIGCONT or SIGKILL. It is an error if there is none.
func (n *Node) Signal(pod Pod, sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		view, ok := p.view()
		if ok && view.Namespace == pod.Namespace && view.Name == pod.Name && view.PID != 0 {
			return p.process.Load().Signal(sig)
		}
	}
	return fmt.Errorf("pod %s/%s has no process", pod.Namespace, pod.Name)
}

// dir is the directory of all pods.
func (n *Node) dir() string { return filepath.Join(n.cluster.Dir(), "pods") }

// watch starts a goroutine for every pod, which ends with ctx, and notifies it of changes.
func (n *Node) watch(ctx context.Context) error {
	core := n.factory.Core().V1()
	_, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.observe(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.observe(ctx, object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			n.forget(object.(*corev1.Pod))
		},
	})
	if err != nil {
		return err
	}
	for _, informer := range []cache.SharedInformer{core.Secrets().Informer(), core.ConfigMaps().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { n.refresh(object.(metav1.Object).GetNamespace()) },
			UpdateFunc: func(_, object any) { n.refresh(object.(metav1.Object).GetNamespace()) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// observe passes the new object to its pod.
func (n *Node) observe(ctx context.Context, object *corev1.Pod) {
	if object.Spec.NodeName != "" && object.Spec.NodeName != Name {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[object.UID]; p != nil {
		p.object.Store(object)
		notify(p.changed)
		return
	}
	p := newPod(n, object)
	n.pods[object.UID] = p
	n.workers.Go(func() { p.run(ctx) })
}

// forget ends the pod of a deleted object.
func (n *Node) forget(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[object.UID]; p != nil {
		delete(n.pods, object.UID)
		close(p.gone)
	}
}

// refresh makes the pods in a namespace update their volumes.
func (n *Node) refresh(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.object.Load().Namespace == namespace {
			notify(p.stale)
		}
	}
}

// notify puts an element into a channel that holds one, unless it does already.
func notify(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// nextIP returns an address for a pod, which no other has ever had.
func (n *Node) nextIP() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started++
	const perSubnet = 250
	return fmt.Sprintf("10.244.%d.%d", n.started/perSubnet, 1+n.started%perSubnet)
}
