// Package workflows checks what GitHub reads of this repository and no compiler sees: workflows, forms for issues,
// Renovate's configuration.
package workflows

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// workflow is what the rules below read of a workflow. GitHub's reference: "Workflow syntax for GitHub Actions".
type workflow struct {
	On          any            `json:"true"` // YAML 1.1, which sigs.k8s.io/yaml reads, takes the key "on" for a boolean
	Permissions map[string]any `json:"permissions"`
	Concurrency map[string]any `json:"concurrency"`
	Jobs        map[string]job `json:"jobs"`
}

// job is one job of a workflow.
type job struct {
	Permissions    map[string]string `json:"permissions"`
	RunsOn         string            `json:"runs-on"`
	TimeoutMinutes int               `json:"timeout-minutes"`
	Steps          []step            `json:"steps"`
}

// step is a step of a job: an action, or a script.
type step struct {
	Uses string         `json:"uses"`
	With map[string]any `json:"with"`
	Run  string         `json:"run"`
}

// files returns the files that match a pattern, by their path from the root, and fails if there are none.
func files(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no file matches %s, so nothing is checked", pattern)
	}
	found := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.ToSlash(name)] = data
	}
	return found
}

// actionlint runs the linter of workflows on files, or without any on the repository's, and returns what it prints.
func actionlint(t *testing.T, files ...string) (string, error) {
	t.Helper()
	// Without shellcheck and pyflakes, which not every machine has: the answer is the same everywhere.
	args := []string{"tool", "-modfile=.actionlint.mod", "actionlint", "-no-color", "-shellcheck=", "-pyflakes="}
	cmd := exec.CommandContext(t.Context(), "go", append(args, files...)...)
	cmd.Dir = root
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// TestActionlint runs actionlint on the workflows, and on one with a mistake that it has to find.
func TestActionlint(t *testing.T) {
	if output, err := actionlint(t); err != nil {
		t.Errorf("actionlint: %v\n%s", err, output)
	}
	mistake := filepath.Join(t.TempDir(), "mistake.yaml")
	text := `on: pull_request
jobs:
  greet:
    runs-on: ubuntu-24.04
    steps:
      - run: echo "${{ github.event.pull_request.title }}"
`
	if err := os.WriteFile(mistake, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := actionlint(t, mistake); err == nil || !strings.Contains(output, "untrusted") {
		t.Errorf("actionlint accepts a title that becomes part of a script: %v\n%s", err, output)
	}
}

// pinned is an action by its full commit and, for people and Renovate, the version that this is.
var pinned = regexp.MustCompile(`uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// problems returns what a workflow does that it must not.
func problems(data []byte) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	var w workflow
	if err := yaml.Unmarshal(data, &w); err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); strings.Contains(line, "uses: ") && !pinned.MatchString(line) {
			add("%q: want the full commit, with the version as comment", line)
		}
	}
	events := fmt.Sprint(w.On)
	for _, event := range []string{"pull_request_target", "workflow_run", "issue_comment"} {
		if strings.Contains(events, event) {
			add("on %s: runs with the rights of the repository on what a stranger wrote", event)
		}
	}
	if w.Permissions == nil || len(w.Permissions) > 0 {
		add("permissions: want {} for the workflow, each job says what it needs")
	}
	if w.Concurrency["group"] == nil {
		add("concurrency: want a group")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		for _, problem := range w.Jobs[name].problems() {
			add("job %s: %s", name, problem)
		}
	}
	return all
}

// problems returns what a job does that it must not.
func (j job) problems() (all []string) {
	if len(j.Permissions) == 0 {
		all = append(all, "permissions: want what it needs")
	}
	if j.TimeoutMinutes == 0 {
		all = append(all, "timeout-minutes: want a limit, the default is six hours")
	}
	if strings.HasSuffix(j.RunsOn, "-latest") {
		all = append(all, "runs-on: want a fixed version")
	}
	writes := false
	for _, right := range j.Permissions {
		writes = writes || right == "write"
	}
	for _, s := range j.Steps {
		if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
			all = append(all, "actions/checkout: want persist-credentials: false, else every later step can read the token")
		}
		if strings.HasPrefix(s.Uses, "actions/setup-go@") && s.With["cache"] != false && writes {
			all = append(all, "actions/setup-go: want cache: false in a job that writes, since other runs can fill the cache")
		}
		if strings.HasPrefix(s.Uses, "actions/cache") && writes {
			all = append(all, "actions/cache: want none in a job that writes, since other runs can fill it")
		}
		if strings.Contains(s.Run, "${{") {
			all = append(all, "run: want an environment variable in place of an expression, which becomes part of the script")
		}
	}
	return all
}

// TestWorkflows holds workflows to least rights.
func TestWorkflows(t *testing.T) {
	for name, data := range files(t, ".github/workflows/*.yaml") {
		for _, problem := range problems(data) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// TestIdentity shows that one job alone can sign as this repository: the one that publishes releases, for tags.
func TestIdentity(t *testing.T) {
	var signers []string
	for name, data := range files(t, ".github/workflows/*.yaml") {
		var w workflow
		if err := yaml.Unmarshal(data, &w); err != nil {
			t.Fatal(err)
		}
		for id, j := range w.Jobs {
			if j.Permissions["id-token"] == "write" {
				signers = append(signers, name+" "+id)
			}
		}
	}
	if want := []string{".github/workflows/release.yaml publish"}; !slices.Equal(signers, want) {
		t.Errorf("jobs with id-token: write are %q, want %q", signers, want)
	}
}

// TestProblems shows that each rule finds what it is for, in a workflow that is right but for that.
func TestProblems(t *testing.T) {
	right := `on: {push: {tags: [v1]}}
permissions: {}
concurrency: {group: one}
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {contents: read}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with: {persist-credentials: false}
      - uses: actions/setup-go@924ae3a1cded613372ab5595356fb5720e22ba16 # v6.5.0
      - run: make lint
`
	if got := problems([]byte(right)); len(got) > 0 {
		t.Fatalf("a workflow that is right has problems: %q", got)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"action by its tag":               {"3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "v7", "full commit"},
		"commit without its version":      {" # v7.0.1", "", "full commit"},
		"a stranger's code":               {"{push: {tags: [v1]}}", "pull_request_target", "pull_request_target"},
		"a stranger's code, in a list":    {"{push: {tags: [v1]}}", "[push, workflow_run]", "workflow_run"},
		"rights of the workflow":          {"\npermissions: {}", "\npermissions: {contents: read}", "want {}"},
		"default rights":                  {"\npermissions: {}", "", "want {}"},
		"no concurrency":                  {"concurrency: {group: one}", "", "concurrency"},
		"a job without rights of its own": {"    permissions: {contents: read}\n", "", "what it needs"},
		"no limit":                        {"    timeout-minutes: 5\n", "", "timeout-minutes"},
		"a machine that changes":          {"ubuntu-24.04", "ubuntu-latest", "runs-on"},
		"a token that stays":              {"        with: {persist-credentials: false}\n", "", "persist-credentials"},
		"a cache that others fill":        {"{contents: read}", "{contents: write}", "cache: false"},
		"an injected name":                {"make lint", "make ${{ github.ref_name }}", "environment variable"},
	} {
		if !bytes.Contains([]byte(right), []byte(test.old)) {
			t.Fatalf("%s: the workflow has no %q", name, test.old)
		}
		got := problems([]byte(strings.Replace(right, test.old, test.new, 1)))
		if len(got) != 1 || !strings.Contains(got[0], test.want) {
			t.Errorf("%s: problems are %q, want one with %q", name, got, test.want)
		}
	}
}
