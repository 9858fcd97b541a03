// Package cluster runs a real kube-apiserver and etcd with OLM's and Opgate's resource definitions, Opgate as a process
// of its own in front of it, and kubectl as distinct users. There are no nodes and no controllers: nothing runs pods,
// collects garbage or deletes the content of a namespace, unless package node adds that.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/e2e/internal/ports"
)

// Cluster is a running control plane. Its methods may be called from several goroutines.
type Cluster struct {
	checkout repo.Checkout
	assets   assets.Assets
	dir      string
	programs *Programs
	log      io.Writer
	plane    *controlPlane
	users    map[User]*account
	masters  client.Client // system:masters: for the harness itself, never for a test

	mu    sync.Mutex
	gates []*Gate
	ends  []func() error
	// Whether one of the gates had the loop, kept the backstop, wrote Reports, or had secure metrics.
	loop, backstop, reports, secureMetrics bool
	// chartRights is set if Opgate has the rights of the chart's defaults and no others.
	chartRights bool
	// held is what the API server is known to judge by.
	held held

	stop  func() error
	ports ports.Reservations
	// failed ends when fail is called.
	failed context.Context //nolint:containedctx // it is that of the cluster
	fail   context.CancelCauseFunc
}

// Start starts a control plane and prepares it: resource definitions, namespaces, users. The caller must call Stop,
// also when ctx has ended; ctx bounds only the start.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts.setDefaults()
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	if opts.Assets == (assets.Assets{}) {
		opts.Assets, err = assets.Find(ctx, assets.Options{Log: opts.Log})
		if err != nil {
			return nil, err
		}
	}
	dir, err := makeDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if opts.Programs == nil {
		opts.Programs = &Programs{}
	}
	opts.Programs.setDefaults(dir, opts.Log)
	c := &Cluster{checkout: checkout, assets: opts.Assets, dir: dir, programs: opts.Programs, log: opts.Log}
	c.stop = sync.OnceValue(c.stopAll)
	c.failed, c.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := c.start(ctx, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, opts Options) error {
	watch := stopwatch.Start()
	fmt.Fprintf(c.log, "starting etcd and kube-apiserver (%s)\n", opts.Assets.Origin)
	addresses, err := c.Addresses(ctx, planeAddresses)
	if err != nil {
		return err
	}
	if c.plane, err = startControlPlane(ctx, c.assets, c.dir, addresses, &opts); err != nil {
		return err
	}
	if c.masters, err = client.New(c.plane.masters, client.Options{}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	definitions, olm := olmCRDs()
	own := c.checkout.CRDs()
	if opts.WithoutOLM {
		definitions, olm = nil, ""
	}
	if opts.Bare {
		own = ""
	}
	if opts.OpenShift != "" {
		definitions = append(definitions, clusterVersions())
	}
	if err := installCRDs(ctx, c.plane.masters, definitions, own, olm); err != nil {
		return err
	}
	if opts.OpenShift != "" {
		if err := tellOpenShift(ctx, c.masters, opts.OpenShift); err != nil {
			return err
		}
	}
	if err := createNamespaces(ctx, c.masters, append(opts.plainNamespaces(), opts.TenantNamespaces...)); err != nil {
		return err
	}
	create, wait := createRBAC, waitForRBAC
	switch {
	case opts.Bare:
		create, wait = createBareRBAC, waitForBareRBAC
	case opts.ChartRights:
		create, wait, c.chartRights = createChartRBAC, waitForBareRBAC, true
	}
	if err := create(ctx, c.masters, opts.TenantNamespaces); err != nil {
		return err
	}
	if c.users, err = createUsers(ctx, c.plane, c.masters, &opts); err != nil {
		return err
	}
	if err := c.CreateOLMDeployment(ctx, OLMNamespace, olmServiceAccount); err != nil {
		return err
	}
	if err := wait(ctx, c.masters, opts.TenantNamespaces); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	fmt.Fprintf(c.log, "control plane is ready after %s\n", watch)
	return nil
}

// makeDir returns an existing directory, which Stop removes.
func makeDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "opgate-e2e-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return dir, os.MkdirAll(dir, 0o700)
	case err != nil:
		return "", err
	case len(entries) > 0:
		return "", fmt.Errorf("%s is not empty", dir)
	}
	return dir, nil
}

// AtStop makes Stop call end before it stops anything else. What is added last is called first.
func (c *Cluster) AtStop(end func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, end)
}

// Addresses returns n addresses on the loopback interface for programs to listen on. No other cluster on this machine
// gets them before this one has stopped.
func (c *Cluster) Addresses(ctx context.Context, n int) ([]string, error) {
	return c.ports.Take(ctx, n)
}

// Stop stops every process that the cluster started and removes what they wrote. Calling it again does nothing.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) stopAll() error {
	c.mu.Lock()
	gates, ends := c.gates, c.ends
	c.mu.Unlock()

	var errs []error
	for _, end := range slices.Backward(ends) {
		errs = append(errs, end())
	}
	for _, gate := range gates {
		if _, err := gate.Stop(); err != nil {
			errs = append(errs, err)
		}
	}
	if c.plane != nil {
		errs = append(errs, c.plane.stop())
	}
	errs = append(errs, c.ports.Release(), os.RemoveAll(c.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop cluster: %w", err)
	}
	return nil
}

// Dir is the directory of everything that the cluster writes, logs included. Stop removes it.
func (c *Cluster) Dir() string { return c.dir }

// AuditLog is the file of the API server's audit log, where Options ask for one: JSON, one event on each line.
func (c *Cluster) AuditLog() string { return auditLog(c.dir) }

// Assets are the binaries that the cluster runs.
func (c *Cluster) Assets() assets.Assets { return c.assets }

// RESTConfig returns a copy of the client configuration of a user.
func (c *Cluster) RESTConfig(user User) (*rest.Config, error) {
	account, err := c.account(user)
	if err != nil {
		return nil, err
	}
	return rest.CopyConfig(account.config), nil
}
