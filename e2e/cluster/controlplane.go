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

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// componentTimeout bounds the start, and the stop, of etcd and of kube-apiserver each.
	componentTimeout = speed.LongWait
	// planeAddresses is how many addresses the control plane listens on.
	planeAddresses = 3
	// logLines is how much of a component's log an error quotes.
	logLines = 20
)

// controlPlane is etcd and kube-apiserver.
type controlPlane struct {
	env  *envtest.Environment
	logs []*os.File
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

	existing := false
	plane := &controlPlane{arguments: map[Component][]string{}, restarted: map[Component]*process{},
		env: &envtest.Environment{
			UseExistingCluster:       &existing, // never a real cluster, whatever the environment reports
			ControlPlaneStartTimeout: componentTimeout,
			ControlPlaneStopTimeout:  componentTimeout,
		}}
	server := plane.env.ControlPlane.GetAPIServer()
	server.Path = bin.KubeAPIServer()
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

	if opts.TracingEndpoint != "" {
		config, err := writeTracingConfig(dir, opts.TracingEndpoint)
		if err != nil {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		server.Configure().Set("tracing-config-file", config)
	}

	etcd := &envtest.Etcd{Path: bin.Etcd(), DataDir: filepath.Join(dir, "etcd"),
		URL: &url.URL{Scheme: "http", Host: addresses[1]}}
	etcd.Configure().
		// Otherwise envtest chooses a port, which any process may take before etcd listens.
		Set("listen-peer-urls", "http://"+addresses[2]).
		// Data need not survive a power cut.
		Set("unsafe-no-fsync", "true")
	plane.env.ControlPlane.Etcd = etcd
	plane.env.ControlPlane.KubectlPath = bin.Kubectl()

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

	// envtest takes no context: it stops by its own timeouts.
	if _, err := plane.env.Start(); err != nil {
		err = fmt.Errorf("start control plane: %w\netcd:\n%s\nkube-apiserver:\n%s",
			err, tail.File(etcdLog.Name(), logLines), tail.File(serverLog.Name(), logLines))
		return nil, errors.Join(err, plane.stop())
	}
	if ctx.Err() != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", ctx.Err()), plane.stop())
	}
	return plane, nil
}

// writeTracingConfig returns the path of a file that makes the API server record all requests.
func writeTracingConfig(dir, endpoint string) (string, error) {
	path := filepath.Join(dir, "tracing.yaml")
	return path, os.WriteFile(path, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"+
		"endpoint: "+endpoint+"\nsamplingRatePerMillion: 1000000\n"), 0o600)
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
	return errors.Join(append(errs, p.env.Stop(), p.closeLogs())...)
}

// masters is the configuration of a client in group system:masters, which no authorizer restrains.
func (p *controlPlane) masters() *rest.Config { return p.env.Config }
