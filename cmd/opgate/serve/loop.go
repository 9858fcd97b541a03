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
	"github.com/opgate/opgate/controller/operatorpolicy"
	"github.com/opgate/opgate/controller/packages"
	"github.com/opgate/opgate/controller/resolve"
	"github.com/opgate/opgate/rules"
)

// addReaders wires what follows the cluster into the manager: the snapshot, what completes policies for it,
// what catalogs say of packages, and the background loop, which they wake.
func addReaders(told context.Context, mgr manager.Manager, config *rest.Config, client dynamic.Interface, store *admission.Store, o *Options, log logr.Logger) (*admission.Feed, error) {
	var (
		changes  operatorpolicy.Changes
		feed     *admission.Feed
		resolver *resolve.Resolver
		loop     *operatorpolicy.Loop
	)
	catalogs := packages.New(packages.Options{Client: client, Log: log.WithName("packages"), Now: time.Now, Changed: func(pkg string) {
		resolver.PackageChanged(pkg)
		if loop != nil {
			loop.PackageChanged(pkg)
		}
	}})
	resolver, err := resolve.New(resolve.Options{Config: config, Packages: catalogs, DefaultNamespace: o.DefaultNamespace, Log: log.WithName("resolve"),
		Publish: func(key types.NamespacedName, r resolve.Resolution) { feed.Completed(key, admission.Completion(r)) }})
	if err != nil {
		return nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	feed = admission.NewFeed(admission.FeedOptions{Client: client, Store: store, Completer: resolver, Changed: changes.Namespaces, Log: log.WithName("snapshot"), Now: time.Now})
	runnables := []manager.Runnable{catalogs, resolver, feed}
	if o.BackgroundLoop {
		identity, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the name of this replica: %w", err)
		}
		loop, err = operatorpolicy.New(operatorpolicy.Options{
			Config: config, Store: store, Changes: &changes, Packages: catalogs, Metrics: operatorpolicy.NewMetrics(metrics.Registry),
			LeaderElectionNamespace: o.Namespace, Identity: identity, Ungoverned: rules.UngovernedMode(o.Ungoverned),
			HistoryLength: o.StatusHistoryLength, Log: log.WithName("loop"), Now: time.Now,
		})
		if err != nil {
			return nil, err
		}
		runnables = append(runnables, untilTold{loop, told})
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return nil, fmt.Errorf("add %T: %w", r, err)
		}
	}
	return feed, nil
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
