package check

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"
	"golang.org/x/tools/txtar"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// TestUnits judges small repositories as teams have them, each a directory of testdata/units.txtar with the policy that
// all of them have. The exit code, and what JSON, SARIF and JUnit tell, agree in each.
func TestUnits(t *testing.T) {
	const (
		denied    = `Deny  subscription shop/queue `
		cannot    = `the kustomization cannot be built: `
		wrapped   = `Deny  subscription shop/queue  (fleet/queue.yaml:`
		unstated  = `warning: no namespace is stated, so that it is judged in default`
		unjudged  = `not judged subscription shop/queue `
		recognise = `recognised, not judged: `
	)
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
		not  string
	}{
		{name: "generator", code: 2, want: []string{denied, "problem: acm: " + cannot,
			"kustomize build --enable-alpha-plugins --enable-exec acm | opgate check -p POLICIES -",
			"Allow operatorpolicy policies/tape  (acm/tape.yaml:1)"}},
		{name: "remote", code: 2, want: []string{denied, "problem: hub: " + cannot}, not: "spec.name is missing"},
		{name: "plugin", code: 2, want: []string{denied, "problem: hub: " + cannot}, not: "spec.name is missing"},
		{name: "template", code: 2, want: []string{denied,
			"problem: reference/disk.yaml: line 1: templates of another program in reference (2 files) name operators"}},
		{name: "harmless-template", code: 1, want: []string{denied,
			"templates of another program in roles (1 file) are not read"}},
		{name: "chart", code: 2, want: []string{denied, "templates of another program in chart/templates (1 file) name"}},
		{name: "left-over", code: 1, want: []string{denied, recognise + "a partial Subscription: spec.name is missing"}},
		{name: "left-over", args: []string{"--strict"}, code: 2, want: []string{denied, recognise}},
		{name: "group", code: 1, want: []string{denied, "Allow operatorgroup disk/disk "}},
		{name: "rendered", code: 1, want: []string{denied, "(all.yaml:1)", "built by disk)"}},
		{name: "twice", code: 1, want: []string{denied,
			"warning: apps/b.yaml: document 1, line 1: Subscription shop/queue is defined twice, first in apps/a.yaml",
			"Allow subscription shop/queue  (apps/a.yaml:1)"}},
		{name: "two-policies", code: 2, want: []string{
			"OperatorPolicy policies/queue is defined twice, first in policies/again.yaml", denied,
			"not judged subscription shop/other "}},
		{name: "bad-policy", code: 2, want: []string{"spec.versions must be of type array, not string", denied, "not judged subscription shop/other "}},
		{name: "bad-namespace", code: 1, want: []string{denied, "not judged subscription shop/other ",
			"problem: ns.yaml: document 1, line 4: is not YAML"}},
		{name: "bad-subscription", code: 2, want: []string{denied, "problem: bad.yaml: document 1, line 4: spec.chanel is not",
			"problem: bad.yaml: document 1, line 4: spec.sourceNamespace is missing", "Allow subscription shop/other "}},
		{name: "unrelated", code: 1, want: []string{denied, "problem: twice.yaml: document 1, line 5: data.a is set twice: remove one"}},
		{name: "unrelated", args: []string{"--strict"}, code: 2},
		{name: "merge", code: 1, want: []string{denied, "Allow subscription shop/other "}, not: "problem"},
		{name: "in-template", code: 1, want: []string{wrapped + `9, in Template t)`,
			recognise + "Subscription with a template in spec.source, in Template t"}},
		{name: "in-syncset", code: 1, want: []string{wrapped, "in SelectorSyncSet s"}},
		{name: "in-work", code: 1, want: []string{wrapped, "in ManifestWork w"}},
		{name: "in-crossplane", code: 1, want: []string{wrapped, "in Object o"}},
		{name: "in-policy", code: 1, want: []string{wrapped, "in ConfigurationPolicy c, which only informs)"},
			not: "subscription shop/gone"},
		{name: "in-text", code: 0, want: []string{recognise + "Subscription in a text, data.queue.yaml, in ConfigMap c"}},
		{name: "in-text", args: []string{"--strict"}, code: 2},
		{name: "applications", code: 1, want: []string{"Deny  subscription shop/queue  (apps/queue.yaml:1, for Application one)",
			"Allow subscription market/queue  (apps/queue.yaml:1, for Application two)"}, not: "default"},
		{name: "flux", code: 1, want: []string{"Deny  subscription shop/queue  (apps/deep/queue.yaml:1, for Flux Kustomization f)"}},
		{name: "no-namespace", code: 0, want: []string{"Allow subscription default/queue ", unstated}},
		{name: "no-namespace", args: []string{"-n", "shop"}, code: 1, want: []string{denied}, not: "default"},
		{name: "base", code: 1, want: []string{"built by overlays/one)", "built by overlays/two)"}, not: "built by base)"},
		{name: "named-base", code: 1, want: []string{"built by overlays/one)", "built by base, for Application base)"}},
		{name: "own-policies", code: 1, want: []string{unjudged + " (apps/queue.yaml:1)",
			"no OperatorPolicy and no Constraint is read for .: name them by -p", "built by one)"}},
		{name: "own-policies", args: []string{"-p", "one/policy.yaml"}, code: 1, want: []string{denied}, not: "not judged"},
		{name: "ungoverned", code: 0, want: []string{"Allow subscription shop/other "}},
		{name: "ungoverned", args: []string{"--require-policy"}, code: 1,
			want: []string{"not judged subscription shop/other ", "no OperatorPolicy governs it"}},
		{name: "hidden-overlay", code: 2, want: []string{"not judged subscription shop/other  (disk/other.yaml:1, built by disk)"}},
		{name: "broken-policies", args: []string{"-p", "p"}, code: 2, want: []string{denied, "not judged subscription shop/other "}},
		{name: "component", code: 1, want: []string{"Deny  subscription shop/queue  (base/queue.yaml:1, built by overlay)"},
			not: "no kustomization uses"},
		{name: "unused-component", code: 1, want: []string{"built by whole)",
			recognise + "a component that no kustomization uses"}},
		{name: "named-template", code: 2, want: []string{"templates of another program in roles (1 file) name operators"}},
		{name: "suffix", code: 1, want: []string{`(bundle/version-range): allowed is versionRange ">=4.16.3", which has 4.16.3-rhodf ` +
			`before the version without its suffix: write ">=4.16.3-0" if`}},
		{name: "on", code: 1, want: []string{"write target in place of on, which YAML reads as true"}},
		{name: "deprecated", code: 0, want: []string{"warning: kustomize in a, b: 'commonLabels' is deprecated"}},
	} {
		t.Run(strings.Join(append([]string{tc.name}, tc.args...), " "), func(t *testing.T) {
			repositoryOf(t, tc.name)
			out := map[string]string{}
			for format := range formats {
				text, code := command(t, append([]string{".", "-o", format}, tc.args...)...)
				if out[format] = text; code != tc.code {
					t.Errorf("%s: exit code %d, want %d:\n%s", format, code, tc.code, text)
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(out["text"], want) {
					t.Errorf("want %q in\n%s", want, out["text"])
				}
			}
			if tc.not != "" && strings.Contains(out["text"], tc.not) {
				t.Errorf("no %q in\n%s", tc.not, out["text"])
			}
			agree(t, out, tc.code)
		})
	}
}

