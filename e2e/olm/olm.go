// Package olm runs the real Operator Lifecycle Manager, with a catalog of its own, on a cluster without nodes.
package olm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/stopwatch"
)

// Catalog is the name of the CatalogSource, in cluster.OLMNamespace.
const Catalog = "operatorhubio-catalog"

const (
	// readyTimeout bounds the time until OLM has read the catalog. It takes seconds.
	readyTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// Options says how Start works. The zero value is useful.
type Options struct {
	// Assets are the binaries to run. Default: what assets.FindOLM returns.
	Assets assets.OLM
	// Log receives lines for people about what goes on. Default: nowhere.
	Log io.Writer
}

// OLM is a running OLM.
type OLM struct {
	cluster   *cluster.Cluster
	assets    assets.OLM
	log       io.Writer
	client    client.Client
	address   string // of the catalog
	kubelet   *kubelet
	processes []*cluster.Companion // in the order in which they were started
	stop      func() error
}

// Start serves a catalog, starts OLM's two operators as the service account that OLM has on a real cluster, and waits until
// they have read the catalog. The caller must call Stop, before that of the cluster; ctx bounds only the start.
//
// Both operators want port 8080 of every interface for their metrics, whatever they are told. Who comes second says so in its
// log and goes on, so that several OLMs may run on one machine.
func Start(ctx context.Context, c *cluster.Cluster, opts Options) (*OLM, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Assets == (assets.OLM{}) {
		var err error
		if opts.Assets, err = assets.FindOLM(ctx, assets.Options{Log: opts.Log}); err != nil {
			return nil, err
		}
	}
	o := &OLM{cluster: c, assets: opts.Assets, log: opts.Log}
	o.stop = sync.OnceValue(o.stopAll)
	if err := o.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start OLM: %w", err), o.Stop())
	}
	return o, nil
}

func (o *OLM) start(ctx context.Context) error {
	watch := stopwatch.Start()
	fmt.Fprintln(o.log, "starting OLM")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{operatorsv1.AddToScheme, operatorsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := o.cluster.RESTConfig(cluster.Admin)
	if err != nil {
		return err
	}
	if o.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if o.kubelet, err = startKubelet(ctx, config, o.log); err != nil {
		return err
	}
	if err := o.serveCatalog(ctx); err != nil {
		return err
	}
	if err := o.createObjects(ctx); err != nil {
		return err
	}
	if err := o.startOperators(ctx); err != nil {
		return err
	}
	if err := o.waitForCatalog(ctx); err != nil {
		return err
	}
	fmt.Fprintf(o.log, "OLM is ready after %s\n", watch)
	return nil
}

// Stop stops every process. Calling it again does nothing.
func (o *OLM) Stop() error { return o.stop() }

func (o *OLM) stopAll() error {
	var errs []error
	for i := len(o.processes) - 1; i >= 0; i-- {
		errs = append(errs, o.processes[i].Stop())
	}
	if o.kubelet != nil {
		o.kubelet.stop()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop OLM: %w", err)
	}
	return nil
}

// Err returns an error when one of the processes has ended by itself.
func (o *OLM) Err() error {
	var errs []error
	for _, process := range o.processes {
		errs = append(errs, process.Err())
	}
	return errors.Join(errs...)
}

// Logs are the files that the processes log to.
func (o *OLM) Logs() []string {
	logs := make([]string, len(o.processes))
	for i, process := range o.processes {
		logs[i] = process.LogPath()
	}
	return logs
}

func (o *OLM) run(ctx context.Context, name string, variables []string, path string, args ...string) error {
	process, err := o.cluster.StartCompanion(ctx, name, variables, path, args...)
	if err != nil {
		return err
	}
	o.processes = append(o.processes, process)
	return nil
}

// serveCatalog starts the catalog. OLM connects to it as soon as it listens.
func (o *OLM) serveCatalog(ctx context.Context) error {
	dir := filepath.Join(o.cluster.Dir(), "catalog")
	if err := writeCatalog(dir); err != nil {
		return err
	}
	var err error
	if o.address, err = cluster.FreeAddress(ctx); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(o.address)
	if err != nil {
		return err
	}
	return o.run(ctx, "opm", nil, o.assets.OPM, "serve", dir,
		"--port", port,
		"--pprof-addr", "", // else a port that every opm wants
		"--cache-dir", filepath.Join(o.cluster.Dir(), "catalog-cache"), "--cache-enforce-integrity=false",
		"--termination-log", filepath.Join(o.cluster.Dir(), "opm-termination.log"))
}

func (o *OLM) createObjects(ctx context.Context) error {
	for _, object := range []client.Object{
		&operatorsv1.OLMConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		// OLM installs nothing in its own namespace without.
		&operatorsv1.OperatorGroup{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace, Name: "olm-operators"}},
		&operatorsv1alpha1.CatalogSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace, Name: Catalog},
			Spec:       operatorsv1alpha1.CatalogSourceSpec{SourceType: operatorsv1alpha1.SourceTypeGrpc, Address: o.address},
		},
	} {
		if err := o.client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T: %w", object, err)
		}
	}
	return nil
}

func (o *OLM) startOperators(ctx context.Context) error {
	kubeconfig, err := o.writeKubeconfig()
	if err != nil {
		return err
	}
	if err := o.run(ctx, "catalog", nil, o.assets.Catalog, "--namespace", cluster.OLMNamespace, "--kubeconfig", kubeconfig); err != nil {
		return err
	}
	variables := []string{"KUBECONFIG=" + kubeconfig, "OPERATOR_NAME=olm-operator", "OPERATOR_NAMESPACE=" + cluster.OLMNamespace}
	return o.run(ctx, "olm", variables, o.assets.Operator, "--namespace", cluster.OLMNamespace,
		// It logs elsewhere, but leftover processes are told apart by the directory in their arguments.
		"--log_dir", filepath.Join(o.cluster.Dir(), "olm"))
}

// writeKubeconfig returns the path of a file with which OLM's operators are OLM.
func (o *OLM) writeKubeconfig() (string, error) {
	user, err := o.cluster.RESTConfig(cluster.OLM)
	if err != nil {
		return "", err
	}
	const name = "olm"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: user.Host, CertificateAuthorityData: user.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: user.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(o.cluster.Dir(), "olm.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// waitForCatalog waits until OLM says that it is connected to the catalog.
func (o *OLM) waitForCatalog(ctx context.Context) error {
	state := "not known"
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if err := o.Err(); err != nil {
			return false, err
		}
		var source operatorsv1alpha1.CatalogSource
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: cluster.OLMNamespace, Name: Catalog}, &source); err != nil {
			return false, err
		}
		if connection := source.Status.GRPCConnectionState; connection != nil {
			state = connection.LastObservedState
		}
		return state == "READY", nil
	})
	if err != nil {
		return fmt.Errorf("wait for the catalog, whose state is %s: %w", state, err)
	}
	return nil
}
