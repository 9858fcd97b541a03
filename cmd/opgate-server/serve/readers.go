package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/admission/olmidentity"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/clusterversion"
	"github.com/opgate/opgate/snapshot/contents"
	"github.com/opgate/opgate/snapshot/definition"
	"github.com/opgate/opgate/snapshot/packages"
	"github.com/opgate/opgate/snapshot/templates"
)

// addReaders adds what watches the cluster on every replica: the feed of the snapshot, and what passes on more to it.
func (p *process) addReaders(policyVersions <-chan string) (*snapshot.Feed, *packages.Cache, error) {
	var omitted []*snapshot.Kind
	if p.grants.Missing(grant.Deployments) != "" {
		omitted = append(omitted, snapshot.Deployments)
	}
	if p.grants.Missing(grant.ClusterExtensions) != "" {
		omitted = append(omitted, snapshot.ClusterExtensions, snapshot.ClusterObjectSets)
	}
	o := p.options
	feed := snapshot.NewFeed(snapshot.FeedOptions{
		Client: p.streams, Store: p.store, Namespace: o.Namespace, Ordering: o.Ordering,
		Builder:        snapshot.Builder{Unjudged: p.unjudged(), CatalogNamespaces: o.CatalogNamespaces},
		PolicyVersions: policyVersions, Omitted: omitted, MaxStaleness: o.MaxStaleness,
		Panics: p.panics, Log: p.log.WithName("snapshot"), Now: p.now,
	})
	versions := clusterversion.New(clusterversion.Options{Config: p.config, Changed: feed.SetCluster,
		Log: p.log.WithName("cluster-version")})
	catalogs := packages.New(packages.Options{Client: p.dynamic, Changed: feed.PackageChanged,
		Log: p.log.WithName("packages"), Now: p.now})
	resolver, err := templates.New(templates.Options{Config: p.config, Namespace: o.Namespace, Key: p.key.Key,
		Package: catalogs.Get, DefaultNamespace: o.DefaultNamespace, Publish: feed.Completed})
	if err != nil {
		return nil, nil, fmt.Errorf("make the resolver of templates: %w", err)
	}
	changes := contents.New(contents.Options{Source: p.streams, Watch: contents.Watch(p.metadata, o.CatalogNamespaces),
		Changed: feed.ContentsChanged, Panics: p.panics})
	feed.Completer, feed.Packages, feed.Builder.Changes, feed.Interrupted = resolver, catalogs, changes.Get, versions.Refresh
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

// The values of --operator-policy-definition.
const (
	managedDefinition  = "managed"
	externalDefinition = "external"
)

// externalDefinition reports whether another program owns the definition of OperatorPolicy, and then acts on the
// policies and writes their status as well.
func (o *Options) externalDefinition() bool { return o.OperatorPolicyDefinition == externalDefinition }

// addDefinition adds what follows the definition of OperatorPolicy, where another program owns it; else it returns nil.
func (p *process) addDefinition() (*definition.Watcher, error) {
	metrics.Registry.MustRegister(definition.Version)
	if !p.options.externalDefinition() {
		definition.Version.WithLabelValues(policyv1beta2.Version).Set(1)
		return nil, nil
	}
	watcher := definition.NewWatcher(p.dynamic, p.log.WithName("definition"))
	return watcher, p.add(watcher)
}

// addOLMIdentity adds the verification of OLM's account, and returns it with the users that may be OLM instead.
func (p *process) addOLMIdentity() (*olmidentity.Identity, *olmidentity.Candidates, error) {
	account, err := p.options.olmAccount()
	if err != nil {
		return nil, nil, fmt.Errorf("--olm-identity: %w", err)
	}
	identity, log := olmidentity.New(account), p.log.WithName("olm-identity")
	metrics.Registry.MustRegister(olmidentity.NewCollector(identity), olmidentity.NewLastSeen(identity))
	watcher := olmidentity.NewWatcher(olmidentity.Options{Identity: identity, Client: p.dynamic,
		Rights: admission.SubjectAccessReviews{Client: p.authorization.SubjectAccessReviews()}, Log: log,
		Namespace: p.options.Namespace, AcknowledgedNamespace: types.UID(p.options.OLMNamespaceUID)})
	return identity, olmidentity.NewCandidates(account, metrics.Registry, log), p.add(watcher)
}

// identityInterval is the interval between requests until one is answered.
const identityInterval = 2 * time.Second

// identity determines which user this process writes as. Until it is known no user may write virtual operators, this
// process included.
type identity struct {
	client authenticationclient.SelfSubjectReviewInterface
	log    logr.Logger
	name   atomic.Pointer[string]
}

// Username is the name, "" while it is not known.
func (i *identity) Username() string {
	if name := i.name.Load(); name != nil {
		return *name
	}
	return ""
}

// Start asks the API server until it answers.
func (i *identity) Start(ctx context.Context) error {
	// The end of the context is not an error.
	_ = wait.PollUntilContextCancel(ctx, identityInterval, true, func(ctx context.Context) (bool, error) {
		review, err := i.client.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			i.log.Info("which user this is could not be found out, it is tried again", "error", err.Error())
			return false, nil
		}
		i.name.Store(&review.Status.UserInfo.Username)
		return true, nil
	})
	return nil
}
