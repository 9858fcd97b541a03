package main

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/stable"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"opgate": main, "kubectl-opgate": main, "kubectl_complete-opgate": main})
}

var update = flag.Bool("update", false, "write docs/stability/opgate.txt")

// TestStableCommands compares commands, flags and exit codes with their list.
func TestStableCommands(t *testing.T) {
	stable.Compare(t, "../../docs/stability/opgate.txt", stable.Commands(root()), *update)
}

// TestScripts runs the program as users do. $SERVER is an API server that stores the objects of objects.yaml.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: os.Getenv("UPDATE") != "", RequireExplicitExec: true,
		RequireUniqueNames: true,
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"wrong": wrong},
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(stored(filepath.Join(env.WorkDir, "objects.yaml")))
			env.Defer(server.Close)
			env.Setenv("SERVER", server.URL)
			return workflow(filepath.Join(env.WorkDir, "workflow.sh"))
		},
	})
}

// workflow writes the script of the workflow in docs/lockfile.md to a file.
func workflow(file string) error {
	page, err := os.ReadFile("../../docs/lockfile.md")
	if err != nil {
		return err
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var read struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	if err := yaml.Unmarshal([]byte(block), &read); err != nil {
		return err
	}
	steps := read.Jobs["suggest"].Steps
	return os.WriteFile(file, []byte("set -e\n"+steps[len(steps)-1].Run), 0o600)
}

// wrong runs the command lines of a file, each with the beginning of its answer after an arrow: every one is a usage
// error, of which nothing is printed on standard output.
func wrong(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		command, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		words := strings.Fields(command)
		coded, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](ts.Exec(words[0], words[1:]...))
		if !ok || coded.ExitCode() != cli.ExitUnusable || !strings.HasPrefix(ts.ReadFile("stderr"), want) ||
			ts.ReadFile("stdout") != "" {
			ts.Logf("%s: %v, standard output %q", command, coded, ts.ReadFile("stdout"))
			ts.Fatalf("answers\n%swant\n%s", ts.ReadFile("stderr"), want)
		}
	}
}

// stored responds to requests for the objects of a file: a resource is a key of it, in the plural. Watches stay open.
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
		path := strings.Split(r.URL.Path, "/")
		last := len(path) - 1
		for _, item := range all[path[max(last-1, 0)]] { // a single object is asked for
			if u := (unstructured.Unstructured{Object: item.(map[string]any)}); u.GetName() == path[last] {
				_ = json.NewEncoder(w).Encode(u.Object)
				return
			}
		}
		if strings.HasPrefix(r.URL.Path, "/apis/config.openshift.io/") {
			http.NotFound(w, r)
			return
		}
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		items := []any{}
		for _, item := range all[path[last]] {
			if u := (unstructured.Unstructured{Object: item.(map[string]any)}); selector.Matches(labels.Set(u.GetLabels())) {
				items = append(items, item)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"gitVersion": "v1.36.3",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}
