package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"opgate": main, "kubectl-opgate": main, "kubectl_complete-opgate": main})
}

// TestScripts runs the program as users do. $SERVER is an API server that stores the objects of objects.yaml.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: os.Getenv("UPDATE") != "", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(stored(filepath.Join(env.WorkDir, "objects.yaml")))
			env.Defer(server.Close)
			env.Setenv("SERVER", server.URL)
			return nil
		},
	})
}

// stored responds to lists with the objects of a file: a resource is a key of it, in the plural. Watches stay open.
func stored(file string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		all := map[string][]any{}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &all)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		items := all[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
		if items == nil {
			items = []any{}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"gitVersion": "v1.36.3", "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}
