package serve

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLogLevel sets levels of a logger and reads what it then logs.
func TestLogLevel(t *testing.T) {
	var out bytes.Buffer
	log, level := newLogger(&Options{LogLevel: "info", LogFormat: "json"}, &out)
	handler := logLevel{level, log}
	// lines logs at each level and returns how many lines that made.
	lines := func() int {
		before := strings.Count(out.String(), "\n")
		log.V(1).Info("debug")
		log.Info("info")
		log.Error(nil, "error")
		return strings.Count(out.String(), "\n") - before
	}
	for _, test := range []struct {
		name, method, body string
		code               int
		says               string
		lines              int
		logged             string // of the change itself
	}{
		{name: "read", method: http.MethodGet, code: http.StatusOK, says: "info\n", lines: 2},
		{name: "more", method: http.MethodPut, body: "debug\n", code: http.StatusOK, says: "debug\n", lines: 3,
			logged: `"from":"info","to":"debug","user":"alice"`},
		{name: "less is logged before", method: http.MethodPut, body: "error", code: http.StatusOK, says: "error\n",
			lines:  1,
			logged: `"from":"debug","to":"error","user":"alice"`},
		{name: "more is logged after", method: http.MethodPut, body: "info", code: http.StatusOK, says: "info\n",
			lines:  2,
			logged: `"from":"error","to":"info","user":"alice"`},
		{name: "errors alone", method: http.MethodPut, body: "warn", code: http.StatusOK, says: "warn\n", lines: 1,
			logged: `"from":"info","to":"warn","user":"alice"`},
		{name: "back", method: http.MethodPut, body: "info", code: http.StatusOK, says: "info\n", lines: 2,
			logged: `"from":"warn","to":"info","user":"alice"`},
		{name: "no such level", method: http.MethodPut, body: "loud", code: http.StatusBadRequest,
			says: `"loud" is not one of debug, info, warn, error`, lines: 2},
		{name: "attack: no log at all", method: http.MethodPut, body: "fatal", code: http.StatusBadRequest,
			says: `"fatal" is not one of`, lines: 2},
		{name: "attack: a number beyond all levels", method: http.MethodPut, body: "127", code: http.StatusBadRequest,
			lines: 2},
		{name: "attack: a long body", method: http.MethodPut, body: strings.Repeat(" ", maxLogLevel) + "debug",
			code: http.StatusBadRequest, lines: 2},
		{name: "attack: nothing", method: http.MethodPut, code: http.StatusBadRequest, lines: 2},
		{name: "another method", method: http.MethodDelete, code: http.StatusMethodNotAllowed, lines: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			out.Reset()
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), scraperKey{}, "alice"), test.method,
				logLevelPath, strings.NewReader(test.body))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, test.code, test.says)
			}
			if logged := out.String(); !strings.Contains(logged, test.logged) || (test.logged == "") != (logged == "") {
				t.Errorf("logged %q, want %q", logged, test.logged)
			}
			if n := lines(); n != test.lines {
				t.Errorf("%d lines at the level, want %d", n, test.lines)
			}
		})
	}
}
