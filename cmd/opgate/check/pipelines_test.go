package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/check"
	opgatetest "github.com/opgate/opgate/cmd/opgate/test"
)

const repository = "../../.."

// TestPreCommitHooks: the hooks that other repositories name are commands and flags that there are.
func TestPreCommitHooks(t *testing.T) {
	var hooks []struct {
		ID       string   `json:"id"`
		Name     string   `json:"name"`
		Language string   `json:"language"`
		Entry    string   `json:"entry"`
		Args     []string `json:"args"`
		Files    string   `json:"files"`
	}
	read(t, ".pre-commit-hooks.yaml", &hooks)
	commands := map[string]*cobra.Command{"opgate check": check.Command(time.Now), "opgate test": opgatetest.Command()}
	for _, hook := range hooks {
		command := commands[hook.Entry]
		if command == nil {
			t.Errorf("hook %s: there is no command %q", hook.ID, hook.Entry)
			continue
		}
		delete(commands, hook.Entry)
		if err := command.ParseFlags(hook.Args); err != nil {
			t.Errorf("hook %s: %v", hook.ID, err)
		}
		if _, err := regexp.Compile(hook.Files); err != nil || hook.ID == "" || hook.Name == "" ||
			hook.Language != "golang" {
			t.Errorf("hook %s: %v", hook.ID, err)
		}
	}
	for name := range commands {
		t.Errorf("no hook runs %q", name)
	}
}

// TestAction runs the last step of the action as a runner does, with the names that it is given, hostile ones too.
func TestAction(t *testing.T) {
	var action struct {
		Inputs map[string]struct {
			Default string `json:"default"`
		} `json:"inputs"`
		Runs struct {
			Using string `json:"using"`
			Steps []struct {
				Uses string            `json:"uses"`
				Run  string            `json:"run"`
				Env  map[string]string `json:"env"`
			} `json:"steps"`
		} `json:"runs"`
	}
	read(t, "action.yml", &action)
	if action.Runs.Using != "composite" || len(action.Runs.Steps) != 3 {
		t.Fatalf("it runs %+v", action.Runs)
	}
	for _, step := range action.Runs.Steps {
		if step.Uses != "" && !regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`).MatchString(step.Uses) {
			t.Errorf("%q is not pinned by a commit", step.Uses)
		}
		if strings.Contains(step.Run, "${{") {
			t.Errorf("an expression becomes part of the script %q", step.Run)
		}
	}
	last := action.Runs.Steps[2]
	if last.Env["PATHS"] != "${{ inputs.paths }}" || last.Env["FLAGS"] != "${{ inputs.flags }}" {
		t.Errorf("the environment is %v", last.Env)
	}
	for _, test := range []struct {
		paths, flags string
		want         []string
	}{
		{action.Inputs["paths"].Default, action.Inputs["flags"].Default,
			[]string{"check", ".", "--only=refused", "-o", "github"}},
		{"policies apps/$(touch x);touch y", "", []string{"check", "policies", "apps/$(touch", "x);touch", "y", "-o",
			"github"}},
	} {
		dir := t.TempDir()
		// The program writes its arguments, one on a line.
		program := "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$RUNNER_TEMP/arguments\"\n"
		if err := os.WriteFile(filepath.Join(dir, "opgate"), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", last.Run)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GITHUB_BASE_REF=", "RUNNER_TEMP="+dir, "PATHS="+test.paths, "FLAGS="+test.flags)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		arguments, err := os.ReadFile(filepath.Join(dir, "arguments"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSpace(string(arguments)), "\n"); !slices.Equal(got, test.want) {
			t.Errorf("the arguments are %q, want %q", got, test.want)
		}
	}
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
