// Package olm runs the real Operator Lifecycle Manager, with a catalog of its own, on a cluster without nodes.
package olm

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// readyTimeout bounds the time until OLM, or the API server, has noticed that a server answers, or no longer does.
	// It takes seconds.
	readyTimeout = speed.LongWait
	pollInterval = 100 * time.Millisecond
)

// Options configure Start. The zero value is useful.
type Options struct {
	// Assets are the binaries to run. Default: what assets.FindOLM returns.
	Assets assets.OLM
	// Packages are what the catalog offers. Default: what the function of that name returns.
	Packages []Package
	// WithoutPackageServer leaves PackageManifests unregistered in the API server.
	WithoutPackageServer bool
	// Node is whether a node runs the pods of operators. Default: every Deployment has the status that its Package
	// states.
	Node bool
	// Log receives progress lines. Default: none.
	Log io.Writer
}

// OLM is a running OLM. Its methods may be called from several goroutines.
type OLM struct {
	cluster       *cluster.Cluster
	assets        assets.OLM
	log           io.Writer
	client        client.Client
	clientset     kubernetes.Interface
	images        images
	services      *services
	kubelet       *kubelet
	catalog       *Server
	operator      *Server
	installer     *Server
	packageServer *Server
	stop          func() error

	mu      sync.Mutex
	servers []*Server // in the order in which they were added
}

// Start serves a catalog, starts OLM's two operators and its package server as the service account that OLM has on a
// real cluster, and waits until they have read the catalog. The caller must call Stop, before that of the cluster; ctx
// bounds only the start.
//
// Both operators bind port 8080 of every interface for their metrics, whatever their flags. The second one logs the
// error and continues, so that several OLMs may run on one machine.
func Start(ctx context.Context, c *cluster.Cluster, opts Options) (*OLM, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Packages == nil {
		opts.Packages = Packages()
	}
	if opts.Assets == (assets.OLM{}) {
		var err error
		if opts.Assets, err = assets.FindOLM(ctx, assets.Options{Log: opts.Log}); err != nil {
			return nil, err
		}
	}
	o := &OLM{cluster: c, assets: opts.Assets, log: opts.Log}
	o.stop = sync.OnceValue(o.stopAll)
	if err := o.start(ctx, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start OLM: %w", err), o.Stop())
	}
	return o, nil
}

func (o *OLM) start(ctx context.Context, opts Options) error {
	watch := stopwatch.Start()
	fmt.Fprintln(o.log, "starting OLM")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, operatorsv1.AddToScheme,
		operatorsv1alpha1.AddToScheme} {
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
	if o.clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if o.kubelet, err = startKubelet(ctx, config, &o.images, opts.Node, o.log); err != nil {
		return err
	}
	if o.services, err = startServices(ctx); err != nil {
		return err
	}
	kubeconfig, err := o.writeKubeconfig()
	if err != nil {
		return err
	}
	if o.packageServer, err = o.newPackageServer(ctx, kubeconfig); err != nil {
		return err
	}
	first := &catalog{olm: o, namespace: cluster.OLMNamespace, name: Catalog}
	if err := first.add(ctx, opts.Packages); err != nil {
		return err
	}
	o.catalog = first.server
	err = o.create(ctx,
		&operatorsv1.OLMConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		// OLM installs nothing in its own namespace without.
		&operatorsv1.OperatorGroup{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace,
			Name: "olm-operators"}},
	)
	if err != nil {
		return err
	}
	if err := o.startOperators(ctx, kubeconfig); err != nil {
		return err
	}
	if !opts.WithoutPackageServer {
		if err := o.packageServer.Start(ctx); err != nil {
			return err
		}
	}
	if err := o.catalog.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(o.log, "OLM is ready after %s\n", watch)
	return nil
}

// Stop stops every process. Calling it again does nothing.
func (o *OLM) Stop() error { return o.stop() }

func (o *OLM) stopAll() error {
	var errs []error
	for _, server := range slices.Backward(o.all()) {
		errs = append(errs, server.end())
	}
	if o.kubelet != nil {
		o.kubelet.stop()
	}
	if o.services != nil {
		o.services.stop()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop OLM: %w", err)
	}
	return nil
}

// Err returns an error when one of the processes has ended by itself.
func (o *OLM) Err() error {
	var errs []error
	for _, server := range o.all() {
		errs = append(errs, server.err())
	}
	return errors.Join(errs...)
}

// Wait returns an error when one of the processes has ended by itself, and nil when ctx ends.
func (o *OLM) Wait(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := o.Err(); err != nil {
				return err
			}
		}
	}
}

// Logs are the files that the processes log to.
func (o *OLM) Logs() []string {
	var logs []string
	for _, server := range o.all() {
		logs = append(logs, server.logPaths()...)
	}
	return logs
}

// Version is the version of OLM's module, such as v0.42.0.
func (o *OLM) Version() (string, error) {
	info, err := buildinfo.ReadFile(o.assets.Catalog)
	if err != nil {
		return "", fmt.Errorf("read the version of OLM: %w", err)
	}
	return info.Main.Version, nil
}

// CatalogOperator is OLM's operator that makes plans and writes their steps.
func (o *OLM) CatalogOperator() *Server { return o.operator }

// Operators are OLM's two operators: CatalogOperator, and the one that installs.
func (o *OLM) Operators() []*Server { return []*Server{o.operator, o.installer} }

// add adds a server to those that Stop stops.
func (o *OLM) add(server *Server) *Server {
	o.mu.Lock()
	defer o.mu.Unlock()
	server.log = o.log
	o.servers = append(o.servers, server)
	return server
}

func (o *OLM) all() []*Server {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.servers)
}

// create creates the objects that do not exist.
func (o *OLM) create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := o.client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T: %w", object, err)
		}
	}
	return nil
}

func (o *OLM) startOperators(ctx context.Context, kubeconfig string) error {
	o.operator = &Server{
		name: "the catalog operator",
		launch: func(ctx context.Context) (*cluster.Companion, error) {
			return o.cluster.StartCompanion(ctx, "catalog", o.services.variables(), o.assets.Catalog,
				"--namespace", cluster.OLMNamespace, "--kubeconfig", kubeconfig)
		},
		notice: func(context.Context, bool) error { return nil }, // it writes nothing before it works
	}
	o.installer = &Server{
		name: "the OLM operator",
		launch: func(ctx context.Context) (*cluster.Companion, error) {
			variables := []string{"KUBECONFIG=" + kubeconfig, "OPERATOR_NAME=olm-operator",
				"OPERATOR_NAMESPACE=" + cluster.OLMNamespace}
			return o.cluster.StartCompanion(ctx, "olm", variables, o.assets.Operator, "--namespace",
				cluster.OLMNamespace,
				// No namespace has that name, but leftover processes are distinguished by the directory in their
				// arguments.
				"--protectedCopiedCSVNamespaces", filepath.Join(o.cluster.Dir(), "olm"))
		},
		notice: func(context.Context, bool) error { return nil }, // as above
	}
	for _, operator := range o.Operators() {
		if err := o.add(operator).run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig returns the path of a kubeconfig for OLM's user.
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
