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
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/catalog/cache"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/backstop"
	catalogcontroller "github.com/opgate/opgate/controller/catalogs"
	"github.com/opgate/opgate/controller/clusterversion"
	constraints "github.com/opgate/opgate/controller/constraint"
	"github.com/opgate/opgate/controller/escape"
	"github.com/opgate/opgate/controller/installed"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/operatorpolicy"
	policycontroller "github.com/opgate/opgate/controller/policy"
	"github.com/opgate/opgate/controller/report"
	"github.com/opgate/opgate/controller/resolve"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
	"github.com/opgate/opgate/stream"
)

// addReaders adds what watches the cluster to the manager: the snapshot, what completes policies for it,
// the packages of catalogs, the cluster's version, and the background loop, which they notify.
func addReaders(shutdownContext context.Context, mgr ctrl.Manager, config *rest.Config, client dynamic.Interface, policyVersions <-chan string, store *snapshot.Store, recorder *panics.Recorder, reported *events.Recorder, key func() []byte, user func() string, grants rules.Grants, o *Options, log logr.Logger) (*snapshot.Feed, *cache.Cache, error) {
	var (
		feed     *snapshot.Feed
		resolver *resolve.Resolver
		loop     *operatorpolicy.Controller
		held     *backstop.Controller
	)
	versions, err := clusterversion.New(clusterversion.Options{Config: config, Log: log.WithName("cluster-version"), Changed: func(c state.Cluster) {
		feed.SetCluster(c)
		held.ServerChanged()
	}})
	if err != nil {
		return nil, nil, err
	}
	named := namedMetrics(o)
	writes := apply.NewMetrics(metrics.Registry)
	lease, err := manager.NewLease(config, o.Namespace)
	if err != nil {
		return nil, nil, err
	}
	records := escape.NewRecords(lease, log.WithName("escapes"))
	constraintController, err := constraints.New(constraints.Options{Store: store, Metrics: constraints.NewMetrics(metrics.Registry, named), Writes: writes,
		Escaped: records.ByConstraint, Grants: grants, Log: log.WithName("constraints"), Now: time.Now})
	if err != nil {
		return nil, nil, err
	}
	identity, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("find the name of this replica: %w", err)
	}
	unjudged := append([]string{o.Namespace}, o.ExcludedNamespaces...)
	escapes, err := escape.New(escape.Options{Store: store, Records: records, Mode: escape.Mode(o.Escapes), ExcludedNamespaces: unjudged,
		Metrics: escape.NewMetrics(metrics.Registry), Events: reported, Writes: writes, Log: log.WithName("escapes"), Now: time.Now,
		Changed: func(namespace string) {
			if loop != nil {
				loop.Enqueue(namespace)
			}
			constraintController.Everything()
		}})
	if err != nil {
		return nil, nil, err
	}
	held, err = backstop.New(backstop.Options{Store: store, Mode: backstop.Mode(o.Backstop), OLM: o.OLMIdentity, User: user,
		ApprovalMode: rules.ApprovalMode(o.ApprovalMode), ExcludedNamespaces: unjudged, Metrics: backstop.NewMetrics(metrics.Registry),
		Writes: writes, Events: reported, Log: log.WithName("backstop"), Now: time.Now})
	if err != nil {
		return nil, nil, err
	}
	catalogs := cache.New(cache.Options{Client: client, Log: log.WithName("packages"), Now: time.Now, Changed: func(pkg string) {
		feed.PackageChanged(pkg)
		resolver.PackageChanged(pkg)
		if loop != nil {
			loop.PackageChanged(pkg)
		}
	}})
	streams, err := stream.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	resolver, err = resolve.New(resolve.Options{Config: config, Namespace: o.Namespace, Key: key, Packages: catalogs, DefaultNamespace: o.DefaultNamespace, Log: log.WithName("resolve"),
		Publish: func(key types.NamespacedName, c snapshot.Completion) { feed.Completed(key, c) }})
	if err != nil {
		return nil, nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	changes := contents.New(contents.Options{Source: streams, Watch: contents.Watch(objects, o.CatalogNamespaces), Panics: recorder, Log: log.WithName("contents"), Now: time.Now,
		Changed: func(namespace string) { feed.ContentsChanged(namespace) }})
	var omitted []*snapshot.Kind
	if grants.Missing(rules.GrantDeployments) != "" {
		omitted = append(omitted, snapshot.Deployments)
	}
	feed = snapshot.NewFeed(snapshot.FeedOptions{
		Client: streams, Store: store, Namespace: o.Namespace, Ordering: o.Ordering, Unjudged: unjudged, Completer: resolver, Packages: catalogs, Changes: changes.Get, Panics: recorder,
		Log: log.WithName("snapshot"), Now: time.Now, Interrupted: versions.Refresh,
		PolicyVersions: policyVersions, CatalogNamespaces: o.CatalogNamespaces, Omitted: omitted,
		MaxStaleness: o.MaxStaleness,
	})
	runnables := []ctrlmanager.Runnable{catalogs, changes, resolver, feed, versions}
	policyMetrics, leaderMetrics := operatorpolicy.NewMetrics(metrics.Registry, named), manager.NewMetrics(metrics.Registry)
	var controllers []manager.Controller
	lead := func() {} // the backstop needs none of the kinds that only the leader reads
	if o.BackgroundLoop {
		lead = feed.Lead
		if !o.externalDefinition() { // else the owner of the definition acts on policies
			loop, err = operatorpolicy.New(operatorpolicy.Options{
				Store: store, Packages: catalogs, Metrics: policyMetrics, Writes: writes, Events: reported, Escaped: records.ByPolicy, Identity: identity,
				Ungoverned: rules.UngovernedMode(o.Ungoverned), Grants: grants, HistoryLength: o.StatusHistoryLength, Log: log.WithName("loop"), Now: time.Now,
			})
			if err != nil {
				return nil, nil, err
			}
		}
		compared, err := catalogcontroller.New(catalogcontroller.Options{Store: store, Client: streams, Namespace: o.Namespace, Writes: writes,
			Log: log.WithName("catalogs"), Now: time.Now})
		if err != nil {
			return nil, nil, err
		}
		if loop != nil {
			controllers = append(controllers, loop)
		}
		recorded, err := installed.New(installed.Options{Store: store, Namespace: o.Namespace, Writes: writes, Log: log.WithName("installed")})
		if err != nil {
			return nil, nil, err
		}
		controllers = append(controllers, recorded, constraintController, escapes, compared)
		if o.Reports {
			reports, err := report.New(report.Options{Store: store, Writes: writes, Log: log.WithName("reports"), Now: time.Now})
			if err != nil {
				return nil, nil, err
			}
			controllers = append(controllers, reports)
		}
		if o.Ordering {
			ordered, err := policycontroller.New(policycontroller.Options{
				Store: store, PendingGuards: dependency.PendingGuards(o.PendingGuards), Gatekeeper: o.GatekeeperTemplates, Grants: grants, ExcludedNamespaces: unjudged, Key: key,
				Metrics: policycontroller.NewMetrics(metrics.Registry), Writes: writes, Identity: identity, Log: log.WithName("ordering"), Now: time.Now,
			})
			if err != nil {
				return nil, nil, err
			}
			controllers = append(controllers, ordered)
		}
	}
	if mode := backstop.Mode(o.Backstop); mode != backstop.Compiled && (o.BackgroundLoop || mode != backstop.Off) { // with the loop, off deletes what was written before
		controllers = append(controllers, held)
	}
	if len(controllers) > 0 {
		leader, err := manager.New(manager.Options{Config: config, Store: store, Lease: lease, Identity: identity, Lead: lead,
			Metrics: leaderMetrics, Controllers: controllers, Log: log.WithName("loop"), Now: time.Now})
		if err != nil {
			return nil, nil, err
		}
		runnables = append(runnables, untilShutdown{leader, shutdownContext})
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return nil, nil, fmt.Errorf("add %T: %w", r, err)
		}
	}
	return feed, catalogs, nil
}

// patient makes watches last six times as long as their clients request, which is half an hour and more
// instead of five minutes and more. Those that are asked for less show by their end that they progress.
type patient struct{ next http.RoundTripper }

// leastPatience is the shortest watch that client-go requests by itself, in seconds.
const leastPatience = 300

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil || query.Get("watch") == "" || seconds < leastPatience {
		return p.next.RoundTrip(req)
	}
	query.Set("timeoutSeconds", strconv.Itoa(6*seconds))
	longer := req.Clone(req.Context())
	longer.URL = &url.URL{}
	*longer.URL = *req.URL
	longer.URL.RawQuery = query.Encode()
	return p.next.RoundTrip(longer)
}
