package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/opgate/opgate/certs"
)

const (
	// scraperTimeout bounds the check of one scraper, scraperPeriod is how long its result is cached.
	scraperTimeout = 5 * time.Second
	scraperPeriod  = time.Minute
	// mostScrapers bounds the cache.
	mostScrapers = 100
)

// namedMetrics is where metrics are registered that name policies and Constraints: shown to scrapers that authenticate, else to
// no scraper.
func namedMetrics(o *Options) prometheus.Registerer {
	if o.SecureMetrics {
		return metrics.Registry
	}
	return prometheus.NewRegistry()
}

// metricsOptions serves metrics by HTTP to every client, or by HTTPS to those who may get /metrics.
func metricsOptions(o *Options, source certs.Source, now func() time.Time) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.SecureMetrics {
		return options
	}
	options.SecureServing = true
	options.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion, config.GetCertificate, config.NextProtos = tls.VersionTLS12, source.GetCertificate, []string{"http/1.1"}
	}}
	options.FilterProvider = func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		tokens, err := authenticationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		rights, err := authorizationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		return func(log logr.Logger, next http.Handler) (http.Handler, error) {
			return &scrapers{tokens: tokens.TokenReviews(), rights: rights.SubjectAccessReviews(), next: next, log: log, now: now}, nil
		}, nil
	}
	return options
}

// scrapers allows clients with a token of the cluster and the right to get /metrics. The filter of controller-runtime
// depends on all of k8s.io/apiserver's delegated authentication, with gRPC and tracing.
type scrapers struct {
	tokens authenticationclient.TokenReviewInterface
	rights authorizationclient.SubjectAccessReviewInterface
	next   http.Handler
	log    logr.Logger
	now    func() time.Time

	mu sync.Mutex
	// known is until when a scraper counts as allowed, by the hash of its token.
	known map[[sha256.Size]byte]time.Time
}

func (s *scrapers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || token == "" {
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		return
	}
	key := sha256.Sum256([]byte(token))
	if !s.remembers(key) {
		code, err := s.check(r.Context(), token, r.URL.Path)
		if err != nil {
			s.log.Error(err, "scraper not checked")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		s.remember(key)
	}
	s.next.ServeHTTP(w, r)
}

// check asks the API server which user the token belongs to, and whether they may get the path. An error is never a yes.
func (s *scrapers) check(ctx context.Context, token, path string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, scraperTimeout)
	defer cancel()
	review, err := s.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := s.rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review the right to %s: %w", path, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (s *scrapers) remembers(key [sha256.Size]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.known[key])
}

func (s *scrapers) remember(key [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= mostScrapers {
		s.known = map[[sha256.Size]byte]time.Time{}
	}
	s.known[key] = s.now().Add(scraperPeriod)
}
