package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/client-go/metadata"

	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/clusterversion"
	"github.com/opgate/opgate/snapshot/contents"
	"github.com/opgate/opgate/snapshot/packages"
	"github.com/opgate/opgate/snapshot/templates"
	"github.com/opgate/opgate/stream"
)

// addReaders adds what watches the cluster on every replica: the feed of the snapshot, and what completes the snapshot,
// which passes on what it finds to the feed.
func (p *process) addReaders(policyVersions <-chan string) (*snapshot.Feed, *packages.Cache, error) {
	streams, err := stream.NewForConfig(p.config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	objects, err := metadata.NewForConfig(p.config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	var omitted []*snapshot.Kind
	if p.grants.Missing(grant.Deployments) != "" {
		omitted = append(omitted, snapshot.Deployments)
	}
	if p.grants.Missing(grant.ClusterExtensions) != "" {
		omitted = append(omitted, snapshot.ClusterExtensions, snapshot.ClusterObjectSets)
	}
	o := p.options
	feed := snapshot.NewFeed(snapshot.FeedOptions{
		Client: streams, Store: p.store, Namespace: o.Namespace, Ordering: o.Ordering, Unjudged: p.unjudged(),
		PolicyVersions: policyVersions, CatalogNamespaces: o.CatalogNamespaces, Omitted: omitted,
		MaxStaleness: o.MaxStaleness,
		Panics:       p.panics, Log: p.log.WithName("snapshot"), Now: p.now,
	})
	versions, err := clusterversion.New(clusterversion.Options{Config: p.config, Changed: feed.SetCluster,
		Log: p.log.WithName("cluster-version")})
	if err != nil {
		return nil, nil, err
	}
	catalogs := packages.New(packages.Options{Client: p.client, Changed: feed.PackageChanged,
		Log: p.log.WithName("packages"), Now: p.now})
	resolver, err := templates.New(templates.Options{Config: p.config, Namespace: o.Namespace, Key: p.key.Key,
		Packages: catalogs, DefaultNamespace: o.DefaultNamespace, Publish: feed.Completed,
		Log: p.log.WithName("resolve")})
	if err != nil {
		return nil, nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	changes := contents.New(contents.Options{Source: streams, Watch: contents.Watch(objects, o.CatalogNamespaces),
		Changed: feed.ContentsChanged, Panics: p.panics, Log: p.log.WithName("contents"), Now: p.now})
	feed.Completer, feed.Packages, feed.Changes, feed.Interrupted = resolver, catalogs, changes.Get, versions.Refresh
	return feed, catalogs, p.add(catalogs, changes, resolver, feed, versions)
}

// longWatches makes watches last six times as long as their clients request, which is half an hour and more
// instead of five minutes and more. Those that are asked for less show by their end that they progress.
type longWatches struct{ next http.RoundTripper }

// leastTimeout is the shortest watch that client-go requests by itself, in seconds.
const leastTimeout = 300

func (p longWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil || query.Get("watch") == "" || seconds < leastTimeout {
		return p.next.RoundTrip(req)
	}
	query.Set("timeoutSeconds", strconv.Itoa(6*seconds))
	longer := req.Clone(req.Context())
	longer.URL = &url.URL{}
	*longer.URL = *req.URL
	longer.URL.RawQuery = query.Encode()
	return p.next.RoundTrip(longer)
}
