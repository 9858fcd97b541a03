package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	crzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
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

// namedMetrics is where metrics are registered that name policies and Constraints: shown to scrapers that authenticate,
// else to no scraper.
func namedMetrics(o *Options) prometheus.Registerer {
	if o.SecureMetrics {
		return metrics.Registry
	}
	return prometheus.NewRegistry()
}

// metricsOptions serves metrics by HTTP to every client, or by HTTPS to those who may get /metrics, and then profiles to
// those who may get them.
func metricsOptions(o *Options, c clients, source certs.Source) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.SecureMetrics {
		return options
	}
	options.SecureServing = true
	if o.Profiling {
		// without the command line of the process and without symbols
		options.ExtraHandlers = map[string]http.Handler{"/debug/pprof/": http.HandlerFunc(pprof.Index),
			"/debug/pprof/profile": http.HandlerFunc(pprof.Profile), "/debug/pprof/trace": http.HandlerFunc(pprof.Trace)}
	}
	options.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		with := o.tls(source)
		config.MinVersion, config.CipherSuites, config.GetCertificate, config.NextProtos = with.MinVersion, with.CipherSuites,
			with.GetCertificate, with.NextProtos
	}}
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(log logr.Logger, next http.Handler) (http.Handler, error) {
			return &scrapers{tokens: c.authentication.TokenReviews(), rights: c.authorization.SubjectAccessReviews(),
				next: next, log: log, allowed: cache.NewLRUExpireCache(mostScrapers)}, nil
		}, nil
	}
	return options
}

// scrapers allows clients with a token of the cluster and the right to the path; the verb is the method, as in the API
// server. The filter of controller-runtime depends on all of k8s.io/apiserver's delegated authentication, with gRPC and
// tracing.
type scrapers struct {
	tokens authenticationclient.TokenReviewInterface
	rights authorizationclient.SubjectAccessReviewInterface
	next   http.Handler
	log    logr.Logger
	// allowed has each scrape that was allowed within scraperPeriod.
	allowed *cache.LRUExpireCache
}

// scrape is what a scraper was allowed.
type scrape struct {
	token      [sha256.Size]byte // the hash
	verb, path string
}

func (s *scrapers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || token == "" {
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		return
	}
	asked := scrape{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}
	if _, known := s.allowed.Get(asked); !known {
		code, err := s.check(r.Context(), token, asked.verb, asked.path)
		if err != nil {
			s.log.Error(err, "scraper not checked")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		s.allowed.Add(asked, nil, scraperPeriod)
	}
	s.next.ServeHTTP(w, r)
}

// check asks the API server which user the token belongs to, and whether they have the verb on the path. An error is
// never a yes.
func (s *scrapers) check(ctx context.Context, token, verb, path string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, scraperTimeout)
	defer cancel()
	review, err := s.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
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
	access, err := s.rights.Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
		}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review the right to %s %s: %w", verb, path, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// newLogger returns the logger of the process.
func newLogger(o *Options, out io.Writer) logr.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339TimeEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if o.LogFormat == "console" {
		encoder = zapcore.NewConsoleEncoder(config)
	}
	return crzap.New(
		crzap.WriteTo(out),
		crzap.Encoder(encoder),
		crzap.StacktraceLevel(zapcore.InvalidLevel), // none
		// The library samples unless the level is that of traces, and a refusal that is not logged cannot be explained
		// later. The level is therefore raised from there.
		crzap.Level(zapcore.Level(-128)),
		crzap.RawZapOpts(zap.IncreaseLevel(logLevels[o.LogLevel]), zap.AddCaller()),
	)
}

// logLevels are the log levels that may be set. Warn logs what error does, since a logr.Logger
// has no level between info and error; it is what other programs are run with.
var logLevels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
}
