package olm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
)

// Catalog is the name of the CatalogSource that Start creates, in cluster.OLMNamespace.
const Catalog = "operatorhubio-catalog"

// AddCatalog serves one more catalog, and waits until OLM has connected to its CatalogSource in cluster.OLMNamespace.
func (o *OLM) AddCatalog(ctx context.Context, name string, packages ...Package) (*Server, error) {
	server, err := o.addCatalog(ctx, name, packages)
	if err != nil {
		return nil, fmt.Errorf("add catalog %s: %w", name, err)
	}
	return server, server.Start(ctx)
}

// addCatalog starts a catalog and creates its CatalogSource, which may have to wait for OLM.
func (o *OLM) addCatalog(ctx context.Context, name string, packages []Package) (*Server, error) {
	dir := filepath.Join(o.cluster.Dir(), "catalog-"+name)
	if err := writeCatalog(dir, name, packages); err != nil {
		return nil, err
	}
	o.images.add(name, packages)
	addresses, err := o.cluster.Addresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	server := o.add(&Server{
		name: "catalog " + name,
		launch: func(ctx context.Context) (*cluster.Companion, error) {
			return o.cluster.StartCompanion(ctx, "opm", nil, o.assets.OPM, "serve", dir,
				"--port", port,
				"--pprof-addr", "", // else the same port for every opm
				"--cache-dir", dir+"-cache", "--cache-enforce-integrity=false",
				"--termination-log", dir+"-termination.log")
		},
		notice: func(ctx context.Context, answers bool) error {
			if err := o.waitForCatalog(ctx, name, answers); err != nil || !o.packageServer.runs() {
				return err
			}
			return o.waitForPackages(ctx, name, answers)
		},
	})
	if err := server.run(ctx); err != nil {
		return nil, err
	}
	// OLM connects as soon as there is a CatalogSource.
	return server, o.create(ctx, &operatorsv1alpha1.CatalogSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OLMNamespace, Name: name},
		Spec: operatorsv1alpha1.CatalogSourceSpec{
			SourceType: operatorsv1alpha1.SourceTypeGrpc, Address: addresses[0], DisplayName: name,
			Publisher: "opgate.io",
		},
	})
}

// waitForCatalog waits until OLM reports that it is connected to a catalog, or that it is not.
func (o *OLM) waitForCatalog(ctx context.Context, name string, connected bool) error {
	state := "not known"
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if err := o.Err(); err != nil {
			return false, err
		}
		var source operatorsv1alpha1.CatalogSource
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: cluster.OLMNamespace, Name: name},
			&source); err != nil {
			return false, err
		}
		if connection := source.Status.GRPCConnectionState; connection != nil {
			state = connection.LastObservedState
		}
		return (state == "READY") == connected, nil
	})
	if err != nil {
		return fmt.Errorf("wait for OLM to notice, to whom catalog %s is %s: %w", name, state,
			errors.Join(err, o.Err()))
	}
	return nil
}
