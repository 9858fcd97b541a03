package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&Options{LogLevel: "info", LogFormat: "json"}, &out)
	log = log.WithName("admission")
	log.V(1).Info("not logged")
	log.Error(errors.New("no route"), "request failed", "namespace", "shop")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	keys := slices.Sorted(maps.Keys(line))
	if want := []string{"caller", "error", "level", "logger", "msg", "namespace", "ts"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	if line["level"] != "error" || line["logger"] != "admission" ||
		!strings.HasPrefix(line["caller"].(string), "serve/logger_test.go:") {
		t.Errorf("got %v", line)
	}
	if _, err := time.Parse(time.RFC3339, line["ts"].(string)); err != nil {
		t.Error(err)
	}
}

func TestLogFormats(t *testing.T) {
	for name, test := range map[string]struct {
		level, format string
		want          []string
	}{
		"json":    {level: "debug", format: "json", want: []string{`"level":"info"`, `"level":"debug"`}},
		"console": {level: "debug", format: "console", want: []string{"\tinfo\t", "\tdebug\t"}},
		"quiet":   {level: "warn", format: "json", want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := newLogger(&Options{LogLevel: test.level, LogFormat: test.format}, &out)
			log.Info("served", "seconds", 2*time.Second)
			log.V(1).Info("served")
			log.V(2).Info("not logged")
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if out.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(test.want) {
				t.Fatalf("got %q", lines)
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("got %q, want %q in it", lines[i], want)
				}
			}
		})
	}
}

// A refusal that is not logged cannot be explained later.
func TestLogIsNotSampled(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&Options{LogLevel: "info", LogFormat: "json"}, &out)
	for range 1000 {
		log.Info("refused")
	}
	if n := strings.Count(out.String(), "\n"); n != 1000 {
		t.Errorf("%d lines of 1000", n)
	}
}
