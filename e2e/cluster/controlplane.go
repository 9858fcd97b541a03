package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster/orphans"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// componentTimeout bounds the start, and the stop, of etcd and of kube-apiserver each.
	componentTimeout = speed.LongWait
	// byTheClock is the timeout that envtest is given: longer than componentTimeout in any case.
	byTheClock = 24 * time.Hour
	// mostStarts is how often kube-apiserver may end before it is ready.
	mostStarts = 5
	// planeAddresses is how many addresses the control plane listens on.
	planeAddresses = 3
	// logLines is how much of a component's log an error quotes.
	logLines = 20
)

// controlPlane is etcd and kube-apiserver.
type controlPlane struct {
	envtest.ControlPlane
	dir  string
	logs []*os.File
	// masters is the configuration of a client in group system:masters, which no authorizer restrains.
	masters *rest.Config
	// arguments are the command lines of components that were killed, restarted are the processes that replace them.
	arguments map[Component][]string
	restarted map[Component]*process
}

// silence discards what envtest logs through the logger of the whole process: failures are returned as errors. Several
// clusters may start at once, and SetLogger is not safe for concurrent use.
var silence = sync.OnceFunc(func() { ctrllog.SetLogger(logr.Discard()) })

// startControlPlane starts etcd and kube-apiserver on addresses and waits until they are ready. All they write is in
// dir.
func startControlPlane(
	ctx context.Context, bin assets.Assets, dir string, addresses []string, opts *Options,
) (*controlPlane, error) {
	silence()

	plane := &controlPlane{dir: dir, arguments: map[Component][]string{}, restarted: map[Component]*process{}}
	server := plane.GetAPIServer()
	server.Path = bin.KubeAPIServer()
	server.StartTimeout, server.StopTimeout = byTheClock, byTheClock
	server.CertDir = filepath.Join(dir, "kube-apiserver")
	var err error
	if server.Address, server.Port, err = net.SplitHostPort(addresses[0]); err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	server.Configure().
		// RBAC makes the users distinct; Node is not needed without nodes.
		Set("authorization-mode", "RBAC")

	if opts.WithoutWatchCache {
		server.Configure().Set("watch-cache", "false")
	}
	if opts.Node {
		config, err := writeEgressConfig(dir)
		if err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		server.Configure().Set("egress-selector-config-file", config)
	}
	if opts.Node || opts.Owners {
		server.Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	}
	if opts.WebhookClient {
		config, err := writeAdmissionConfig(dir)
		if err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		server.Configure().Set("admission-control-config-file", config)
	}
	if opts.Node && !opts.WebhookClient {
		config, err := writeQuotaConfig(dir)
		if err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		server.Configure().Set("admission-control-config-file", config)
	}
	if opts.AdmissionConfig != "" {
		server.Configure().Set("admission-control-config-file", opts.AdmissionConfig).
			// before Kubernetes 1.37 it is off by default
			Append("feature-gates", "ManifestBasedAdmissionControlConfig=true")
	}
	if opts.Audit {
		policy, err := writeAuditPolicy(dir)
		if err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		// One file: the log of a large cluster exceeds the 100 MB after which another one would begin.
		server.Configure().Set("audit-policy-file", policy).Set("audit-log-path",
			auditLog(dir)).Set("audit-log-maxsize", "4096")
	}

	etcd := &envtest.Etcd{Path: bin.Etcd(), DataDir: filepath.Join(dir, "etcd"),
		URL: &url.URL{Scheme: "http", Host: addresses[1]}, StartTimeout: byTheClock, StopTimeout: byTheClock}
	etcd.Configure().
		// Otherwise envtest chooses a port, which any process may take before etcd listens.
		Set("listen-peer-urls", "http://"+addresses[2]).
		// Data need not survive a power cut.
		Set("unsafe-no-fsync", "true")
	plane.Etcd = etcd
	plane.KubectlPath = bin.Kubectl()

	for _, sub := range []string{server.CertDir, etcd.DataDir} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
	}
	serverLog, err := plane.openLog(dir, "kube-apiserver.log")
	if err != nil {
		return nil, err
	}
	server.Out, server.Err = serverLog, serverLog
	etcdLog, err := plane.openLog(dir, "etcd.log")
	if err != nil {
		return nil, errors.Join(err, plane.closeLogs())
	}
	etcd.Out, etcd.Err = etcdLog, etcdLog

	if err := plane.bounded(ctx, plane.start); err != nil {
		err = fmt.Errorf("start control plane: %w\netcd:\n%s\nkube-apiserver:\n%s",
			err, tail.File(etcdLog.Name(), logLines), tail.File(serverLog.Name(), logLines))
		return nil, errors.Join(err, plane.stop())
	}
	return plane, nil
}

// start starts both components and waits until they are ready. kube-apiserver ends where etcd is slow, and is started
// again then.
func (p *controlPlane) start(ctx context.Context) (err error) {
	for range mostStarts {
		if err = p.Start(); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	user, err := p.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}},
		&rest.Config{QPS: 1000, Burst: 2000})
	if err != nil {
		return err
	}
	p.masters = user.Config()
	clientset, err := kubernetes.NewForConfig(p.masters)
	if err != nil {
		return err
	}
	// The API server makes it soon after its start.
	return speed.Poll(ctx, pollInterval, componentTimeout, func(ctx context.Context) (bool, error) {
		_, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, nil
	})
}

// bounded starts or stops the components. envtest knows no context, and no time but that of the clock: when the time is
// up both are killed, which it notices.
func (p *controlPlane) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := speed.WithTimeout(ctx, componentTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, component := range []Component{APIServer, Etcd} {
			found, _ := orphans.Find(context.WithoutCancel(ctx), p.dir, string(component))
			for pid := range found {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	defer stop()
	return errors.Join(do(ctx), context.Cause(ctx))
}

func (p *controlPlane) openLog(dir, name string) (*os.File, error) {
	log, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	p.logs = append(p.logs, log)
	return log, nil
}

func (p *controlPlane) closeLogs() error {
	var errs []error
	for _, log := range p.logs {
		errs = append(errs, log.Close())
	}
	return errors.Join(errs...)
}

func (p *controlPlane) stop() error {
	var errs []error
	for _, component := range []Component{APIServer, Etcd} { // kube-apiserver does not end gracefully without etcd
		if restarted := p.restarted[component]; restarted != nil {
			errs = append(errs, restarted.terminate(componentTimeout))
		}
	}
	ctx := context.Background() //nolint:forbidigo // it is stopped when every context has ended
	errs = append(errs, p.bounded(ctx, func(context.Context) error { return p.Stop() }), p.closeLogs())
	return errors.Join(errs...)
}
