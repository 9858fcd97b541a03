package olm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Catalog is the name of the CatalogSource that Start creates, in cluster.OLMNamespace.
const Catalog = "operatorhubio-catalog"

// imageServer is the container of a catalog's pod, as OLM calls it, and servicePort the port of its Service.
const (
	imageServer = "registry-server"
	servicePort = "50051"
)

// AddCatalog serves one more catalog at an address, and waits until OLM has connected to its CatalogSource in
// cluster.OLMNamespace.
func (o *OLM) AddCatalog(ctx context.Context, name string, packages ...Package) (*Server, error) {
	c := &catalog{olm: o, namespace: cluster.OLMNamespace, name: name}
	if err := c.add(ctx, packages); err != nil {
		return nil, fmt.Errorf("add catalog %s: %w", name, err)
	}
	return c.server, c.server.Start(ctx)
}

// ImageCatalog is a catalog that OLM runs from an image, by a tag.
type ImageCatalog struct{ catalog *catalog }

// AddImageCatalog serves one more catalog as an image, and waits until OLM has made a pod of it, for its CatalogSource
// in a namespace, and has connected to the Service of that. It does not work where a node runs pods.
func (o *OLM) AddImageCatalog(ctx context.Context, namespace, name string, packages ...Package) (*ImageCatalog, error) {
	c := &catalog{olm: o, namespace: namespace, name: name,
		image: "registry.invalid/" + namespace + "/" + name + ":latest"}
	if err := c.add(ctx, packages); err != nil {
		return nil, fmt.Errorf("add catalog %s: %w", name, err)
	}
	return &ImageCatalog{catalog: c}, c.server.Start(ctx)
}

// Move lets the tag point to another image, with other packages, and ends the pods that run the old one, as a node does
// that is drained. OLM makes a new pod.
func (c *ImageCatalog) Move(ctx context.Context, packages ...Package) error {
	if err := c.catalog.server.end(); err != nil {
		return err
	}
	if err := c.catalog.write(packages); err != nil {
		return err
	}
	if err := c.catalog.server.run(ctx); err != nil {
		return err
	}
	return c.catalog.olm.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(c.catalog.namespace),
		client.MatchingLabels{"olm.catalogSource": c.catalog.name})
}

// catalog is what one server serves, and the CatalogSource by which OLM knows it.
type catalog struct {
	olm             *OLM
	namespace, name string
	// image is the reference that OLM runs it from; "" if OLM connects to the address of the server.
	image string
	// dir is what it serves; each content has its own.
	dir     string
	written int
	server  *Server
}

// add starts the server and creates the CatalogSource, which may have to wait for OLM.
func (c *catalog) add(ctx context.Context, packages []Package) error {
	if err := c.write(packages); err != nil {
		return err
	}
	addresses, err := c.olm.cluster.Addresses(ctx, 1)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return err
	}
	spec := operatorsv1alpha1.CatalogSourceSpec{SourceType: operatorsv1alpha1.SourceTypeGrpc, Image: c.image,
		DisplayName: c.name, Publisher: "opgate.io"}
	if c.image == "" {
		spec.Address = addresses[0]
	} else {
		c.olm.services.add(net.JoinHostPort(c.name+"."+c.namespace+".svc", servicePort), addresses[0])
	}
	c.server = c.olm.add(&Server{
		name:  "catalog " + c.name,
		write: c.write,
		launch: func(ctx context.Context) (*cluster.Companion, error) {
			return c.olm.cluster.StartCompanion(ctx, "opm", nil, c.olm.assets.OPM, "serve", c.dir,
				"--port", port,
				"--pprof-addr", "", // else the same port for every opm
				"--cache-dir", c.dir+"-cache", "--cache-enforce-integrity=false",
				"--termination-log", c.dir+"-termination.log")
		},
		notice: func(ctx context.Context, answers bool) error {
			if err := c.waitFor(ctx, answers); err != nil || !c.olm.packageServer.runs() {
				return err
			}
			return c.olm.waitForPackages(ctx, c.namespace, c.name, answers)
		},
	})
	if err := c.server.run(ctx); err != nil {
		return err
	}
	// OLM connects as soon as there is a CatalogSource.
	return c.olm.create(ctx, &operatorsv1alpha1.CatalogSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}, Spec: spec,
	})
}

// write makes packages what the server serves from its next start on, and what the image contains.
func (c *catalog) write(packages []Package) error {
	c.written++
	c.dir = filepath.Join(c.olm.cluster.Dir(), fmt.Sprintf("catalog-%s-%s-%d", c.namespace, c.name, c.written))
	digest, err := writeCatalog(c.dir, c.name, packages)
	if err != nil {
		return err
	}
	c.olm.images.add(c.name, packages)
	if c.image != "" {
		c.olm.images.tag(c.image, digest)
	}
	return nil
}

// waitFor waits until OLM reports that it is connected to the catalog, or that it is not.
func (c *catalog) waitFor(ctx context.Context, connected bool) error {
	o, state := c.olm, "not known"
	err := speed.Poll(ctx, pollInterval, readyTimeout, func(ctx context.Context) (bool, error) {
		if err := o.Err(); err != nil {
			return false, err
		}
		var source operatorsv1alpha1.CatalogSource
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, &source); err != nil {
			return false, err
		}
		if connection := source.Status.GRPCConnectionState; connection != nil {
			state = connection.LastObservedState
		}
		return (state == "READY") == connected, nil
	})
	if err != nil {
		return fmt.Errorf("wait for OLM to notice, to whom catalog %s is %s: %w", c.name, state,
			errors.Join(err, o.Err()))
	}
	return nil
}