// repositoryOf writes the files of one repository, and goes there.
func repositoryOf(t *testing.T, name string) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/units.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	found := false
	for _, file := range archive.Files {
		path, own := strings.CutPrefix(file.Name, name+"/")
		if !own {
			if path, own = strings.CutPrefix(file.Name, "all/"); !own || name == "own-policies" {
				continue
			}
		} else {
			found = true
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, file.Data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("there is no repository %s", name)
	}
}

// command runs the command, and returns its standard output and exit code.
func command(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := Command(time.Now)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		coded, ok := errors.AsType[*cli.ExitError](err)
		if !ok {
			t.Fatal(err)
		}
		code = coded.Code
	}
	return stdout.String(), code
}

// agree compares what the formats for programs tell with the exit code.
func agree(t *testing.T, out map[string]string, code int) {
	t.Helper()
	var inJSON document
	var sarif struct {
		Runs []struct {
			Results     []struct{ Level string }
			Invocations []struct {
				Successful bool `json:"executionSuccessful"`
				ExitCode   int
			}
		}
	}
	var suites junit.Testsuites
	if err := errors.Join(json.Unmarshal([]byte(out["json"]), &inJSON), json.Unmarshal([]byte(out["sarif"]), &sarif),
		xml.Unmarshal([]byte(out["junit"]), &suites)); err != nil {
		t.Fatal(err)
	}
	unusable, refused := 0, 0
	for _, p := range inJSON.Problems {
		if p.Operators {
			unusable++
		}
	}
	for _, i := range inJSON.Items {
		if i.Decision != "Allow" {
			refused++
		}
	}
	levels := map[string]int{}
	for _, r := range sarif.Runs[0].Results {
		levels[r.Level]++
	}
	run := sarif.Runs[0].Invocations[0]
	if inJSON.ExitCode != code || run.ExitCode != code || run.Successful != (code != 2) ||
		(unusable > 0) != (code == 2) || code == 0 != (unusable+refused == 0) ||
		suites.Suites[0].Errors != unusable || suites.Suites[0].Failures != refused || (levels["error"] > 0) != (refused > 0) ||
		strings.Count(out["text"], "\nnot judged: ") > 1 {
		t.Errorf("exit code %d, JSON %d with %d problems and %d refused, SARIF %+v with %v, JUnit %d errors and %d failures", code,
			inJSON.ExitCode, unusable, refused, run.ExitCode, levels, suites.Suites[0].Errors, suites.Suites[0].Failures)
	}
}
