package serve

import (
	"io"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	crzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// newLogger returns the logger of the process, and its level, which may be changed.
func newLogger(o *Options, out io.Writer) (logr.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(o.LogLevel)
	if err != nil {
		return logr.Logger{}, level, err
	}
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
	), level, nil
}
