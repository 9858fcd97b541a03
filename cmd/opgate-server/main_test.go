package main

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/opgate/opgate/internal/stable"
)

var update = flag.Bool("update", false, "write testdata/modules.txt and docs/stability/opgate-server.txt")

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"opgate-server": main}) }

// TestStableCommands compares commands, flags and exit codes with their list.
func TestStableCommands(t *testing.T) {
	stable.Compare(t, "../../docs/stability/opgate-server.txt", stable.Commands(root()), *update)
}

// TestScripts runs the program as users do.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: os.Getenv("UPDATE") != "", RequireExplicitExec: true,
		RequireUniqueNames: true,
	})
}

// TestModules fails when the server links a module that testdata/modules.txt does not list, or does not link one that
// it lists. Modules of Kubernetes and Go are left out. Every other one is in the image, beside the credentials of the
// gate.
func TestModules(t *testing.T) {
	const file = "testdata/modules.txt"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := slices.DeleteFunc(strings.Fields(string(out)), func(module string) bool {
		return module == "github.com/opgate/opgate" ||
			strings.HasPrefix(module, "k8s.io/") || strings.HasPrefix(module, "golang.org/x/")
	})
	slices.Sort(linked)
	linked = slices.Compact(linked)
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(linked, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(string(listed)), linked); diff != "" {
		t.Errorf("the server links other modules than %s lists (-listed +linked); -args -update writes it:\n%s", file,
			diff)
	}
}
