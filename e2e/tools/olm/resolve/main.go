// Command resolve prints the versions that OLM's own resolver takes operators through, for the tests of `opgate plan`. It
// reads questions as JSON from standard input, and prints the answers in their order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	listers "github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/listers/operators/v1alpha1"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry/resolver"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry/resolver/cache"
	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/client"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcache "k8s.io/client-go/tools/cache"
)

// question is what a catalog serves of a package, and a Subscription.
type question struct {
	Bundles                          []*api.Bundle
	DefaultChannel, Package, Channel string
	// From is what is installed, and Version its version; both are empty if nothing is.
	From, Version string
}

const namespace = "shop"

var catalogKey = cache.SourceKey{Namespace: namespace, Name: "catalog"}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var questions []question
	if err := json.NewDecoder(in).Decode(&questions); err != nil {
		return err
	}
	answers := make([]string, len(questions))
	for i, q := range questions {
		steps, err := q.answer()
		if err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		answers[i] = strings.Join(steps, " ")
	}
	return json.NewEncoder(out).Encode(answers)
}

// answer returns the versions in their order, and "error" where OLM resolves nothing in the namespace.
func (q *question) answer() (steps []string, err error) {
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	catalogs := clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc,
		clientcache.Indexers{clientcache.NamespaceIndex: clientcache.MetaNamespaceIndexFunc})
	err = catalogs.Add(&v1alpha1.CatalogSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: catalogKey.Name}})
	if err != nil {
		return nil, err
	}
	served := resolver.SourceProviderFromRegistryClientProvider(&registryClient{question: q},
		listers.NewCatalogSourceLister(catalogs), logger).Sources(namespace)[catalogKey]
	for range 100 {
		next, err := q.next(served, logger)
		switch {
		case err != nil:
			return append(steps, "error"), nil
		case next == nil || next.Name == q.From: // the Subscription is up to date
			return steps, nil
		}
		steps = append(steps, next.Name)
		q.From, q.Version = next.Name, next.Version.String()
	}
	return nil, errors.New("it goes round")
}

func (q *question) next(served cache.Source, logger logrus.FieldLogger) (*cache.Entry, error) {
	sub := &v1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: q.Package},
		Spec: &v1alpha1.SubscriptionSpec{Package: q.Package, Channel: q.Channel, CatalogSource: catalogKey.Name,
			CatalogSourceNamespace: namespace}}
	installed, own := &cache.Snapshot{Valid: cache.ValidOnce()}, cache.NewVirtualSourceKey(namespace)
	if q.From != "" {
		version, err := semver.Parse(q.Version)
		if err != nil {
			return nil, err
		}
		sub.Status.InstalledCSV, sub.Status.CurrentCSV = q.From, q.From
		entry := &cache.Entry{Name: q.From, Version: &version,
			SourceInfo: &cache.OperatorSourceInfo{Catalog: own, Package: q.Package, Subscription: sub}}
		resolver.EnsurePackageProperty(entry, q.Package, q.Version)
		installed.Entries = append(installed.Entries, entry)
	}
	found, err := resolver.NewDefaultResolver(cache.New(cache.StaticSourceProvider{catalogKey: served, own: installed}), logger).
		Resolve([]string{namespace}, []*v1alpha1.Subscription{sub})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%d versions are resolved, want one", len(found))
	}
	return found[0], nil
}

// registryClient answers as opm does.
type registryClient struct {
	client.Interface
	*question
}

// ClientsForNamespaces implements resolver.RegistryClientProvider.
func (c *registryClient) ClientsForNamespaces(...string) map[registry.CatalogKey]client.Interface {
	return map[registry.CatalogKey]client.Interface{{Namespace: namespace, Name: catalogKey.Name}: c}
}

// GetPackage implements client.Interface.
func (c *registryClient) GetPackage(_ context.Context, name string) (*api.Package, error) {
	return &api.Package{Name: name, DefaultChannelName: c.DefaultChannel}, nil
}

// ListBundles implements client.Interface.
func (c *registryClient) ListBundles(context.Context) (*client.BundleIterator, error) {
	return client.NewBundleIterator(&bundles{left: c.Bundles}), nil
}

// bundles are a stream.
type bundles struct{ left []*api.Bundle }

// Recv implements client.BundleStream.
func (b *bundles) Recv() (*api.Bundle, error) {
	if len(b.left) == 0 {
		return nil, io.EOF
	}
	next := b.left[0]
	b.left = b.left[1:]
	return next, nil
}
