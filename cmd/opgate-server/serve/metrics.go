package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
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
	"github.com/opgate/opgate/internal/text"
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

// metricsOptions serves metrics by HTTP to every client, or by HTTPS to those who may get /metrics, and then the log
// level to those who may get it, or put another.
func metricsOptions(o *Options, c clients, source certs.Source, level http.Handler) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.SecureMetrics {
		return options
	}
	options.SecureServing = true
	options.ExtraHandlers = map[string]http.Handler{logLevelPath: level}
	if o.Profiling {
		maps.Copy(options.ExtraHandlers, profiles())
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

// profiles returns the handlers of profiles by their paths, without the command line of the process and without
// symbols.
func profiles() map[string]http.Handler {
	handlers := map[string]http.Handler{
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
	for _, name := range []string{"allocs", "goroutine", "heap", "mutex", "block", "threadcreate"} {
		handlers["/debug/pprof/"+name] = pprof.Handler(name)
	}
	return handlers
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

// scraperKey is the key of a scraper's user name in the context of a request that changes something.
type scraperKey struct{}

func (s *scrapers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || token == "" {
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		return
	}
	asked := scrape{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}
	reads := r.Method == http.MethodGet
	if _, known := s.allowed.Get(asked); !reads || !known {
		code, user, err := s.check(r.Context(), token, asked.verb, asked.path)
		if err != nil {
			s.log.Error(err, "scraper not checked")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		if reads {
			s.allowed.Add(asked, nil, scraperPeriod)
		} else {
			r = r.WithContext(context.WithValue(r.Context(), scraperKey{}, user))
		}
	}
	s.next.ServeHTTP(w, r)
}

// check asks the API server which user the token belongs to, and whether they have the verb on the path. An error is
// never a yes.
func (s *scrapers) check(ctx context.Context, token, verb, path string) (code int, username string, err error) {
	ctx, cancel := context.WithTimeout(ctx, scraperTimeout)
	defer cancel()
	review, err := s.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, "", fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, "", nil
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
		return http.StatusInternalServerError, "", fmt.Errorf("review the right to %s %s: %w", verb, path, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, "", nil
	}
	return http.StatusOK, user.Username, nil
}

// newLogger returns the logger of the process, and its level, which may be changed.
func newLogger(o *Options, out io.Writer) (logr.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevelAt(logLevels[o.LogLevel])
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
		crzap.RawZapOpts(zap.IncreaseLevel(level), zap.AddCaller()),
	), level
}

const (
	// logLevelPath is where the log level is read and set, on the server of metrics.
	logLevelPath = "/debug/log-level"
	// maxLogLevel bounds the body of a request, in bytes.
	maxLogLevel = 64
)

// logLevels are the log levels that may be set, at the start and later. Warn logs what error does, since a logr.Logger
// has no level between info and error; it is what other programs are run with.
var logLevels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
}

// logLevel returns the log level to GET and sets it by PUT, in plain text, as /debug/flags/v of the Kubernetes
// components does.
// --log-level applies again when the process starts.
type logLevel struct {
	level zap.AtomicLevel
	log   logr.Logger
}

func (l logLevel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogLevel))
		if err != nil {
			http.Error(w, "the log level cannot be read", http.StatusBadRequest)
			return
		}
		to, known := logLevels[strings.TrimSpace(string(body))]
		if !known {
			http.Error(w, text.Quote(string(body))+" is not one of debug, info, warn, error", http.StatusBadRequest)
			return
		}
		l.set(r.Context(), to)
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "the log level is read by GET and set by PUT", http.StatusMethodNotAllowed)
		return
	}
	fmt.Fprintln(w, l.level.Level())
}

// set changes the level. The log shows by whom, at the more verbose one of both levels.
func (l logLevel) set(ctx context.Context, to zapcore.Level) {
	from := l.level.Level()
	if to < from {
		l.level.SetLevel(to)
	}
	l.log.Info("log level changed", "from", from.String(), "to", to.String(), "user", ctx.Value(scraperKey{}))
	l.level.SetLevel(to)
}
