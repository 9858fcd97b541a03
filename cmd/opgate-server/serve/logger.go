package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	crzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/opgate/opgate/internal/text"
)

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
	l.log.Info("log level changed", "from", from.String(), "to", to.String(), "user", scraperOf(ctx))
	l.level.SetLevel(to)
}
