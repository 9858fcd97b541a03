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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	constraints "github.com/opgate/opgate/controller/constraint"
	"github.com/opgate/opgate/controller/facts"
	"github.com/opgate/opgate/controller/operatorpolicy"
	order "github.com/opgate/opgate/controller/ordering"
	"github.com/opgate/opgate/controller/packages"
	"github.com/opgate/opgate/controller/resolve"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/ordering"
)

// addReaders wires what follows the cluster into the manager: the snapshot, what completes policies for it,
// what catalogs say of packages, what kind of cluster it is, and the background loop, which they wake.
func addReaders(told context.Context, mgr manager.Manager, config *rest.Config, client dynamic.Interface, store *admission.Store, o *Options, log logr.Logger) (*admission.Feed, *packages.Cache, error) {
	var (
		changes  operatorpolicy.Changes
		feed     *admission.Feed
		resolver *resolve.Resolver
		loop     *operatorpolicy.Loop
	)
	versions, err := facts.New(facts.Options{Config: config, Log: log.WithName("facts"), Changed: func(c constraint.Cluster) { feed.SetCluster(c) }})
	if err != nil {
		return nil, nil, err
	}
	loopMetrics := operatorpolicy.NewMetrics(metrics.Registry)
	guards, err := constraints.New(constraints.Options{Store: store, Metrics: constraints.NewMetrics(metrics.Registry), Wrote: loopMetrics.Wrote,
		Log: log.WithName("constraints"), Now: time.Now})
	if err != nil {
		return nil, nil, err
	}
	catalogs := packages.New(packages.Options{Client: client, Log: log.WithName("packages"), Now: time.Now, Changed: func(pkg string) {
		resolver.PackageChanged(pkg)
		if loop != nil {
			loop.PackageChanged(pkg)
		}
	}})
	resolver, err = resolve.New(resolve.Options{Config: config, Packages: catalogs, DefaultNamespace: o.DefaultNamespace, Log: log.WithName("resolve"),
		Publish: func(key types.NamespacedName, r resolve.Resolution) { feed.Completed(key, admission.Completion(r)) }})
	if err != nil {
		return nil, nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	unjudged := append([]string{o.Namespace}, o.ExcludedNamespaces...)
	feed = admission.NewFeed(admission.FeedOptions{
		Client: client, Store: store, Ordering: o.Ordering, Unjudged: unjudged, Completer: resolver, Log: log.WithName("snapshot"), Now: time.Now,
		Changed: func(namespaces []string) {
			changes.Namespaces(namespaces)
			guards.Namespaces(namespaces)
		},
		ConstraintsChanged: guards.Changed,
		Interrupted:        versions.Refresh,
	})
	runnables := []manager.Runnable{catalogs, resolver, feed, versions}
	if o.BackgroundLoop {
		identity, err := os.Hostname()
		if err != nil {
			return nil, nil, fmt.Errorf("find the name of this replica: %w", err)
		}
		also := []operatorpolicy.Companion{guards}
		if o.Ordering {
			ordered, err := orderController(o, unjudged, identity, loopMetrics, log)
			if err != nil {
				return nil, nil, err
			}
			also = append(also, ordered)
		}
		loop, err = operatorpolicy.New(operatorpolicy.Options{
			Config: config, Store: store, Changes: &changes, Packages: catalogs, Metrics: loopMetrics,
			Also: also, LeaderElectionNamespace: o.Namespace, Identity: identity, Ungoverned: rules.UngovernedMode(o.Ungoverned),
			HistoryLength: o.StatusHistoryLength, Log: log.WithName("loop"), Now: time.Now,
		})
		if err != nil {
			return nil, nil, err
		}
		runnables = append(runnables, untilTold{loop, told})
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return nil, nil, fmt.Errorf("add %T: %w", r, err)
		}
	}
	return feed, catalogs, nil
}

// orderController makes what looks after Policies and PolicySets.
func orderController(o *Options, excluded []string, identity string, written *operatorpolicy.Metrics, log logr.Logger) (*order.Controller, error) {
	return order.New(order.Options{
		PendingGuards: ordering.PendingGuards(o.PendingGuards), Gatekeeper: o.GatekeeperTemplates, ExcludedNamespaces: excluded,
		Metrics: order.NewMetrics(metrics.Registry), Wrote: written.Wrote, Identity: identity, Log: log.WithName("ordering"), Now: time.Now,
	})
}

// patient makes watches last six times as long as their clients ask for, which is half an hour and more
// instead of five minutes and more: at rest, starting watches again is all that there is to send.
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
