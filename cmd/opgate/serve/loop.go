package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/catalog/cache"
	"github.com/opgate/opgate/controller/clusterversion"
	constraints "github.com/opgate/opgate/controller/constraint"
	"github.com/opgate/opgate/controller/escape"
	"github.com/opgate/opgate/controller/operatorpolicy"
	policycontroller "github.com/opgate/opgate/controller/policy"
	"github.com/opgate/opgate/controller/resolve"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// addReaders adds what watches the cluster to the manager: the snapshot, what completes policies for it,
// the packages of catalogs, the cluster's version, and the background loop, which they notify.
func addReaders(shutdownContext context.Context, mgr manager.Manager, config *rest.Config, client dynamic.Interface, store *snapshot.Store, recorder *panics.Recorder, key func() []byte, o *Options, log logr.Logger) (*snapshot.Feed, *cache.Cache, error) {
	var (
		feed     *snapshot.Feed
		resolver *resolve.Resolver
		loop     *operatorpolicy.Loop
	)
	versions, err := clusterversion.New(clusterversion.Options{Config: config, Log: log.WithName("cluster-version"), Changed: func(c constraint.Cluster) { feed.SetCluster(c) }})
	if err != nil {
		return nil, nil, err
	}
	named := namedMetrics(o)
	loopMetrics := operatorpolicy.NewMetrics(metrics.Registry, named)
	lease, err := escape.NewLease(config, o.Namespace, operatorpolicy.LeaseName, log.WithName("escapes"))
	if err != nil {
		return nil, nil, err
	}
	constraintController, err := constraints.New(constraints.Options{Store: store, Metrics: constraints.NewMetrics(metrics.Registry, named), Wrote: loopMetrics.Wrote,
		Escaped: lease.Records().ByConstraint, Log: log.WithName("constraints"), Now: time.Now})
	if err != nil {
		return nil, nil, err
	}
	identity, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("find the name of this replica: %w", err)
	}
	unjudged := append([]string{o.Namespace}, o.ExcludedNamespaces...)
	escapes, err := escape.New(escape.Options{Store: store, Lease: lease, Mode: escape.Mode(o.Escapes), ExcludedNamespaces: unjudged,
		Metrics: escape.NewMetrics(metrics.Registry), Identity: identity, Wrote: loopMetrics.Wrote, Log: log.WithName("escapes"), Now: time.Now,
		Changed: func(namespace string) {
			loop.Enqueue(namespace)
			constraintController.Everything()
		}})
	if err != nil {
		return nil, nil, err
	}
	catalogs := cache.New(cache.Options{Client: client, Log: log.WithName("packages"), Now: time.Now, Changed: func(pkg string) {
		resolver.PackageChanged(pkg)
		if loop != nil {
			loop.PackageChanged(pkg)
		}
	}})
	streams, err := stream.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	resolver, err = resolve.New(resolve.Options{Config: config, Packages: catalogs, DefaultNamespace: o.DefaultNamespace, Log: log.WithName("resolve"),
		Publish: func(key types.NamespacedName, c snapshot.Completion) { feed.Completed(key, c) }})
	if err != nil {
		return nil, nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	feed = snapshot.NewFeed(snapshot.FeedOptions{
		Client: streams, Store: store, Ordering: o.Ordering, Unjudged: unjudged, Completer: resolver, Panics: recorder, Log: log.WithName("snapshot"), Now: time.Now,
		Interrupted: versions.Refresh,
	})
	runnables := []manager.Runnable{catalogs, resolver, feed, versions}
	if o.BackgroundLoop {
		also := []operatorpolicy.Companion{constraintController, escapes}
		if o.Ordering {
			policyController, err := newPolicyController(store, o, key, unjudged, identity, loopMetrics, log)
			if err != nil {
				return nil, nil, err
			}
			also = append(also, policyController)
		}
		loop, err = operatorpolicy.New(operatorpolicy.Options{
			Config: config, Store: store, Lead: feed.Lead, Packages: catalogs, Metrics: loopMetrics,
			Also: also, Lock: func() resourcelock.Interface { return lease.Lock(identity) }, Escaped: lease.Records().ByPolicy, Identity: identity, Ungoverned: rules.UngovernedMode(o.Ungoverned),
			HistoryLength: o.StatusHistoryLength, Log: log.WithName("loop"), Now: time.Now,
		})
		if err != nil {
			return nil, nil, err
		}
		runnables = append(runnables, untilShutdown{loop, shutdownContext})
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return nil, nil, fmt.Errorf("add %T: %w", r, err)
		}
	}
	return feed, catalogs, nil
}

// newPolicyController returns the controller of Policies and PolicySets.
func newPolicyController(store *snapshot.Store, o *Options, key func() []byte, excluded []string, identity string, written *operatorpolicy.Metrics, log logr.Logger) (*policycontroller.Controller, error) {
	return policycontroller.New(policycontroller.Options{
		Store: store, PendingGuards: dependency.PendingGuards(o.PendingGuards), Gatekeeper: o.GatekeeperTemplates, ExcludedNamespaces: excluded, Key: key,
		Metrics: policycontroller.NewMetrics(metrics.Registry), Wrote: written.Wrote, Identity: identity, Log: log.WithName("ordering"), Now: time.Now,
	})
}

// patient makes watches last six times as long as their clients request, which is half an hour and more
// instead of five minutes and more: at rest, restarting watches causes all requests.
type patient struct{ next http.RoundTripper }

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil || query.Get("watch") == "" {
		return p.next.RoundTrip(req)
	}
	query.Set("timeoutSeconds", strconv.Itoa(6*seconds))
	longer := req.Clone(req.Context())
	longer.URL = &url.URL{}
	*longer.URL = *req.URL
	longer.URL.RawQuery = query.Encode()
	return p.next.RoundTrip(longer)
}
